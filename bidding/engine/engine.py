"""BidBrain's engine: a state machine with one entry point, `handle(event) -> orders`.

It uses no clock, no market and no database: time comes with the events, and the caller carries out the orders and
answers them with further events. Replaying the same events gives the same orders.

Invariants (`validate`): at most one purchase is unanswered at a time; each (allocation, hour) is decided at most once
(but closing the job revokes renewals of hours that have not begun); nothing is bought or renewed after `JobClosed`.

A purchase is ordered again, the same, at each tick until it is answered; a lapse until the allocation has ended or the
market gives notice of its eviction. So an order survives a crash between its entry in the journal and its execution.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationRefused,
    BidEvent,
    JobClosed,
    JobOpened,
    NoticeSeen,
    TickDue,
)
from bidding.engine.orders import Acquire, Lapse, Order, Renew, Wait
from bidding.market.model import HOUR_S, Allocation, EndCause, Market, Tier
from bidding.market.money import Micros
from bidding.policies import policy
from bidding.policies.base import Choice, Decision, MarketView, Policy


class AllocationState(StrEnum):
    """State of an allocation."""

    HELD = "held"
    NOTICED = "noticed"  # the market will take it
    LAPSING = "lapsing"  # we have ordered it gone
    GONE = "gone"


@dataclass(slots=True)
class HeldAllocation:
    """An allocation and its state."""

    allocation: Allocation
    standing: AllocationState = AllocationState.HELD
    #: Hours whose renewal was decided; hour 0 was decided by the purchase.
    decided: set[int] = field(default_factory=lambda: {0})
    #: The order to end it; repeated at every tick while it is lapsing, since the first may have been lost in a crash.
    lapse: Lapse | None = None
    ended_at_s: int | None = None
    cause: EndCause | None = None


class EngineError(ValueError):
    """An event that is invalid in the present state."""


class BidEngine:
    """Decisions of one job; the state changes only in `handle`, everything else is a view."""

    def __init__(self) -> None:
        self._opened: JobOpened | None = None
        self._policy: Policy | None = None
        self._closed_at_s: int | None = None
        #: Allocation id -> position, in the order of the grants; ended ones stay, for the record.
        self._positions: dict[str, HeldAllocation] = {}
        self._open: Acquire | None = None
        self._purchases = 0
        self._answered: set[str] = set()
        #: Market -> end of its cooldown, because it refused or takes what it sold.
        self._cooling: dict[Market, int] = {}
        self._last_prices: dict[Market, Micros] = {}
        self._last_eviction_s: int | None = None

    # -- views ------------------------------------------------------------------------------------------------

    @property
    def job_id(self) -> str | None:
        """The job's id; None before `JobOpened`."""
        return self._opened.job_id if self._opened else None

    @property
    def opened(self) -> JobOpened:
        """The event that opened the job."""
        if self._opened is None:
            raise EngineError("the job was not opened")
        return self._opened

    @property
    def closed(self) -> bool:
        """Whether the job was closed."""
        return self._closed_at_s is not None

    @property
    def open_order(self) -> Acquire | None:
        """The purchase that was ordered and not answered yet."""
        return self._open

    @property
    def positions(self) -> dict[str, HeldAllocation]:
        """Every allocation granted so far, by id."""
        return dict(self._positions)

    @property
    def footprint(self) -> tuple[Allocation, ...]:
        """Held allocations that continue to work."""
        return tuple(p.allocation for p in self._positions.values() if p.standing is AllocationState.HELD)

    # -- the door ---------------------------------------------------------------------------------------------

    def handle(self, event: BidEvent) -> tuple[Order, ...]:
        """Apply one event; return the orders, in sequence.

        Raises
        ------
        EngineError
            If the event is invalid in the present state.
        """
        match event:
            case JobOpened():
                self._handle_opened(event)
            case TickDue():
                return tuple(self._handle_tick(event))
            case AllocationGranted():
                self._handle_granted(event)
            case AllocationRefused():
                self._handle_refused(event)
            case NoticeSeen():
                self._handle_notice(event)
            case AllocationGone():
                self._handle_gone(event)
            case JobClosed():
                # An unanswered purchase stays open until the caller has found out whether it was made.
                self._closed_at_s = event.at_s if self._closed_at_s is None else self._closed_at_s
        return ()

    def _handle_opened(self, event: JobOpened) -> None:
        if self._opened is not None:
            raise EngineError(f"job {event.job_id} was opened before")
        self._policy = policy(event.policy)
        self._opened = event

    def _handle_granted(self, event: AllocationGranted) -> None:
        if event.allocation.market.instance_type not in self.opened.types:
            raise EngineError(f"{event.allocation.allocation_id}: no such type as {event.allocation.market} in the job")
        self._answer(event.order_id)
        self._positions.setdefault(event.allocation.allocation_id, HeldAllocation(event.allocation))

    def _handle_refused(self, event: AllocationRefused) -> None:
        if self._open is not None and self._open.order_id == event.order_id:
            self._cooling[self._open.market] = event.at_s + self.opened.job.cooldown_s
        self._answer(event.order_id)

    def _handle_notice(self, event: NoticeSeen) -> None:
        position = self._position(event.allocation_id)
        if position.standing in (AllocationState.HELD, AllocationState.LAPSING):
            position.standing = AllocationState.NOTICED
            # A market that is about to take machines would sell one and take it, too.
            market = position.allocation.market
            self._cooling[market] = max(self._cooling.get(market, event.at_s), event.takes_at_s + 1)

    def _handle_gone(self, event: AllocationGone) -> None:
        position = self._position(event.allocation_id)
        if position.standing is not AllocationState.GONE:
            position.standing = AllocationState.GONE
            position.ended_at_s, position.cause = event.at_s, event.cause
            if event.cause is EndCause.EVICTED:
                self._last_eviction_s = max(event.at_s, self._last_eviction_s or event.at_s)

    def _handle_tick(self, event: TickDue) -> Iterator[Order]:
        self._last_prices.update(event.prices)
        yield from self._hour_ends(event)
        if self.closed or not event.buy:
            return
        if self._open is None:
            yield self._acquisition(event)
        elif self._open.market in event.left_out:
            # It was decided on a price that held once. If it was bought, its machines are found by their tags.
            waits = f"{self._open.order_id} stays unanswered until its market has a price again"
            yield Wait(_with_left_out(Decision(Choice.WAIT, waits, float("inf")), event))
        else:
            # The caller repeats it by its token: if it was bought, it is found; if not, it is bought or refused now.
            yield self._open

    # -- decisions --------------------------------------------------------------------------------------------

    def _hour_ends(self, event: TickDue) -> Iterator[Order]:
        """Decide every hour that ends soon, or that began undecided; in the order of the grants."""
        for position in self._positions.values():
            allocation = position.allocation
            if position.lapse is not None and position.standing is AllocationState.LAPSING:
                yield position.lapse  # not after a notice: the market refunds the hour unless it is terminated first
            if position.standing is not AllocationState.HELD or allocation.tier is Tier.RELIABLE:
                continue
            # The market's clock may be ahead of the caller's: an hour before the first there is not.
            now_s = max(event.at_s, allocation.launched_at_s)
            now_hour = allocation.hour_index(now_s)
            for hour in range(max(position.decided) + 1, now_hour + 1):
                position.decided.add(hour)
                if not self.closed:  # after the close nothing is renewed: the hour is paid for, undecided
                    late = "no tick came before the hour began, so it is paid for"
                    yield Renew(allocation.allocation_id, hour, Decision(Choice.RENEW, late, float("inf")))
            before_s = allocation.hour_ends_at_s(now_s)
            if self.closed and not self.opened.job.pays_whole_hours:
                before_s = now_s  # every further second would cost
            # A job that closes takes back what was renewed and has not begun.
            undecided = now_hour + 1 not in position.decided or self.closed
            if before_s - now_s <= self.opened.job.renewal_lead_s and undecided:
                position.decided.add(now_hour + 1)
                yield self._hour_end(event, position, now_hour + 1, before_s)

    def _hour_end(self, event: TickDue, position: HeldAllocation, hour: int, before_s: int) -> Renew | Lapse:
        allocation = position.allocation
        if self.closed:
            reason = "the job is done, and its last hour gave no refund"
            if not self.opened.job.pays_whole_hours:
                reason = "the job is done, and every further second would cost"
            decision = Decision(Choice.LAPSE, reason, float("inf"))
        else:
            decision = self._policy_of_job().renewal(self._view(event), allocation)
        if decision.verdict is Choice.RENEW:
            return Renew(allocation.allocation_id, hour, decision)
        position.standing = AllocationState.LAPSING
        position.lapse = Lapse(allocation.allocation_id, hour, before_s, decision)
        return position.lapse

    def _acquisition(self, event: TickDue) -> Acquire | Wait:
        decision = self._policy_of_job().acquisition(self._view(event))
        decision = _with_left_out(decision, event)
        chosen = decision.chosen
        if chosen is None:
            return Wait(decision)
        order_id = f"{self.opened.job_id}-buy-{self._purchases}"
        self._purchases += 1
        self._open = Acquire(order_id, chosen.market, chosen.count, chosen.bid_micros, decision)
        return self._open

    def _policy_of_job(self) -> Policy:
        if self._policy is None:
            raise EngineError("the job was not opened")
        return self._policy

    def _view(self, event: TickDue) -> MarketView:
        opened = self.opened
        allowed = set(opened.markets)
        return MarketView(
            now_s=event.at_s,
            job=opened.job,
            prices={market: event.prices[market] for market in sorted(event.prices) if market in allowed},
            types=opened.types,
            footprint=self.footprint,
            evictions=opened.evictions,
            cooling=frozenset(market for market, until_s in self._cooling.items() if until_s > event.at_s),
            paid_until_s={
                name: p.allocation.launched_at_s + (max(p.decided) + 1) * HOUR_S
                for name, p in self._positions.items()
                if p.standing is AllocationState.HELD and p.allocation.tier is Tier.TRANSIENT
            },
            last_prices=dict(self._last_prices),
            signals=event.signals,
            foresight=opened.foresight,
            lapsing=tuple(p.allocation for p in self._positions.values() if p.standing is AllocationState.LAPSING),
            last_eviction_s=self._last_eviction_s,
        )

    def _answer(self, order_id: str) -> None:
        self._answered.add(order_id)
        if self._open is not None and self._open.order_id == order_id:
            self._open = None

    def _position(self, allocation_id: str) -> HeldAllocation:
        if allocation_id not in self._positions:
            raise EngineError(f"no allocation {allocation_id!r} was granted")
        return self._positions[allocation_id]

    def validate(self) -> None:
        """Raise `EngineError` where an invariant does not hold."""
        if self._open is not None and self._open.order_id in self._answered:
            raise EngineError(f"{self._open.order_id} is open and answered")
        opened = self._opened
        if opened is None and self._positions:
            raise EngineError("allocations without a job")
        if opened is not None and self._open is not None:
            held = [p.allocation for p in self._positions.values() if p.standing is AllocationState.HELD]
            vcpus = sum(a.count * opened.types[a.market.instance_type].vcpu for a in held if a.tier is Tier.TRANSIENT)
            vcpus += self._open.count * opened.types[self._open.market.instance_type].vcpu
            if vcpus > opened.job.max_spot_vcpus:
                raise EngineError(f"{vcpus} spot vCPUs are held or ordered, of at most {opened.job.max_spot_vcpus}")


def _with_left_out(decision: Decision, event: TickDue) -> Decision:
    """Return `decision` with the markets that it could not weigh, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for market, why in sorted(event.left_out.items()):
        by_reason.setdefault(why, []).append(str(market))
    if not by_reason:
        return decision
    reasons = "; ".join(f"{', '.join(names)}: {why}" for why, names in by_reason.items())
    return replace(decision, reason=f"{decision.reason}; not weighed: {reasons}")
