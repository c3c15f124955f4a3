"""β of a bid of a fixed amount, independent of the price, as the standard strategy's."""

from collections.abc import Mapping

import numpy as np

from proteus_spot.bidding.evictions.lifetimes import grants_s
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import TraceSet


def eviction_prob(traces: TraceSet, bids_micros: Mapping[Market, Micros], from_s: int, until_s: int) -> float | None:
    """Return β of a bid of `bids_micros`, over all minutes of [from_s, until_s] at which any market would grant it.

    None if no market ever would. A minute counts only if a whole hour is left after it. Markets are weighted by their
    minutes.

    Parameters
    ----------
    bids_micros : the bid in each market of `traces`.

    Notes
    -----
    As in `bidding.evictions.table.fit` a bid is taken if the price passes it less than an hour later.
    """
    grants = taken = 0
    for market, trace in traces.items():
        bid = bids_micros[market]
        at_s = grants_s(trace, from_s, until_s, bid)
        above_s = trace.times_s[trace.prices_micros > bid]
        grants += len(at_s)
        # An event within the hour is one that has come by its end, and had not come at the grant.
        come = np.searchsorted(above_s, at_s + HOUR_S, side="left") - np.searchsorted(above_s, at_s, side="right")
        taken += int(np.count_nonzero(come))
    return taken / grants if grants else None
