"""How many spot machines a market has over time, which it takes, and its placement score."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.traces import Trace

#: EC2's placement scores: the least and the greatest likely to succeed.
_LEAST_SCORE, _MOST_SCORE = 1, 10
#: One drop in two is foretold by so many seconds.
_FORETOLD_S = 600


@dataclass(slots=True)
class MarketCapacity:
    """The spot machines that each market has.

    Attributes
    ----------
    traces : number of machines over time (`bidding.evictions.fit_capacity.capacity_trace`); a market without a trace
        has any number, and so has one before its trace begins.
    """

    traces: Mapping[Market, Trace] = field(default_factory=lambda: MappingProxyType({}))

    def at(self, market: Market, at_s: int) -> int | None:
        """Return how many machines a market has at a time, those that are held included; None: any number."""
        trace = self.traces.get(market)
        return None if trace is None else trace.price_at(at_s)

    def next_drop_s(self, market: Market, after_s: int) -> int | None:
        """Return the first time after `after_s` at which a market has fewer machines than before; None if never."""
        trace = self.traces.get(market)
        if trace is None:
            return None
        drops_s = trace.times_s[1:][np.diff(trace.prices_micros) < 0]
        begins = int(np.searchsorted(drops_s, after_s, side="right"))
        return int(drops_s[begins]) if begins < len(drops_s) else None


def score(there: int | None, wanted: int) -> int:
    """Return the placement score of a request for `wanted` machines where `there` are left; None: any number."""
    share = 1.0 if there is None else min(there / wanted, 1.0)
    return _LEAST_SCORE + round(share * (_MOST_SCORE - _LEAST_SCORE))


def foretold_s(market: Market, drop_s: int) -> int | None:
    """Return how long before its notices a drop is foretold by rebalance recommendations; None: it is not."""
    digest = hashlib.blake2s(f"{market}/{drop_s}".encode(), digest_size=1).digest()
    return _FORETOLD_S if digest[0] % 2 else None


def taken(instance_ids: Iterable[str], count: int, drop_s: int) -> list[str]:
    """Return the `count` machines that a drop takes: any of them, the same for the same drop."""

    def order(instance_id: str) -> bytes:
        return hashlib.blake2s(f"{instance_id}/{drop_s}".encode(), digest_size=8).digest()

    return sorted(instance_ids, key=order)[: max(count, 0)]
