"""When the market takes a machine: by its price, or when it needs the capacity, whatever was bid."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil, log
from typing import Protocol

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import TraceSet

_DRAWS = 1 << 64


class Evictions(Protocol):
    """The evictions of a simulated market."""

    def takes_at_s(self, order_id: str, market: Market, bid_micros: Micros, launched_at_s: int) -> int | None:
        """Return when a machine that is granted now will be taken; None: never. It is after the launch."""
        ...


@dataclass(frozen=True, slots=True)
class EvictionsByPrice:
    """The bid era: a machine is taken when the price first passes its bid."""

    traces: TraceSet

    def takes_at_s(self, order_id: str, market: Market, bid_micros: Micros, launched_at_s: int) -> int | None:
        """Return the time of the first price above the bid."""
        return self.traces[market].first_above(bid_micros, launched_at_s)


@dataclass(frozen=True, slots=True)
class EvictionsByCapacity:
    """Today's markets: a bid decides nothing, and the life of a machine is drawn from its market's constant hazard.

    Attributes
    ----------
    rates_per_s : evictions of a machine per second, by market (`bidding.evictions.fit_capacity.hazard_per_s`).
    seed : of the draws; each order has one of its own.
    """

    rates_per_s: Mapping[Market, float]
    seed: int = 0

    def takes_at_s(self, order_id: str, market: Market, bid_micros: Micros, launched_at_s: int) -> int | None:
        """Return a time drawn for the order; the same order has the same life."""
        rate = self.rates_per_s[market]
        if rate <= 0:
            return None
        text = f"{self.seed}\n{order_id}\n{launched_at_s}"
        draw = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
        return launched_at_s + max(ceil(-log((draw + 1) / _DRAWS) / rate), 1)
