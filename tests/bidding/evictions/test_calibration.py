"""Calibration: held against a walk over every forecast, and on a market whose law is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.evictions.calibration import N_BINS, block_se, calibrate, gain
from proteus_spot.bidding.evictions.fit_conditioned import fit_conditioned
from proteus_spot.bidding.evictions.fit_survival import fit_survival
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import Trace, TraceSet
from tests.bidding.evictions.naive import DELTAS, MARKET, OTHER, grants, life, trace, traces, two_state_market

DAY_S = 86_400


@settings(deadline=None, max_examples=15)
@given(found=traces(120_000, most=25), conditioned=st.booleans(), horizon=st.sampled_from([1, 600, 900, 3600]))
def test_scores_are_what_a_walk_over_the_forecasts_finds(found: Trace, conditioned: bool, horizon: int) -> None:
    prices, fit = TraceSet({MARKET: found}), fit_conditioned if conditioned else fit_survival
    model, window = fit(prices, TimeWindow(0, 50_000)), TimeWindow(50_000, 50_000 + 12_000)
    (told,) = calibrate(model, prices, window, horizons_s=[horizon], deltas_micros=DELTAS)
    errors, bins, came, forecasts = 0.0, np.zeros(N_BINS), 0, 0
    for at_s in grants(found, window.from_s, window.until_s) if MARKET in model.markets else ():
        for column, delta in enumerate(DELTAS):
            state = model.states(MARKET, found, [at_s], DELTAS)[0, column]
            chance = 1 - float(model.survival(MARKET, delta, horizon, state))
            taken = life(found, delta, at_s) < horizon
            errors += (chance - taken) ** 2
            bins[min(int(chance * N_BINS), N_BINS - 1)] += 1
            came += taken
            forecasts += 1
    assert told.forecasts == forecasts
    assert told.counts.sum(axis=0).tolist() == bins.tolist()
    if forecasts:
        assert told.brier == pytest.approx(errors / forecasts, abs=1e-9)
        assert told.base_rate == pytest.approx(came / forecasts)
        assert told.brier_by_delta.mean() == pytest.approx(told.brier), "as many of each"
        assert told.bias == pytest.approx(told.predicted.sum() / forecasts - told.base_rate)
    else:
        assert np.isnan([told.brier, told.base_rate, told.bias, told.brier_se]).all()


def test_a_right_model_lies_on_the_diagonal_and_a_wrong_one_does_not() -> None:
    """Calm and storm, each without memory: what is known now is all that there is to know."""
    prices = two_state_market(np.random.default_rng(1), 120 * DAY_S, 7200, 1800)
    learnt, later = TimeWindow(0, 60 * DAY_S), TimeWindow(60 * DAY_S, 120 * DAY_S)
    plain, knowing = fit_survival(prices, learnt), fit_conditioned(prices, learnt)
    (unconditioned,), (conditioned,) = (
        calibrate(model, prices, later, horizons_s=[HOUR_S], deltas_micros=(100, 10_000)) for model in (plain, knowing)
    )
    # A bid is placed in calm with probability 0.8, and then taken within the hour with 1 - exp(-1/2); never in storm.
    rate = 0.8 * (1 - np.exp(-0.5))
    assert unconditioned.base_rate == pytest.approx(rate, abs=0.02)
    assert abs(unconditioned.bias) < 0.02
    assert unconditioned.brier == pytest.approx(rate * (1 - rate), abs=0.01)
    assert conditioned.calibration_error < 0.05
    assert conditioned.brier == pytest.approx(0.8 * np.exp(-0.5) * (1 - np.exp(-0.5)), abs=0.01)
    better, se = gain(unconditioned, conditioned)
    assert better > 4 * se > 0
    stormy = fit_survival(two_state_market(np.random.default_rng(2), 60 * DAY_S, 900, 900), learnt)
    (wrong,) = calibrate(stormy, prices, later, horizons_s=[HOUR_S], deltas_micros=(100, 10_000))
    assert wrong.calibration_error > 0.1
    assert wrong.bias > 0.1
    assert gain(unconditioned, wrong)[0] < 0


def test_a_curve_has_the_bins_that_were_met() -> None:
    prices = TraceSet({MARKET: trace((0, 20_000), (3 * HOUR_S, 90_000))})
    model = fit_survival(prices, TimeWindow(0, 2 * HOUR_S))  # nothing was ever taken
    (told,) = calibrate(model, prices, TimeWindow(2 * HOUR_S, 4 * HOUR_S), horizons_s=[HOUR_S], deltas_micros=(0, 100))
    predicted, observed, counts = told.curve()
    assert (predicted.tolist(), counts.tolist()) == ([0.0], [122])
    assert observed.tolist() == [pytest.approx(59 / 61)]
    assert told.brier == pytest.approx(59 / 61)
    record = told.to_json()
    assert record["reliability"] == [{"predicted": 0.0, "observed": pytest.approx(59 / 61), "forecasts": 122}]
    assert [row["delta_micros"] for row in record["brier_by_delta"]] == [0, 100]


def test_an_eviction_on_the_horizon_is_not_one_within_it() -> None:
    prices = TraceSet({MARKET: trace((0, 20_000), (3 * HOUR_S, 90_000))})
    model = fit_survival(prices, TimeWindow(0, 2 * HOUR_S))
    for told, minutes in zip(
        calibrate(model, prices, TimeWindow(2 * HOUR_S, 4 * HOUR_S), deltas_micros=[0]), (14, 59), strict=True
    ):
        assert told.observed.sum() == minutes


def test_markets_that_the_model_does_not_know_are_left_out() -> None:
    model = fit_survival(TraceSet({MARKET: trace((0, 20_000))}), TimeWindow(0, 2 * HOUR_S))
    both = TraceSet({MARKET: trace((0, 20_000)), OTHER: trace((0, 20_000))})
    told = calibrate(model, both, TimeWindow(2 * HOUR_S, 4 * HOUR_S))
    assert [each.horizon_s for each in told] == [900, 3600]
    assert told[0].markets == (MARKET,)
    assert told[0].forecasts == 61 * 25


def test_scores_of_different_bids_are_not_compared() -> None:
    prices = TraceSet({MARKET: trace((0, 20_000))})
    model = fit_survival(prices, TimeWindow(0, 2 * HOUR_S))
    one, other = (
        calibrate(model, prices, TimeWindow(0, 2 * HOUR_S)),
        calibrate(model, prices, TimeWindow(0, 3 * HOUR_S)),
    )
    assert gain(one[0], one[0])[0] == 0
    for second in (one[1], other[0]):
        with pytest.raises(ValueError, match="the same bids"):
            gain(one[0], second)


@pytest.mark.parametrize("horizon", [0, 3601])
def test_a_horizon_beyond_the_hour_is_refused(horizon: int) -> None:
    model = fit_survival(TraceSet({MARKET: trace((0, 20_000))}), TimeWindow(0, 7200))
    with pytest.raises(ValueError, match="at most an hour"):
        calibrate(model, TraceSet({}), TimeWindow(0, 7200), horizons_s=[horizon])


def test_the_standard_error_of_equal_blocks_is_that_of_their_mean() -> None:
    means = np.array([1.0, 3.0, 2.0, 6.0])
    assert block_se(7 * means, np.full(4, 7)) == pytest.approx(means.std(ddof=1) / 2)
    assert np.isnan(block_se(np.array([3.0, 0.0]), np.array([1, 0])))
