"""Limits to train on, and whether the price rose above a limit within the hour."""

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.evictions.predictors.minute_features import prices_at
from proteus_spot.bidding.evictions.states import changes
from proteus_spot.bidding.jit import compiled
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Int64s, Trace

#: Range of the random distance of a limit above the price.
LEAST_DELTA_MICROS, MOST_DELTA_MICROS = 10, 200_000
#: Share of the smallest, and of the largest, changes that the mean leaves out.
_TRIMMED = 0.2


def random_limits(trace: Trace, at_s: Int64s, rng: np.random.Generator) -> Int64s:
    """Return limits above the price by a random delta in [0.00001, 0.2] dollars.

    Source: SpotTune (2020), section III-B; Tributary trains on them, and every predictor is asked for such limits.
    """
    return prices_at(trace, at_s) + rng.integers(LEAST_DELTA_MICROS, MOST_DELTA_MICROS + 1, size=len(at_s))


def border_limits(trace: Trace, at_s: Int64s) -> Int64s:
    """Return limits near the border between eviction and survival: the price plus its usual change.

    That is the mean absolute change of the hour before, without the smallest and the largest 20 % of its changes.

    Source: SpotTune (2020), Algorithm 2. Differs: the paper has one-minute records with interpolated prices, of which
    each differs from the one before; here the changes themselves are counted. In an hour without one, the hour up to
    the last change counts, so that a calm market is not learnt from bids of the price itself.
    """
    own = changes(trace)
    deltas = _usual_changes(own.times_s, np.abs(np.diff(own.prices_micros)), at_s)
    limits: Int64s = prices_at(trace, at_s) + np.maximum(deltas, LEAST_DELTA_MICROS)
    return limits


@compiled
def _usual_changes(times_s: Int64s, sizes: Int64s, at_s: Int64s) -> Int64s:
    """Return the trimmed mean change of the hour up to each moment; `sizes[i]` is the change at `times_s[i + 1]`."""
    usual = np.zeros(len(at_s), dtype=np.int64)
    for row in range(len(at_s)):
        last = np.searchsorted(times_s, at_s[row], side="right") - 1
        if last < 1:
            continue
        end_s = at_s[row] if times_s[last] > at_s[row] - HOUR_S else times_s[last]
        first = max(int(np.searchsorted(times_s, end_s - HOUR_S, side="right")), 1)
        ordered = np.sort(sizes[first - 1 : last])
        trimmed = int(_TRIMMED * len(ordered))
        usual[row] = round(ordered[trimmed : len(ordered) - trimmed].mean())
    return usual


def is_passed(trace: Trace, at_s: Int64s, limit_micros: Int64s) -> NDArray[np.bool_]:
    """Return whether the price is above each limit at its moment or less than an hour later.

    The trace must last for an hour after each moment.
    """
    first = np.searchsorted(trace.times_s, at_s, side="right")
    end = np.searchsorted(trace.times_s, at_s + HOUR_S, side="left")
    highest = np.maximum(_range_maxima(trace.prices_micros, np.maximum(first - 1, 0), end), prices_at(trace, at_s))
    return np.asarray(highest > limit_micros)


def _range_maxima(values: Int64s, first: Int64s, end: Int64s) -> Int64s:
    """Return the maximum of `values[first:end]` of each range; none may be empty.

    The maxima of all ranges of a power of two are tabulated; any range is covered by two of those.
    """
    level = np.frexp(end - first)[1] - 1
    tables = [values]
    for power in range(int(level.max(initial=0))):
        width = 1 << power
        tables.append(np.append(np.maximum(tables[-1][:-width], tables[-1][width:]), tables[-1][-width:]))
    table = np.stack(tables)
    maxima: Int64s = np.maximum(table[level, first], table[level, end - (1 << level)])
    return maxima
