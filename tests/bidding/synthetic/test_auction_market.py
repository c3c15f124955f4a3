"""Markets made of auctions: floors, stretches of stillness, hills; statistics and ranks as on the real files."""

from dataclasses import astuple, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.backtest.eviction_arrays import pack_table
from proteus_spot.bidding.backtest.price_arrays import pack
from proteus_spot.bidding.backtest.reference_cluster import cheapest, draw_starts
from proteus_spot.bidding.backtest.runner import run
from proteus_spot.bidding.backtest.schemes.scheme_registry import SCHEMES
from proteus_spot.bidding.evictions.table import fit
from proteus_spot.bidding.forecast import fit_forecast
from proteus_spot.bidding.market.model import HOUR_S, InstanceType, Market
from proteus_spot.bidding.market.trace_statistics import TraceStatistics, statistics
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.synthetic.auction_market import AuctionClimate, auction_prices, mean_reverting
from proteus_spot.bidding.synthetic.renewal_market import TYPICAL, generate

DAY_S = 24 * HOUR_S
#: Types of 2015 and 2016, with their on-demand prices of then.
TYPES = {
    name: InstanceType(name, vcpu, 8.0, micros)
    for name, vcpu, micros in (
        ("c3.xlarge", 4, 210_000),
        ("m4.xlarge", 4, 239_000),
        ("m1.xlarge", 4, 350_000),
        ("r3.large", 2, 166_000),
        ("g2.2xlarge", 8, 650_000),
    )
}
VCPUS = {name: one.vcpu for name, one in TYPES.items()}
MARKETS = tuple(sorted(Market(name, f"us-east-1{letter}") for name in TYPES for letter in "abe"))
ON_DEMAND = {market: TYPES[market.instance_type].on_demand_micros for market in MARKETS}

#: Quartiles over the real markets, the lowest and the highest among three files: us-east-1, 2015-spring (13 markets),
#: 2016-early-summer-m4 (4) and 2016-spring (43), fit and evaluation days.
REAL = {
    "level": (0.100, 0.160),
    "low": (0.712, 0.989),
    "high": (1.132, 17.222),
    "changes_per_hour": (2.800, 29.626),
    "share_rises": (0.471, 0.502),
    "median_rise": (0.003, 0.019),
    "large_rise": (0.011, 0.642),
    "rise_in_hour": (0.549, 0.998),
    "soon_if_young": (0.390, 0.878),
    "soon_if_old": (0.028, 0.585),
    "busy_after_busy": (0.067, 0.775),
    "share_above": (0.0, 0.062),
}


def made(seed: int, days: int, climate: AuctionClimate = TYPICAL) -> TraceSet:
    return generate(ON_DEMAND, 0, days * DAY_S, np.random.default_rng(seed), climate=climate, vcpus=VCPUS)


@pytest.fixture(name="traces", scope="module")
def _traces() -> TraceSet:
    return made(0, 60)


def looks(traces: TraceSet) -> np.ndarray:
    rows = [astuple(statistics(traces[market], ON_DEMAND[market], 0, 60 * DAY_S)) for market in MARKETS]
    return np.array(rows)


@pytest.fixture(name="medians", scope="module")
def _medians(traces: TraceSet) -> TraceStatistics:
    return TraceStatistics(*np.nanmedian(looks(traces), axis=0))


@pytest.mark.parametrize("name", [each.name for each in fields(TraceStatistics)])
def test_statistics_are_within_the_real_ones(name: str, medians: TraceStatistics) -> None:
    low, high = REAL[name]
    assert low <= getattr(medians, name) <= high


def test_no_market_falls_below_its_floor_and_most_come_down_to_it(traces: TraceSet) -> None:
    reached = 0
    for market, trace in traces.items():
        floor = TYPICAL.floor_micros(ON_DEMAND[market], VCPUS[market.instance_type])
        assert trace.prices_micros.min() >= floor - 50, "half a step of rounding"
        reached += trace.prices_micros.min() < 1.02 * floor
    assert reached >= 0.7 * len(traces)


