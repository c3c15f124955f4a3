"""Present state of a market as a number, by which a conditioned model looks up its curve.

A state combines three binned values: the level of the price relative to the market's own past, the time since it last
changed, and the time of the last day that it spent above the bid. The last depends on the bid, so a state belongs to a
moment and a delta.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.jit import compiled
from proteus_spot.bidding.market.traces import Int64s, Trace

States = NDArray[np.int16]

#: Seconds over which the time above a bid is counted.
LATELY_S = 86_400


class Bins(NamedTuple):
    """Edges of the bins; a value that equals an edge is in the upper bin.

    Attributes
    ----------
    level_micros : shape (markets, levels - 1), rising along the last axis; prices.
    age_s : shape (ages - 1,), rising; seconds since the price last changed.
    above_s : shape (aboves - 1,), rising; seconds of the last `LATELY_S` in which the price was above the bid.
    """

    level_micros: Int64s
    age_s: Int64s
    above_s: Int64s

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of bins of each value; a state is (level * ages + age) * aboves + above."""
        return self.level_micros.shape[-1] + 1, len(self.age_s) + 1, len(self.above_s) + 1

    @property
    def n_states(self) -> int:
        """Number of states."""
        levels, ages, aboves = self.shape
        return levels * ages * aboves


def one_state(markets: int) -> Bins:
    """Return the bins of a model without conditions, which has one state."""
    return Bins(np.empty((markets, 0), np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


def changes(trace: Trace) -> Trace:
    """Return the trace without the events that repeat the price before them."""
    changed = np.append(True, np.diff(trace.prices_micros) != 0)
    return trace if changed.all() else Trace(trace.times_s[changed], trace.prices_micros[changed])


def states_at(trace: Trace, bins: Bins, market: int, deltas_micros: Int64s, at_s: Int64s) -> States:
    """Return the state at each moment for each delta, shape (moments, deltas).

    Parameters
    ----------
    trace : the market's prices; events after a moment are ignored for it.
    market : row of `bins.level_micros`.
    deltas_micros : shape (deltas,), rising, not negative.
    at_s : shape (moments,); quickest where they rise. Before the first price everything is in the lowest bin.
    """
    if bins.n_states == 1:
        return np.zeros((len(at_s), len(deltas_micros)), dtype=np.int16)
    own = changes(trace)
    return _states(
        own.times_s, own.prices_micros, bins.level_micros[market], bins.age_s, bins.above_s, deltas_micros, at_s
    )


@compiled
def _states(
    times_s: Int64s,
    prices: Int64s,
    level_micros: Int64s,
    age_s: Int64s,
    above_s: Int64s,
    deltas_micros: Int64s,
    at_s: Int64s,
) -> States:
    ages, aboves, deltas = len(age_s) + 1, len(above_s) + 1, len(deltas_micros)
    states = np.zeros((len(at_s), deltas), dtype=np.int16)
    # Seconds of the last day by the number of bids that the price was above.
    spent = np.zeros(deltas + 1, dtype=np.int64)
    before, asked_s, tail = -1, 0, 0  # event and moment of the row before; the event that held when its day began
    for row in range(len(at_s)):
        moment = at_s[row]
        now = np.searchsorted(times_s, moment, side="right") - 1
        if now < 0:
            before = -1
            continue
        if aboves > 1:
            begin_s = moment - LATELY_S
            if now == before and moment >= asked_s:
                # The same price: what leaves the day goes; what comes in is above no bid.
                at = max(asked_s - LATELY_S, times_s[tail])
                while tail < now and at < begin_s:
                    end = min(times_s[tail + 1], begin_s)
                    if end > at:
                        spent[np.searchsorted(deltas_micros, prices[tail] - prices[now], side="left")] -= end - at
                        at = end
                    if times_s[tail + 1] > begin_s:
                        break
                    tail += 1
            else:
                spent[:] = 0
                tail = now
                while tail > 0 and times_s[tail] > begin_s:
                    tail -= 1
                    seconds = times_s[tail + 1] - max(times_s[tail], begin_s)
                    spent[np.searchsorted(deltas_micros, prices[tail] - prices[now], side="left")] += seconds
            before, asked_s = now, moment
        level = np.searchsorted(level_micros, prices[now], side="right")
        age = np.searchsorted(age_s, moment - times_s[now], side="right")
        base = (level * ages + age) * aboves
        longer = 0
        for delta in range(deltas - 1, -1, -1):
            longer += spent[delta + 1]
            states[row, delta] = base + np.searchsorted(above_s, longer, side="right")
    return states
