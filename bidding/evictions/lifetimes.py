"""Lifetimes of all bids in a price history, and survival curves of their counts.

A *grant* is a bid placed at a moment, some delta above the price of that moment. It is taken at the first later event
whose price is above it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.evictions.curves import Float64s
from proteus_spot.bidding.jit import compiled
from proteus_spot.bidding.market.model import HOUR_S, MINUTE_S
from proteus_spot.bidding.market.traces import Int64s, Trace

Int32s = NDArray[np.int32]

#: Lifetime of a bid that was not taken while it was observed.
NEVER_S = int(np.iinfo(np.int32).max)


def grants_s(trace: Trace, from_s: int, until_s: int, highest_micros: int | None = None) -> Int64s:
    """Return the minutes of [from_s, until_s] at which a price is known and after which a whole hour is left.

    Minutes are counted from `from_s`, so that the moments are the same in all markets. With `highest_micros`, only
    those at which the price is not above it.
    """
    unknown = max(int(trace.times_s[0]) - from_s, 0)
    first_s = from_s + -(-unknown // MINUTE_S) * MINUTE_S
    moments = np.arange(first_s, until_s - HOUR_S + 1, MINUTE_S, dtype=np.int64)
    if highest_micros is None:
        return moments
    prices = trace.prices_micros[np.searchsorted(trace.times_s, moments, side="right") - 1]
    return moments[prices <= highest_micros]


def lifetimes_s(trace: Trace, deltas_micros: Int64s, at_s: Int64s, until_s: int, longest_s: int) -> Int32s:
    """Return the lifetime in seconds of each bid placed at `at_s`, shape (moments, deltas).

    A bid is observed for less than `longest_s`, and until `until_s` at most; `NEVER_S` if it was not taken until then.

    Parameters
    ----------
    deltas_micros : shape (deltas,), rising, not negative.
    at_s : shape (moments,), rising; a price is known at each.
    """
    return _lifetimes(trace.times_s, trace.prices_micros, deltas_micros, at_s, until_s, longest_s)


@compiled
def _lifetimes(
    times_s: Int64s, prices: Int64s, deltas_micros: Int64s, at_s: Int64s, until_s: int, longest_s: int
) -> Int32s:
    # The first event above a bid is one that is higher than all since: it lies on the chain of ever higher events.
    higher = np.empty(len(times_s), dtype=np.int64)
    for event in range(len(times_s) - 1, -1, -1):
        following = event + 1
        while following < len(times_s) and prices[following] <= prices[event]:
            following = higher[following]
        higher[event] = following
    lives = np.full((len(at_s), len(deltas_micros)), NEVER_S, dtype=np.int32)
    now = -1
    for grant in range(len(at_s)):
        while now + 1 < len(times_s) and times_s[now + 1] <= at_s[grant]:
            now += 1
        before_s = min(at_s[grant] + longest_s, until_s)
        standing = 0  # the lowest delta that is not taken yet
        event = higher[now]
        while event < len(times_s) and times_s[event] < before_s and standing < len(deltas_micros):
            while standing < len(deltas_micros) and prices[event] > prices[now] + deltas_micros[standing]:
                lives[grant, standing] = times_s[event] - at_s[grant]
                standing += 1
            event = higher[event]
    return lives


@compiled
def survivors(
    lives: Int32s, states: NDArray[Any], left_s: Int64s, horizons_s: Int64s, n_states: int
) -> tuple[Int64s, Int64s]:
    """Return the number of grants observed for each horizon, and how many of these were taken before it.

    Parameters
    ----------
    lives : shape (grants, deltas), from `lifetimes_s`.
    states : shape (grants, deltas), the state of each.
    left_s : shape (grants,), from each to the end of the window, not less than `horizons_s[0]`.

    Returns
    -------
    seen, taken : each of shape (n_states, deltas, horizons)
        A grant is observed for each horizon that ends in the window.
    """
    grants, deltas = lives.shape
    horizons = len(horizons_s)
    seen = np.zeros((n_states, deltas, horizons), dtype=np.int64)
    taken = np.zeros((n_states, deltas, horizons), dtype=np.int64)
    for grant in range(grants):
        last = np.searchsorted(horizons_s, left_s[grant], side="right") - 1
        for delta in range(deltas):
            state = states[grant, delta]
            seen[state, delta, last] += 1
            life = lives[grant, delta]
            if life != NEVER_S:
                first = np.searchsorted(horizons_s, life, side="right")  # the first horizon that it did not see
                if first <= last:
                    taken[state, delta, first] += 1
                    if last + 1 < horizons:
                        taken[state, delta, last + 1] -= 1
    for state in range(n_states):
        for delta in range(deltas):
            for horizon in range(1, horizons):
                taken[state, delta, horizon] += taken[state, delta, horizon - 1]
            for horizon in range(horizons - 2, -1, -1):
                seen[state, delta, horizon] += seen[state, delta, horizon + 1]
    return seen, taken


def shares(seen: Int64s, taken: Int64s, horizons_s: Int64s) -> Float64s:
    """Return the survival curves of counts, shape (…, horizons).

    Each point is a share of the grants observed for its horizon; as these differ near the end of the window, a curve is
    its running minimum. Beyond the last horizon with any grant, the mean hazard up to there continues.
    """
    lived = 1 - taken / np.maximum(seen, 1)
    last = np.maximum((seen > 0).sum(axis=-1, keepdims=True) - 1, 0)
    lived = np.minimum.accumulate(np.where(seen > 0, lived, 1.0), axis=-1)
    end = np.take_along_axis(lived, last, axis=-1)
    exponent = horizons_s / np.maximum(horizons_s[last], 1)
    return np.where(seen > 0, lived, np.power(end, exponent))