def test_types_have_one_floor_for_a_vcpu_and_none_is_below_its_share_of_on_demand() -> None:
    floors = {name: TYPICAL.floor_micros(one.on_demand_micros, one.vcpu) for name, one in TYPES.items()}
    assert floors["c3.xlarge"] == floors["m4.xlarge"] == 4 * TYPICAL.vcpu_floor_micros
    assert TYPICAL.floor_micros(5_520_000, 36) == TYPICAL.floor_share * 5_520_000, "d2.8xlarge: storage costs too"
    assert TYPICAL.floor_micros(130_000, None) == TYPICAL.floor_micros(130_000, 2), "told by its on-demand price"


def test_markets_of_one_type_move_on_their_own(traces: TraceSet) -> None:
    grid = np.arange(0, 60 * DAY_S, 600)
    rows = [np.log([traces[market].price_at(at_s) for at_s in grid]) for market in MARKETS[:3]]
    apart = np.corrcoef(rows) - np.eye(3)
    assert np.abs(apart).max() < 0.5


def test_a_book_without_jitter_and_a_slow_pressure_hardly_flickers() -> None:
    still = statistics_of(replace(TYPICAL, jitter=0.0, reversion_s=30.0 * DAY_S))
    assert still.changes_per_hour < 0.5 * statistics_of(TYPICAL).changes_per_hour


def statistics_of(climate: AuctionClimate) -> TraceStatistics:
    return TraceStatistics(*np.nanmedian(looks(made(1, 60, climate)), axis=0))


def test_schemes_rank_as_on_the_real_markets(traces: TraceSet) -> None:
    """Standard on checkpoints, on AgileML, BidBrain, what is learnt from signals; by far more than chance."""
    packed = pack(traces, MARKETS, TYPES)
    seen = fit_forecast(traces, TYPES, 0, 40 * DAY_S)
    table = pack_table(fit(traces, 0, 40 * DAY_S), MARKETS, seen)
    reference = cheapest(MARKETS, TYPES)
    starts_s = draw_starts(np.random.default_rng(0), 40 * DAY_S, 60 * DAY_S, 20, 60)
    ranked = ("standard+checkpoint", "standard+agileml", "proteus", "best")
    costs = [run(packed, table, SCHEMES[name], starts_s, 20, reference).relative_cost.mean() for name in ranked]
    assert np.all(np.diff(costs) < -0.005), dict(zip(ranked, costs, strict=True))
    assert 0.15 < costs[0] < 0.22
    assert costs[-1] < 0.8 * costs[-2]


@given(
    span_s=st.integers(1, 3 * DAY_S),
    seed=st.integers(0, 2**32 - 1),
    often=st.floats(1.0, 5000.0),
    book_s=st.floats(60.0, 1e7),
    width=st.floats(0.01, 3.0),
)
def test_auctions_rise_in_time_from_zero_and_no_price_is_below_the_floor(
    span_s: int, seed: int, often: float, book_s: float, width: float
) -> None:
    climate = replace(TYPICAL, auction_s=(often, 2 * often), book_s=max(book_s, span_s / 50), step_width=width)
    times_s, prices = auction_prices(1000.0, span_s, np.random.default_rng(seed), climate)
    assert times_s[0] == 0 <= times_s[-1] <= span_s
    assert (np.diff(times_s) > 0).all()
    assert times_s.shape == prices.shape
    assert np.isfinite(prices).all()
    assert (prices >= 1000.0).all()


def test_pressure_forgets_at_the_rate_it_is_told() -> None:
    times_s = np.arange(0, 4_000_000, 100, dtype=np.int64)
    values = mean_reverting(times_s, np.random.default_rng(0).standard_normal(len(times_s)), 2.0, 1000.0)
    assert values.std() == pytest.approx(2.0, rel=0.05)
    assert np.corrcoef(values[10:], values[:-10])[0, 1] == pytest.approx(np.exp(-1), abs=0.05)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auction_s", (0.0, 60.0)),
        ("auction_s", (60.0, 30.0)),
        ("vcpu_floor_micros", 0.0),
        ("reversion_s", float("inf")),
        ("step_width", -0.1),
        ("step_height", 0.0),
        ("book_s", float("nan")),
        ("jitter", -1.0),
        ("mean_spread", float("nan")),
        ("mean", float("inf")),
        ("step_growth", float("nan")),
    ],
)
def test_a_climate_that_cannot_be_names_what_is_wrong(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        replace(TYPICAL, **{name: value})
