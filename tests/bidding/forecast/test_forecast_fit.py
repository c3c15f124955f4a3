"""Learning: chances that are known are found again, and what comes after the window is not looked at."""

import numpy as np
import pytest

from proteus_spot.bidding.forecast import features_of, fit_forecast
from proteus_spot.bidding.forecast.forecast_model import HORIZONS_S, SHARES
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, InstanceType, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet

A, B, STRANGER = Market("small", "a"), Market("small", "b"), Market("unknown", "a")
TYPES = {"small": InstanceType("small", 2, 4.0, 100_000)}
UNTIL_S = 20 * DAY_S
#: A spike of a minute passes every bid; one comes this often on average, at any moment as likely as at any other.
MEAN_S = 2 * HOUR_S


def spikes(seed: int, until_s: int = UNTIL_S) -> Trace:
    """Return a price of 2 cents with spikes to 9 cents that nothing foretells."""
    rng = np.random.default_rng(seed)
    begins = np.cumsum(60 + rng.exponential(MEAN_S, 2 * until_s // MEAN_S).astype(np.int64))
    begins = begins[begins < until_s - 60]
    times = np.append(0, np.stack([begins, begins + 60], axis=1).ravel())
    return Trace(times, np.append(20_000, np.tile([90_000, 20_000], len(begins))))


def test_chances_that_nothing_foretells_are_found() -> None:
    foresight = fit_forecast(TraceSet({A: spikes(1), B: spikes(2)}), TYPES, 0, UNTIL_S)
    assert foresight is not None
    survives = [np.exp(-within_s / MEAN_S) for within_s in HORIZONS_S]
    useful_s = HOUR_S * (1 - survives[-1]) * MEAN_S / HOUR_S  # ∫ exp(-t / mean) dt over the hour
    calm = features_of(TraceSet({A: Trace(np.array([0]), np.array([20_000]))}), 5 * HOUR_S)[A]
    for delta in range(len(SHARES)):
        beta, useful = foresight.outlook(calm.features(100_000), delta)
        assert beta == pytest.approx(1 - survives[-1], abs=0.05)
        assert useful == pytest.approx(useful_s, rel=0.04)


def test_a_bid_that_is_never_passed_has_a_low_chance() -> None:
    """A price that goes up by a twentieth, and down again, passes bids of 0 and 3 % above its low, and no others."""
    times = np.arange(0, 14 * DAY_S, 1800)
    steps = Trace(times, np.where(np.arange(len(times)) % 2, 21_000, 20_000))
    foresight = fit_forecast(TraceSet({A: steps}), TYPES, 0, 14 * DAY_S)
    assert foresight is not None
    low = features_of(TraceSet({A: steps}), int(times[-2]) + 600)[A].features(100_000)
    high = features_of(TraceSet({A: steps}), int(times[-1]) + 600)[A].features(100_000)
    assert [foresight.outlook(low, delta)[0] > 0.5 for delta in range(5)] == [True, True, False, False, False]
    assert max(foresight.outlook(high, delta)[0] for delta in range(5)) < 0.5


def test_what_comes_after_the_window_is_not_looked_at() -> None:
    until_s = 10 * DAY_S
    whole = TraceSet({A: spikes(1), B: spikes(2)})
    known = whole.between(0, until_s)
    assert fit_forecast(whole, TYPES, 0, until_s) == fit_forecast(known, TYPES, 0, until_s)
    assert fit_forecast(whole, TYPES, 0, until_s) != fit_forecast(whole, TYPES, 0, 2 * until_s)


def test_a_market_of_an_unknown_type_teaches_nothing() -> None:
    traces = {A: spikes(1, 7 * DAY_S)}
    alone = fit_forecast(TraceSet(traces), TYPES, 0, 7 * DAY_S)
    assert fit_forecast(TraceSet({**traces, STRANGER: spikes(3)}), TYPES, 0, 7 * DAY_S) == alone


def test_without_an_hour_that_began_at_on_demand_or_below_there_is_nothing_to_learn() -> None:
    dear = TraceSet({A: Trace(np.array([0]), np.array([100_001]))})
    at_par = TraceSet({A: Trace(np.array([0]), np.array([100_000]))})
    assert fit_forecast(dear, TYPES, 0, DAY_S) is None
    assert fit_forecast(at_par, TYPES, 0, DAY_S) is not None
    assert fit_forecast(at_par, TYPES, 0, HOUR_S - 1) is None
    assert fit_forecast(at_par, TYPES, -2 * DAY_S, -1) is None
    assert fit_forecast(TraceSet({}), TYPES, 0, DAY_S) is None
