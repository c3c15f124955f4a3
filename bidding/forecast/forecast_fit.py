"""Fit of a forecast: penalised logistic regression on step functions, by Newton's method."""

from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.forecast.features import FEATURES, features, price_history_of, signal
from proteus_spot.bidding.forecast.forecast_model import HORIZONS_S, SHARES, Forecast, Weights
from proteus_spot.bidding.jit import compiled
from proteus_spot.bidding.market.model import HOUR_S, InstanceType
from proteus_spot.bidding.market.traces import Int64s, TraceSet

Floats = NDArray[np.float64]

#: Seconds between two sample bids: closer ones add almost no information.
_STEP_S = 600
#: Number of bins of a feature, with equal numbers of bids.
_BINS = 16
#: The ridge. Bids of one afternoon are not independent: a weight must be supported by some thousands of them.
_PENALTY = 2000.0
_ROUNDS = 25
_TOLERANCE = 1e-6


def fit_forecast(traces: TraceSet, types: Mapping[str, InstanceType], from_s: int, until_s: int) -> Forecast | None:
    """Return the forecast fitted to the prices of [from_s, until_s]; None if no bid is possible in it.

    A bid is placed every ten minutes of the window that have an hour of it before them, in each market that has a known
    type and stands no higher than on-demand. All markets are one sample: a signal is assumed to mean the same in each.

    Notes
    -----
    For each bid delta and horizon, log-odds of being taken within it are a sum of one step function a feature, with a
    ridge on all but the intercept.
    """
    examples = [
        _bids(*price_history_of(trace), types[market.instance_type].on_demand_micros, from_s, until_s)
        for market, trace in traces.items()
        if market.instance_type in types
    ]
    values = np.concatenate([x for x, _ in examples]) if examples else np.empty((0, FEATURES))
    if not len(values):
        return None
    after_s = np.concatenate([taken for _, taken in examples])
    quantiles = np.linspace(0, 1, _BINS + 1)[1:-1]
    edges = np.full((FEATURES, _BINS - 1), np.inf)
    bins = np.empty((len(values), FEATURES), dtype=np.int64)
    for feature in range(FEATURES):
        own = np.unique(np.quantile(values[:, feature], quantiles))
        edges[feature, : len(own)] = own
        bins[:, feature] = np.searchsorted(own, values[:, feature], side="right")
    intercepts = np.empty((len(SHARES), len(HORIZONS_S)))
    weights = np.empty((len(SHARES), len(HORIZONS_S), FEATURES, _BINS))
    for delta in range(len(SHARES)):
        for horizon, within_s in enumerate(HORIZONS_S):
            found = _regress(bins, after_s[:, delta] < within_s)
            intercepts[delta, horizon], weights[delta, horizon] = found[0], found[1:].reshape(FEATURES, _BINS)
    return Forecast(Weights(np.array(SHARES), np.array(HORIZONS_S, dtype=np.float64), edges, intercepts, weights))


def _regress(bins: Int64s, taken: NDArray[np.bool_]) -> Floats:
    """Return intercept and weights, shape (1 + FEATURES * _BINS,), that minimise the penalised deviance."""
    share = np.clip(taken.mean(), 1e-6, 1 - 1e-6)
    found = np.zeros(1 + FEATURES * _BINS)
    found[0] = np.log(share / (1 - share))
    penalty = np.full(len(found), _PENALTY)
    penalty[0] = 1e-6
    for _ in range(_ROUNDS):
        slope, curve = _normal_equations(bins, taken, found, _BINS)
        step = _solve(curve + np.diag(penalty), slope - penalty * found)
        found += step
        if np.abs(step).max() < _TOLERANCE:
            break
    return found


@compiled
def _normal_equations(bins: Int64s, taken: NDArray[np.bool_], found: Floats, each: int) -> tuple[Floats, Floats]:
    """Return gradient and curvature of the log-likelihood at `found`."""
    size = len(found)
    count = bins.shape[1]
    slope, curve = np.zeros(size), np.zeros((size, size))
    at = np.zeros(count + 1, dtype=np.int64)  # the columns that are 1 in this row; the first is the intercept
    for row in range(len(bins)):
        odds = found[0]
        for feature in range(count):
            at[feature + 1] = 1 + feature * each + bins[row, feature]
            odds += found[at[feature + 1]]
        chance = 1.0 / (1.0 + np.exp(-odds))
        error = (1.0 if taken[row] else 0.0) - chance
        weight = chance * (1.0 - chance)
        for one in range(count + 1):
            slope[at[one]] += error
            for other in range(one + 1):
                curve[at[one], at[other]] += weight
    for one in range(size):
        for other in range(one):
            curve[other, one] = curve[one, other]
    return slope, curve


@compiled
def _solve(curve: Floats, slope: Floats) -> Floats:
    """Return x of ``curve @ x = slope``; `curve` is positive definite, and is overwritten by its Cholesky factor.

    A hundred unknowns are too few for a linear algebra library's threads, which wait for one another on a busy machine.
    """
    size = len(slope)
    found = slope.copy()
    for row in range(size):
        for column in range(row + 1):
            rest = curve[row, column]
            for k in range(column):
                rest -= curve[row, k] * curve[column, k]
            curve[row, column] = np.sqrt(rest) if row == column else rest / curve[column, column]
        for k in range(row):
            found[row] -= curve[row, k] * found[k]
        found[row] /= curve[row, row]
    for row in range(size - 1, -1, -1):
        for k in range(row + 1, size):
            found[row] -= curve[k, row] * found[k]
        found[row] /= curve[row, row]
    return found


# Not cached: numba would not see a change of `signal` in its own file.
@partial(compiled, cache=False)
def _bids(
    times_s: Int64s, micros: Int64s, areas: Int64s, rises: Int64s, on_demand: int, from_s: int, until_s: int
) -> tuple[Floats, Int64s]:
    """Return the features of the bids, shape (bids, FEATURES), and the seconds until each delta's bid is taken.

    An hour stands for later.
    """
    most = max((until_s - HOUR_S - from_s) // _STEP_S + 1, 0)
    values, after_s = np.empty((most, FEATURES)), np.empty((most, len(SHARES)), dtype=np.int64)
    fields = np.empty(FEATURES)
    index, found = -1, 0
    for step in range(most):
        now_s = from_s + step * _STEP_S
        while index + 1 < len(times_s) and times_s[index + 1] <= now_s:
            index += 1
        if index < 0 or micros[index] > on_demand:
            continue
        signal(times_s, micros, areas, rises, 0, index, now_s, fields)
        features(fields, on_demand, values[found])
        for delta in range(len(SHARES)):
            bid = micros[index] + int(SHARES[delta] * micros[index])
            after_s[found, delta] = HOUR_S
            later = index + 1
            while later < len(times_s) and times_s[later] - now_s < HOUR_S:
                if micros[later] > bid:
                    after_s[found, delta] = times_s[later] - now_s
                    break
                later += 1
        found += 1
    return values[:found], after_s[:found]
