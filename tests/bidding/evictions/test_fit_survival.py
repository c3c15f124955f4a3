"""`survival` and the states, held against a walk over every bid; `conditioned`, by what must be true of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.evictions.base import beta
from proteus_spot.bidding.evictions.curve_model import CurveModel
from proteus_spot.bidding.evictions.curves import BID_DELTAS_MICROS, HOUR
from proteus_spot.bidding.evictions.fit_conditioned import Conditions, fit_conditioned
from proteus_spot.bidding.evictions.fit_survival import fit_survival
from proteus_spot.bidding.evictions.lifetimes import NEVER_S, grants_s, lifetimes_s
from proteus_spot.bidding.evictions.states import Bins, states_at
from proteus_spot.bidding.evictions.table import fit
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Trace, TraceSet
from tests.bidding.evictions.naive import (
    BINS,
    DELTAS,
    MARKET,
    OTHER,
    curve,
    grants,
    life,
    state,
    trace,
    traces,
    two_state_market,
)

SLOW = settings(deadline=None, max_examples=25)
DAY_S = 86_400
UNCONDITIONED = Conditions(levels=(), ages_s=(), aboves_s=())


@SLOW
@given(found=traces(100_000), from_s=st.integers(-90, 4000), span_s=st.integers(0, 30_000))
def test_bids_live_as_long_as_a_walk_finds(found: Trace, from_s: int, span_s: int) -> None:
    until_s = from_s + span_s
    at_s = grants_s(found, from_s, until_s)
    assert at_s.tolist() == grants(found, from_s, until_s)
    lives = lifetimes_s(found, np.array(DELTAS), at_s, until_s, 5000)
    for row, moment in zip(lives.tolist(), at_s.tolist(), strict=True):
        for lived, delta in zip(row, DELTAS, strict=True):
            walked = life(found, delta, moment)
            assert lived == (walked if walked < min(5000, until_s - moment) else NEVER_S)


@settings(deadline=None, max_examples=6)  # long walks
@given(found=traces(100_000), from_s=st.integers(-90, 4000), span_s=st.sampled_from([3600, 9000, 40_000, 95_000]))
def test_survival_is_what_a_walk_over_the_bids_finds(found: Trace, from_s: int, span_s: int) -> None:
    model = fit_survival(TraceSet({MARKET: found}), TimeWindow(from_s, from_s + span_s), deltas_micros=DELTAS)
    if not grants(found, from_s, from_s + span_s):
        assert model.markets == ()
        return
    picked = [0, 1, 17, 59, 60, 61, 67, 75, 79]
    horizons = model.curves.horizons_s[picked].tolist()
    for column, delta in enumerate(DELTAS):
        walked = curve(found, delta, from_s, from_s + span_s, model.curves.horizons_s.tolist())
        lived = model.curves.survival[0, 0, column]
        assert lived[picked].tolist() == pytest.approx([walked[index] for index in picked], abs=1e-12), horizons
    assert (model.grants == len(grants(found, from_s, from_s + span_s))).all()


@SLOW
@given(found=traces(40_000), from_s=st.integers(-90, 4000), span_s=st.integers(3600, 30_000))
def test_within_the_hour_survival_says_what_the_papers_table_does(found: Trace, from_s: int, span_s: int) -> None:
    window = TimeWindow(from_s, from_s + span_s)
    model, table = (
        fit_survival(TraceSet({MARKET: found}), window),
        fit(TraceSet({MARKET: found}), from_s, window.until_s),
    )
    assert model.markets == table.markets
    for market in model.markets:
        expected = [table.lookup(market, index)[0] for index in range(25)]
        assert beta(model, market, BID_DELTAS_MICROS[1:]).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("until_s", "longest_s", "lived"),
    [(9000, 5001, 5000), (9000, 5000, NEVER_S), (5001, 9000, 5000), (5000, 9000, NEVER_S)],
)
def test_a_life_that_ends_with_what_is_looked_at_is_not_seen_to_end(until_s: int, longest_s: int, lived: int) -> None:
    found = trace((0, 20_000), (5000, 90_000))
    assert lifetimes_s(found, np.array([100]), np.array([0]), until_s, longest_s).tolist() == [[lived]]


def test_only_minutes_at_or_below_the_highest_price_are_grants() -> None:
    found = trace((0, 20_000), (600, 90_000), (1200, 20_000))
    assert len(grants_s(found, 0, 2 * HOUR_S)) == 61
    assert len(grants_s(found, 0, 2 * HOUR_S, 20_000)) == 51


def test_nothing_after_the_window_is_looked_at() -> None:
    prices = TraceSet({MARKET: trace((0, 20_000), (5000, 80_000), (90_000, 20_000), (100_001, 900_000))})
    window = TimeWindow(0, 100_000)
    for learn in (fit_survival, fit_conditioned):
        assert learn(prices, window) == learn(prices.between(0, 100_000), window)


def test_conditions_see_the_day_before_the_window() -> None:
    spike = ((0, 20_000), (40_000, 300_000), (50_000, 20_000))
    with_spike, without = (TraceSet({MARKET: trace(*events)}) for events in (spike, spike[:1]))
    window = TimeWindow(60_000, 160_000)
    found, plain = (fit_conditioned(prices, window) for prices in (with_spike, without))
    assert not np.array_equal(found.grants, plain.grants)
    assert fit_survival(with_spike, window) == fit_survival(without, window)


# -- states


@SLOW
@given(
    found=traces(200_000, most=25), begin_s=st.integers(-100, 200_000), step_s=st.integers(1, 9000), seed=st.randoms()
)
def test_states_are_what_a_walk_finds_in_any_order(found: Trace, begin_s: int, step_s: int, seed) -> None:  # type: ignore[no-untyped-def]
    moments = list(range(begin_s, begin_s + 30 * step_s, step_s))
    for asked in (moments, seed.sample(moments, len(moments))):
        states = states_at(found, BINS, 0, np.array(DELTAS), np.array(asked))
        assert states.tolist() == [[state(found, BINS, delta, at_s) for delta in DELTAS] for at_s in asked]


def test_a_reissue_is_no_change_of_the_price() -> None:
    bins = Bins(np.empty((1, 0), np.int64), np.array([600]), np.empty(0, np.int64))
    told = states_at(
        trace((0, 20_000), (1000, 20_000), (2000, 21_000)), bins, 0, np.array([0]), np.array([500, 1100, 2100])
    )
    assert told.ravel().tolist() == [0, 1, 0]


def test_a_model_tells_states_for_deltas_in_any_order() -> None:
    found = TraceSet({MARKET: trace((0, 90_000), (40_000, 20_000), (80_000, 30_000))})
    model = fit_conditioned(found, TimeWindow(0, 200_000))
    one, other = (
        model.states(MARKET, found[MARKET], [50_000, 90_000], deltas) for deltas in ([0, 80_000], [80_000, 0])
    )
    assert one[:, ::-1].tolist() == other.tolist()
    assert one[0, 0] != one[0, 1], "the price was above the lower bid lately"
    assert model.states(MARKET, found[MARKET], [50_000], [-7]).tolist() == [[one[0, 0]]]
    assert model.states(OTHER, found[MARKET], [50_000], [0, 1]).tolist() == [[0, 0]]


# -- conditioned


def ordered(model: CurveModel) -> bool:
    """A longer time above the bid never makes it live longer."""
    levels, ages, aboves = model.bins.shape
    cube = model.curves.survival.reshape(len(model.markets), levels * ages, aboves, *model.curves.survival.shape[2:])
    return bool((np.diff(cube, axis=2) <= 0).all())


@SLOW
@given(found=traces(200_000, most=30), other=traces(200_000, most=30))
def test_of_two_bids_the_higher_lives_longer_in_every_state_and_moment(found: Trace, other: Trace) -> None:
    prices, window = TraceSet({MARKET: found, OTHER: other}), TimeWindow(0, 200_000)
    model = fit_conditioned(prices, window, {MARKET: 70_000})  # the model itself checks time and delta
    assert ordered(model)
    moments = np.arange(0, 200_000, 3571)
    for market in model.markets:
        states = model.states(market, prices[market], moments, BID_DELTAS_MICROS)
        lived = model.survival(market, np.array(BID_DELTAS_MICROS), HOUR_S, states)
        assert (np.diff(lived, axis=1) >= 0).all()


@SLOW
@given(found=traces(100_000, most=30), other=traces(100_000, most=30))
def test_with_one_state_conditioned_is_survival(found: Trace, other: Trace) -> None:
    prices, window = TraceSet({MARKET: found, OTHER: other}), TimeWindow(0, 100_000)
    model, plain = fit_conditioned(prices, window, conditions=UNCONDITIONED), fit_survival(prices, window)
    assert model.markets == plain.markets
    assert np.abs(model.curves.survival - plain.curves.survival).max(initial=0) < 1e-9
    assert np.array_equal(model.grants, plain.grants)


@SLOW
@given(found=traces(100_000, most=30))
def test_conditions_that_are_trusted_little_change_little(found: Trace) -> None:
    prices, window = TraceSet({MARKET: found}), TimeWindow(0, 100_000)
    doubtful = Conditions(pool_grants=1e15, own_grants=1e15)
    model, plain = fit_conditioned(prices, window, conditions=doubtful), fit_survival(prices, window)
    assert np.abs(model.curves.survival - plain.curves.survival).max(initial=0) < 1e-6


def test_conditions_that_are_trusted_wholly_are_the_shares_of_each_state() -> None:
    """Calm for ten hours, then a rise, each day: a bid of a calm hour lives the longer the younger the price."""
    events = [(day * DAY_S + at_s, price) for day in range(20) for at_s, price in ((0, 20_000), (36_000, 90_000))]
    conditions = Conditions(levels=(), ages_s=(32_400,), aboves_s=(), pool_grants=0, own_grants=0)
    window = TimeWindow(0, 20 * DAY_S)
    model = fit_conditioned(TraceSet({MARKET: trace(*events)}), window, conditions=conditions, deltas_micros=(100,))
    young, old = model.curves.survival[0, :, 0, HOUR]
    # Young: 540 minutes of calm and 540 of the dear price, of which none is taken. Old: 60 of calm, all but one of them
    # taken in less than an hour, and 300 of the dear price.
    assert young == 1.0
    assert old == pytest.approx(1 - 20 * 59 / (20 * 360 - 60), abs=2e-3)


def test_the_mean_over_the_states_is_the_unconditioned_share() -> None:
    prices = two_state_market(np.random.default_rng(3), 20 * DAY_S, 9000, 3000)
    window = TimeWindow(0, 20 * DAY_S)
    trusted = Conditions(pool_grants=0, own_grants=0, aboves_s=())
    model, plain = fit_conditioned(prices, window, conditions=trusted), fit_survival(prices, window)
    within = model.curves.horizons_s[: HOUR + 1]
    for delta in (0, 10_000, 200_000):
        assert model.survival(MARKET, delta, within) == pytest.approx(plain.survival(MARKET, delta, within), abs=1e-9)
    assert model.mean_curves(0)[0, HOUR] == pytest.approx(float(plain.survival(MARKET, 0, HOUR_S)), abs=1e-9)
    assert model.survival(MARKET, np.array([[0], [10_000]]), within).shape == (2, len(within))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"levels": (0.5, 0.5)}, "levels: must be above 0 and rise"),
        ({"levels": (0.5, 1.0)}, "quantiles below 1"),
        ({"ages_s": (0,)}, "ages_s: must be above 0"),
        ({"aboves_s": (9, 3)}, "aboves_s: must be above 0 and rise"),
        ({"own_grants": -1}, "must not be negative"),
        ({"pool_grants": float("nan")}, "must not be negative"),
    ],
)
def test_conditions_that_make_no_sense_are_refused(changes: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Conditions(**changes)


def test_a_window_without_a_market_gives_an_empty_model() -> None:
    prices = TraceSet({MARKET: trace((90_000, 20_000))})
    for learn in (fit_survival, fit_conditioned):
        model = learn(prices, TimeWindow(0, 7200))
        assert model.markets == ()
        assert CurveModel.from_record(model.header(), model.arrays()) == model
