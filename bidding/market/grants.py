"""Grants and evictions of bids by price, as in the bid era.

A one-shot request is granted if a price is known at that moment and is not above the bid. The machines are taken at the
first later event whose price is above it; a price that equals the bid takes nothing.

*Source*: Proteus (EuroSys 2017), section 2.2.
"""

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.jit import compiled
from proteus_spot.bidding.market.traces import Int64s, Trace

#: Later than anything that happens.
NEVER_S = int(np.iinfo(np.int64).max)

#: log2 of the number of events whose highest price is stored, so that a search can skip them.
_BLOCK_BITS = 6
_BLOCK = 1 << _BLOCK_BITS


def granted(trace: Trace, bids_micros: Int64s, at_s: Int64s) -> NDArray[np.bool_]:
    """Return whether each bid is granted at its moment; shapes (n,)."""
    events = np.searchsorted(trace.times_s, at_s, side="right") - 1
    found: NDArray[np.bool_] = (events >= 0) & (trace.prices_micros[events] <= bids_micros)
    return found


def taken_at(trace: Trace, bids_micros: Int64s, after_s: Int64s, before_s: Int64s) -> Int64s:
    """Return when the price first passes each bid in the open interval (after_s, before_s); `NEVER_S` if it does not.

    Parameters
    ----------
    bids_micros, after_s, before_s : shape (n,) each.
    """
    prices = trace.prices_micros
    padded = np.zeros(-(-len(prices) // _BLOCK) * _BLOCK, dtype=np.int64)
    padded[: len(prices)] = prices
    highest = padded.reshape(-1, _BLOCK).max(axis=1)
    firsts = np.searchsorted(trace.times_s, after_s, side="right")
    found: Int64s = _first_above(trace.times_s, prices, highest, bids_micros, firsts, before_s)
    return found


@compiled
def _first_above(
    times_s: Int64s, prices_micros: Int64s, highest: Int64s, bids_micros: Int64s, firsts: Int64s, before_s: Int64s
) -> Int64s:
    """Return the time of the first event from `firsts` on that is above each bid, and before its limit."""
    found = np.full(len(bids_micros), NEVER_S, dtype=np.int64)
    for row in range(len(bids_micros)):
        event = firsts[row]
        while event < len(times_s) and times_s[event] < before_s[row]:
            if event % _BLOCK == 0 and highest[event >> _BLOCK_BITS] <= bids_micros[row]:
                event += _BLOCK
            elif prices_micros[event] > bids_micros[row]:
                found[row] = times_s[event]
                break
            else:
                event += 1
    return found
