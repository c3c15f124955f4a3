"""The model `capacity`: bands become hazards, availability becomes survival."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.evictions.base import as_table, beta
from proteus_spot.bidding.evictions.fit_capacity import (
    DOWN,
    MONTH_S,
    NO_CAPACITY_MICROS,
    UP,
    Band,
    availability_trace,
    fit_availability,
    hazard_per_s,
    joined,
    of_bands,
    with_capacity,
)
from proteus_spot.bidding.evictions.fit_survival import fit_survival
from proteus_spot.bidding.evictions.table import DELTAS_MICROS
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Trace, TraceSet
from tests.bidding.evictions.naive import MARKET, OTHER
from tests.support.markets import PROPERTY


def test_a_band_is_the_share_taken_in_a_month() -> None:
    model = of_bands({MARKET: Band(0.05, 0.10), OTHER: Band(0.2, None)}, open_band=0.3)
    assert float(model.survival(MARKET, 0, MONTH_S)) == pytest.approx(1 - 0.075, rel=1e-6), (
        "beyond the curve's last day"
    )
    assert float(beta(model, OTHER, 0, within_s=MONTH_S)) == pytest.approx(0.3, rel=1e-6)
    rates = [-np.log(float(model.survival(MARKET, 0, ahead))) / ahead for ahead in (HOUR_S, 600)]
    assert rates == pytest.approx([hazard_per_s(0.075)] * 2, rel=1e-3), "constant"


def test_what_is_bid_decides_nothing() -> None:
    model = of_bands({MARKET: Band(0, 0.05)})
    lived = model.survival(MARKET, [0, 100, 400_000, 10**9], HOUR_S)
    assert len(set(lived.tolist())) == 1
    assert float(model.survival(MARKET, -1, HOUR_S)) == 0, "a bid below the price is not even granted"
    assert model.fitted is None


def test_as_a_table_one_bid_stands_for_all_and_what_was_bid_decides_nothing() -> None:
    model = of_bands({MARKET: Band(0.05, 0.10), OTHER: Band(0.2, None)})
    table = as_table(model, markets=[OTHER])
    assert (table.markets, table.deltas_micros, table.bids_decide) == ((OTHER,), (DELTAS_MICROS[-1],), False)
    assert table.lookup(OTHER, 0) == pytest.approx((float(beta(model, OTHER, 0)), HOUR_S / 2), rel=1e-3)
    by_price = fit_survival(TraceSet({MARKET: Trace(np.array([0]), np.array([1]))}), TimeWindow(0, 2 * HOUR_S))
    assert (as_table(by_price).deltas_micros, as_table(by_price).bids_decide) == (DELTAS_MICROS, True)


@pytest.mark.parametrize("edges", [(-0.1, 0.1), (0.2, 0.1), (0.1, 0.1), (1.0, None), (0.1, 1.1), (float("nan"), 0.1)])
def test_what_is_no_band_is_refused(edges: tuple[float, float | None]) -> None:
    with pytest.raises(ValueError, match="not a band"):
        Band(*edges)


@pytest.mark.parametrize("share", [0.19, 1.0, float("nan")])
def test_an_open_band_is_not_below_its_begin(share: float) -> None:
    with pytest.raises(ValueError, match="open band must be in"):
        of_bands({MARKET: Band(0.2, None)}, open_band=share)


def test_an_availability_trace_is_up_or_down() -> None:
    prices = availability_trace([2, 0, 1], 600, 1000)
    assert prices.times_s.tolist() == [1000, 1600, 2200]
    assert prices.prices_micros.tolist() == [UP, DOWN, UP]
    for up, gap in (([], 600), ([1], 0)):
        with pytest.raises(ValueError, match="steps"):
            availability_trace(up, gap)


def test_only_minutes_at_which_a_machine_could_be_had_count() -> None:
    """Up for 2 hours, down for 2, up for 2: of 120 + 61 minutes, those of the first stretch's last hour see the end."""
    up = [1] * 12 + [0] * 12 + [1] * 12
    model = fit_availability(TraceSet({MARKET: availability_trace(up, 600)}), TimeWindow(0, 6 * HOUR_S))
    assert model.grants.tolist() == [[[120 + 61]]]
    # The bid of an hour before the end is taken on the hour, which is not within it.
    assert float(beta(model, MARKET, 0)) == pytest.approx(59 / 181)
    assert float(model.survival(MARKET, 5, 600)) == pytest.approx(1 - 9 / 181)


def test_a_known_hazard_is_found() -> None:
    rng = np.random.default_rng(5)
    up: list[int] = []
    while len(up) < 60_000:
        up += [1] * int(1 + rng.exponential(120)) + [0] * int(1 + rng.exponential(30))
    model = fit_availability(TraceSet({MARKET: availability_trace(up, 60)}), TimeWindow(0, 60 * len(up)))
    assert float(beta(model, MARKET, 0)) == pytest.approx(1 - np.exp(-0.5), abs=0.03)


def test_what_was_measured_comes_before_a_band() -> None:
    third = Market("a", "z")
    measured = fit_availability(TraceSet({MARKET: availability_trace([1] * 30, 600)}), TimeWindow(0, 18_000))
    both = joined(measured, of_bands({MARKET: Band(0.2, None), third: Band(0.0, 0.05)}))
    assert both.markets == (third, MARKET)
    assert float(both.survival(MARKET, 0, HOUR_S)) == 1.0
    assert 0 < float(beta(both, third, 0)) < 0.001
    assert both.fitted == TimeWindow(0, 18_000)
    assert both.notes == {"open_band": 0.3}


STEPS = st.lists(st.integers(0, 2), min_size=1, max_size=12)
EVENTS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from([10, 20, 30])), min_size=1, max_size=8)


@PROPERTY
@given(steps=STEPS, gap_s=st.integers(1, 5), begins_s=st.integers(-10, 50), rows=EVENTS)
def test_with_capacity_a_bid_lives_until_the_price_passes_it_or_the_capacity_ends(
    steps: list[int], gap_s: int, begins_s: int, rows: list[tuple[int, int]]
) -> None:
    times, micros = zip(*sorted(rows, key=lambda row: row[0]), strict=True)
    prices, capacity = Trace(np.array(times), np.array(micros)), availability_trace(steps, gap_s, begins_s)
    both = with_capacity(prices, capacity)
    first_s, last_s = max(times[0], begins_s), begins_s + gap_s * (len(steps) - 1)
    if first_s > last_s:
        assert not len(both)
        return
    assert (both.times_s[0], both.times_s[-1]) == (first_s, last_s)

    def up(at_s: int) -> bool:
        return steps[(at_s - begins_s) // gap_s] > 0

    for at_s in range(first_s, last_s + 1):
        assert both.price_at(at_s) == (prices.price_at(at_s) if up(at_s) else NO_CAPACITY_MICROS)
        for bid in (10, 20, 30):
            later = range(at_s + 1, last_s + 1)
            taken = [t for t in later if not up(t) or (t in times and (prices.price_at(t) or 0) > bid)]
            if up(at_s) and (prices.price_at(at_s) or 0) <= bid:
                assert both.first_above(bid, at_s) == min(taken, default=None)
