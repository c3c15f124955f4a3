"""The recorded market of one job, and the live engine that bids in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationRefused,
    BidEvent,
    NoticeSeen,
    TickDue,
)
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Order
from proteus_spot.bidding.forecast.features import PriceHistory, features_at
from proteus_spot.bidding.market.model import Allocation, EndCause, InstanceType, Market, Tier
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import TraceSet


@dataclass
class RecordedLife:
    """One allocation, from its grant to its end.

    Attributes
    ----------
    vcpus : of all its instances.
    takes_s : time at which the market will take it; None: not while the job lasts.
    lapses_s : time of its ordered end; None while it is renewed.
    ended_s, cause : its end; None while it lives.
    """

    allocation: Allocation
    vcpus: int
    takes_s: int | None
    lapses_s: int | None = None
    ended_s: int | None = None
    cause: EndCause | None = None


@dataclass
class RecordedMarket:
    """The recorded prices, the purchases made under them, and the engine's journal.

    Attributes
    ----------
    window_ends_s : no machine is taken at or after this time.
    max_life_s : age at which every machine is taken; None: no maximum.
    pasts : price histories of the markets whose signals the engine receives.
    journal : every event, each followed by the orders that it led to.
    """

    traces: TraceSet
    markets: Sequence[Market]
    types: Mapping[str, InstanceType]
    window_ends_s: int
    max_life_s: int | None = None
    pasts: Mapping[Market, PriceHistory] = field(default_factory=dict)
    engine: BidEngine = field(default_factory=BidEngine)
    journal: list[BidEvent | Order] = field(default_factory=list)
    lives: list[RecordedLife] = field(default_factory=list)

    @property
    def alive(self) -> list[RecordedLife]:
        """Live allocations, in the order of the grants."""
        return [life for life in self.lives if life.ended_s is None]

    @property
    def vcpus(self) -> int:
        """The vCPUs of the live allocations."""
        return sum(life.vcpus for life in self.alive)

    @property
    def moments(self) -> list[int]:
        """Time of the next eviction or ordered end of a live allocation."""
        found = [moment for life in self.alive for moment in (life.takes_s, life.lapses_s)]
        return [moment for moment in found if moment is not None]

    def tell(self, event: BidEvent) -> tuple[Order, ...]:
        """Send an event to the engine; return its orders."""
        orders = self.engine.handle(event)
        self.journal += [event, *orders]
        return orders

    def tick(self, now_s: int) -> bool:
        """Send the time and the prices to the engine, and carry out its orders; return whether something was bought."""
        latest = {market: self.traces[market].price_at(now_s) for market in self.markets}
        prices = {market: price for market, price in latest.items() if price is not None}
        signals = {market: signal for market in self.pasts if (signal := features_at(self.pasts[market], now_s))}
        bought = False
        for order in self.tell(TickDue(now_s, prices, signals=signals)):
            match order:
                case Lapse():
                    self._life(order.allocation_id).lapses_s = order.before_s
                case Acquire(bid_micros=int(bid)) if prices[order.market] <= bid:
                    self._grant(order, bid, now_s)
                    bought = True
                case Acquire():
                    self.tell(AllocationRefused(now_s, order.order_id, "bid-too-low", "the price is above the bid"))
        return bought

    def take(self, now_s: int) -> bool:
        """Evict the allocations that the market takes in this second; return whether there were any."""
        return self._end_all([life for life in self.alive if life.takes_s == now_s], now_s, EndCause.EVICTED)

    def let_go(self, now_s: int) -> bool:
        """End the allocations that lapse in this second; return whether there were any."""
        return self._end_all([life for life in self.alive if life.lapses_s == now_s], now_s, EndCause.USER)

    def close(self, ends_s: int) -> None:
        """Terminate all live allocations, unless the market takes them in this second."""
        for life in self.alive:
            self._end(life, ends_s, EndCause.EVICTED if life.takes_s == ends_s else EndCause.USER)

    def _grant(self, order: Acquire, bid_micros: Micros, now_s: int) -> None:
        bought = Allocation(order.order_id, order.market, order.count, now_s, Tier.TRANSIENT, bid_micros)
        ends = [
            self.traces[order.market].first_above(bid_micros, now_s),
            None if self.max_life_s is None else now_s + self.max_life_s,
        ]
        takes_s = min((moment for moment in ends if moment is not None and moment < self.window_ends_s), default=None)
        self.lives.append(RecordedLife(bought, order.count * self.types[order.market.instance_type].vcpu, takes_s))
        self.tell(AllocationGranted(now_s, order.order_id, bought))

    def _life(self, allocation_id: str) -> RecordedLife:
        return next(life for life in self.lives if life.allocation.allocation_id == allocation_id)

    def _end_all(self, lives: Sequence[RecordedLife], now_s: int, cause: EndCause) -> bool:
        for life in lives:
            self._end(life, now_s, cause)
        return bool(lives)

    def _end(self, life: RecordedLife, now_s: int, cause: EndCause) -> None:
        """End an allocation; an eviction has its notice in the same second."""
        life.ended_s, life.cause = now_s, cause
        name = life.allocation.allocation_id
        if cause is EndCause.EVICTED:
            self.tell(NoticeSeen(now_s, name, now_s))
        self.tell(AllocationGone(now_s, name, cause))
