"""Made-up markets: the same for a seed, with the looks of the real ones, and lively where that is asked for."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.bidding.evictions.table import DELTAS_MICROS, fit
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.synthetic.auction_market import AuctionClimate
from proteus_spot.bidding.synthetic.renewal_market import (
    LIVELY,
    PRICE_STEP_MICROS,
    QUIET,
    RUSH_HOURS,
    TYPICAL,
    MarketClimate,
    generate,
)
from proteus_spot.infra.market_data.price_files import read_prices

DAY_S = 24 * HOUR_S
START_S = 1_456_000_000
ON_DEMAND = {
    Market(kind, zone): price
    for kind, price in (("c4.large", 105_000), ("c4.xlarge", 209_000), ("m4.large", 120_000), ("r3.large", 166_000))
    for zone in ("us-east-1a", "us-east-1b")
}
HALF_A_CENT, FIVE_CENTS, HIGHEST = 5_000, 50_000, DELTAS_MICROS[-1]


SPIKING = MarketClimate()


def made(seed: int, days: float = 14.0, climate: AuctionClimate | MarketClimate = TYPICAL) -> TraceSet:
    return generate(ON_DEMAND, START_S, START_S + int(days * DAY_S), np.random.default_rng(seed), climate=climate)


def every_minute(traces: TraceSet, market: Market) -> np.ndarray:
    grid = np.arange(traces.first_s, traces.last_s, 60)
    trace = traces[market]
    return trace.prices_micros[np.searchsorted(trace.times_s, grid, side="right") - 1]


@pytest.fixture(name="typical", scope="module")
def _typical() -> TraceSet:
    return made(0, 30)


@pytest.fixture(name="spiking", scope="module")
def _spiking() -> TraceSet:
    return made(0, 30, SPIKING)


@pytest.fixture(name="lively", scope="module")
def _lively() -> TraceSet:
    return made(0, 30, LIVELY)


@pytest.mark.parametrize("climate", [TYPICAL, SPIKING, LIVELY, RUSH_HOURS])
def test_the_same_seed_makes_the_same_market(climate: AuctionClimate | MarketClimate) -> None:
    assert made(3, 2, climate) == made(3, 2, climate)
    assert made(3, 2, climate) != made(4, 2, climate)


def test_the_order_in_which_markets_are_named_does_not_matter() -> None:
    backwards = dict(reversed(ON_DEMAND.items()))
    assert generate(backwards, START_S, START_S + DAY_S, np.random.default_rng(1)) == made(1, days=1)


@pytest.mark.parametrize("climate", [TYPICAL, SPIKING, LIVELY, RUSH_HOURS])
@pytest.mark.parametrize("days", [1 / 86_400, 0.01, 7])
def test_a_trace_fills_its_window_with_prices_that_a_market_could_have(
    days: float, climate: AuctionClimate | MarketClimate
) -> None:
    traces = made(0, days, climate)
    assert traces.markets == tuple(sorted(ON_DEMAND))
    for market, trace in traces.items():
        assert trace.times_s[0] == START_S
        assert trace.times_s[-1] <= START_S + days * DAY_S
        assert (trace.prices_micros % PRICE_STEP_MICROS == 0).all()
        assert (trace.prices_micros > 0).all()
        assert (trace.prices_micros <= 10 * ON_DEMAND[market]).all()
        same = np.diff(trace.prices_micros) == 0
        if isinstance(climate, AuctionClimate):
            again_s = trace.times_s[1:][same]
            assert (np.diff(again_s) > DAY_S / 2).all(), "a price that stands is told again once a day"
            assert np.diff(trace.times_s).max(initial=0) < 1.1 * DAY_S
        else:
            assert not same.any(), "an event is a change"


def test_most_of_the_time_a_market_stands_at_a_fraction_of_on_demand_and_is_calm(spiking: TraceSet) -> None:
    levels = []
    for market in spiking:
        prices = every_minute(spiking, market) / ON_DEMAND[market]
        levels.append(float(np.median(prices)))
        assert np.mean(np.abs(prices / levels[-1] - 1) < 0.25) > 0.75
    assert 0.08 < min(levels) < max(levels) < 0.30


def test_now_and_then_a_market_leaps_above_on_demand_for_minutes_to_hours(spiking: TraceSet) -> None:
    leaps = 0
    for market in spiking:
        above = every_minute(spiking, market) > ON_DEMAND[market]
        turns = np.flatnonzero(np.diff(above.astype(int)))
        leaps += len(turns) // 2
        assert above.mean() < 0.2
    assert 30 < leaps < 1000


def test_markets_move_on_their_own(spiking: TraceSet) -> None:
    prices = np.array([np.log(every_minute(spiking, market)) for market in spiking])
    apart = np.corrcoef(prices) - np.eye(len(prices))
    assert np.abs(apart).max() < 0.25


@pytest.mark.skipif("PROTEUS_TRACES" not in os.environ, reason="PROTEUS_TRACES names no folder of real price files")
def test_bids_are_taken_about_as_often_as_on_the_real_markets(typical: TraceSet) -> None:
    real = read_prices(Path(os.environ["PROTEUS_TRACES"]) / "us-east-1-2016-spring.csv.gz")
    betas = [fit(traces, traces.first_s, traces.last_s).grid(traces.markets)[0] for traces in (real, typical)]
    assert np.abs(betas[0].mean(axis=0) - betas[1].mean(axis=0)).max() < 0.15


def test_spikes_that_would_overlap_leave_no_gap() -> None:
    climate = replace(LIVELY, spike_every_s=600.0, spike_s=(900.0, 20_000.0))
    for market, trace in made(0, 2, climate).items():
        first = int((trace.prices_micros > ON_DEMAND[market]).argmax())
        assert (trace.prices_micros[first:] > ON_DEMAND[market]).all()
        assert np.diff(trace.times_s[first:]).mean() < 700


# The lively market: two hours after 14 days of history


def evictions_s(traces: TraceSet, at_s: int, delta: int) -> dict[Market, float]:
    """Return how long a bid lives that is placed at `at_s` in each market that can be bought below on-demand."""
    lives = {}
    for market, trace in traces.items():
        price = trace.price_at(at_s)
        if price is not None and price <= ON_DEMAND[market]:
            taken_at_s = trace.first_above(price + delta, at_s)
            lives[market] = float("inf") if taken_at_s is None else taken_at_s - at_s
    return lives


@pytest.mark.parametrize("seed", range(6))
def test_in_a_lively_market_two_hours_rarely_pass_without_an_eviction(seed: int) -> None:
    traces = made(seed, 15 + 2 / 24, LIVELY)
    for delta in (HALF_A_CENT, FIVE_CENTS, HIGHEST):
        lives = evictions_s(traces, START_S + 14 * DAY_S, delta)
        assert len(lives) >= 5, "nearly all markets can be bought"
        assert sum(life <= 2 * HOUR_S for life in lives.values()) >= len(lives) - 1


def test_in_a_lively_market_about_half_of_all_hours_are_survived_by_any_bid(lively: TraceSet) -> None:
    table = fit(lively, START_S, START_S + 30 * DAY_S)
    betas = table.grid(table.markets)[0][:, DELTAS_MICROS.index(HIGHEST) - 10 :]
    assert 0.45 < betas.min() <= betas.max() < 0.57


def test_a_lively_market_hardly_moves_between_spikes(lively: TraceSet) -> None:
    smallest = fit(lively, START_S, START_S + 30 * DAY_S).grid(lively.markets)[0][:, 0]
    assert smallest.max() < 0.65


def test_regularity_is_what_makes_the_lively_market_lively(lively: TraceSet) -> None:
    """The same number of spikes without it leaves many stretches of two hours undisturbed."""
    erratic = made(0, 30, replace(LIVELY, spike_regularity=1.0))
    at = range(START_S, START_S + 29 * DAY_S, 7 * HOUR_S)
    quiet = {
        name: np.mean([life > 2 * HOUR_S for at_s in at for life in evictions_s(traces, at_s, HALF_A_CENT).values()])
        for name, traces in (("lively", lively), ("erratic", erratic))
    }
    assert quiet["lively"] < 0.1
    assert quiet["erratic"] > 0.25


# Rush hours: all at once


def test_in_rush_hours_all_markets_rise_together_and_stand_still_between() -> None:
    traces = made(0, 3, RUSH_HOURS)
    rises = {
        market: trace.times_s[1:][np.diff(trace.prices_micros) > ON_DEMAND[market]] for market, trace in traces.items()
    }
    first = min(rises.values(), key=lambda times_s: times_s[0])
    assert 40 < len(first) < 50, "every 95 minutes of three days"
    for market, times_s in rises.items():
        nearest = np.abs(times_s[:, None] - first).min(axis=1)
        assert nearest.max() < 480, market
        levels = traces[market].prices_micros[traces[market].prices_micros < ON_DEMAND[market]]
        assert len(np.unique(levels)) == 1, market
    assert np.diff(first).min() > 75 * 60


def test_each_market_has_its_own_moment_in_a_rush() -> None:
    traces = made(0, 1, RUSH_HOURS)
    firsts = [trace.first_above(ON_DEMAND[market], int(trace.times_s[0])) for market, trace in traces.items()]
    assert len(set(firsts)) == len(firsts)


# Bad input


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("base_share", (0.0, 0.2)),
        ("base_share", (0.3, 0.2)),
        ("spike_s", (60.0, float("inf"))),
        ("spike_height", (-1.0, 2.0)),
        ("reversion_s", 0.0),
        ("step_every_s", -1.0),
        ("busy_s", float("nan")),
        ("spike_every_s", float("inf")),
        ("spike_regularity", 0.0),
        ("noise", -0.1),
        ("calm_s", float("nan")),
        ("spike_spread", -1.0),
    ],
)
def test_a_climate_that_cannot_be_names_what_is_wrong(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        replace(SPIKING, **{name: value})


def test_a_market_needs_time_and_a_price() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="cannot last"):
        generate(ON_DEMAND, START_S, START_S, rng)
    with pytest.raises(ValueError, match=r"c4\.large/us-east-1a: the on-demand price is 0"):
        generate({Market("c4.large", "us-east-1a"): 0}, 0, DAY_S, rng)
    assert generate({}, 0, DAY_S, rng) == TraceSet({})


def test_a_quiet_market_has_prices_of_today():
    """They hardly move, and a bid of the on-demand price outlives them."""
    prices = {Market("c4.large", zone): 105_000 for zone in "abcdefgh"}
    for trace in generate(prices, 0, 30 * 86_400, np.random.default_rng(3), climate=QUIET).values():
        low, high = int(trace.prices_micros.min()), int(trace.prices_micros.max())
        assert 105_000 / 5 < low <= high < 105_000 / 2
        assert high - low < 0.03 * low
