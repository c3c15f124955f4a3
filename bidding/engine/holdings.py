"""What a job holds and knows by the events so far: allocations, open purchases, cooldowns, the quotas, the offer.

Events change it; nothing here decides. An allocation's machines have a state each. Those that are held form the
footprint; the market may take some and leave the rest. No state is final: a machine that is seen alive is held again,
whatever was reported of it before.
"""

from collections.abc import Mapping
from dataclasses import replace

from proteus_spot.bidding.engine.allocations import HeldAllocation, HeldMachine, MachineState
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationHandedOver,
    AllocationRefused,
    AllocationTaken,
    BidEvent,
    JobClosed,
    JobOpened,
    JobReopened,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    MachinesUnlisted,
    MarketCooled,
    NodesOffered,
    NoticeSeen,
)
from proteus_spot.bidding.engine.orders import PURCHASE, Acquire, number_after
from proteus_spot.bidding.market.failures import LAUNCH_S, Failure, failure_of
from proteus_spot.bidding.market.model import HOUR_S, Allocation, EndCause, InstanceType, Market, Tier
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.policies import policy

#: Seconds for which a refusal for the account's quota limits the purchases that follow.
QUOTA_S = HOUR_S
#: Times that the cooldown of a market doubles while its launches fail one after the other.
_MOST_DOUBLINGS = 4


class EngineError(ValueError):
    """An event that is invalid in the present state."""


class Holdings:
    """What one job holds. Only events and the orders of its engine change it; everything else reads it."""

    def __init__(self) -> None:
        self._opened: JobOpened | None = None
        #: When the job was opened, or opened again, last; 0 before.
        self.begun_at_s = 0
        #: Whether the job was closed, and not opened again since.
        self.closed = False
        #: Allocation id -> position, in the order of the grants; ended ones stay, for the record.
        self.positions: dict[str, HeldAllocation] = {}
        #: Order id -> purchase that was ordered and not answered yet, in the order of the decision.
        self.open_orders: dict[str, Acquire] = {}
        self.purchases = 0
        self.answered: set[str] = set()
        #: Market -> end of its cooldown, because it refused or takes what it sold; for spot, and on demand.
        self.cooling: dict[Market, int] = {}
        self.on_demand_cooling: dict[Market, int] = {}
        self.last_prices: dict[Market, Micros] = {}
        self.last_eviction_s: int | None = None
        #: Whether on demand -> most vCPUs that the account may have, by a refusal for its quota, and until when that is
        #: believed.
        self.quotas: dict[bool, tuple[int, int]] = {}
        #: Since when the market lists none of the machines that live by the book.
        self.unlisted_since_s: int | None = None
        #: Machines that the job offers for release, and the number of spot machines that it has a use for.
        self.offered: frozenset[str] = frozenset()
        self.machines_of_use: int | None = None
        #: Time of the last tick that decided.
        self.ticked_at_s: int | None = None

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
    def types(self) -> Mapping[str, InstanceType]:
        """The instance types on sale."""
        return self.opened.types

    @property
    def footprint(self) -> tuple[Allocation, ...]:
        """Held allocations that continue to work, each with the number of its machines that do."""
        return tuple(p.working for p in self.positions.values() if p.working is not None)

    @property
    def spot_vcpus(self) -> int:
        """Spot vCPUs that count in the limit: held ones, and noticed ones until they are gone; not lapsing ones."""
        return sum(map(self.vcpus_of, [*self.footprint, *self.noticed]))

    @property
    def noticed(self) -> tuple[Allocation, ...]:
        """What the market takes of the allocations, until it is gone."""
        return tuple(p.noticed for p in self.positions.values() if p.noticed is not None)

    def vcpus_of(self, bought: Allocation | Acquire) -> int:
        """Return the spot vCPUs of an allocation or a purchase."""
        if isinstance(bought, Allocation) and bought.tier is Tier.RELIABLE:
            return 0
        return bought.count * self.opened.job.size(self.opened.types[bought.market.instance_type])

    def excess_vcpus(self, *orders: Acquire) -> int:
        """Return by how many spot vCPUs the limit is exceeded, or would be with `orders`; negative where it is not."""
        return self.spot_vcpus + sum(map(self.vcpus_of, orders)) - self.opened.job.max_spot_vcpus

    def room_of_kind(self, on_demand: bool, at_s: int) -> int:
        """Return the vCPUs that may be held at most, of this kind and the other together.

        It is the limit, or what is held of the other kind and the quota that a refusal has told.
        """
        most, (quota, until_s) = self.opened.job.max_spot_vcpus, self.quotas.get(on_demand, (0, 0))
        if at_s >= until_s:
            return most
        return min(most, quota + self.spot_vcpus - self._vcpus_of_kind(on_demand))

    def _vcpus_of_kind(self, on_demand: bool) -> int:
        held = [*self.footprint, *self.noticed]
        return sum(self.vcpus_of(allocation) for allocation in held if (allocation.bid_micros is None) is on_demand)

    # -- events -----------------------------------------------------------------------------------------------

    def record(self, event: BidEvent) -> None:
        """Apply an event that only reports a fact.

        Raises
        ------
        EngineError
            If the event is invalid in the present state.
        """
        match event:
            case JobOpened():
                self._handle_opened(event)
            case AllocationGranted():
                self._handle_granted(event)
            case AllocationRefused():
                self._handle_refused(event)
            case NoticeSeen():
                self._handle_notice(event)
            case AllocationGone():
                self._handle_gone(event)
            case AllocationHandedOver():
                position = self._position(event.allocation_id)
                self._end(position, position.living(), event.at_s, EndCause.USER)
            case AllocationTaken():
                self._handle_taken(event)
            case MachineSeen():
                self._handle_machine_seen(event)
            case MachineNoticed():
                self._handle_machine_noticed(event)
            case MachineGone():
                self._handle_machine_gone(event)
            case MachinesUnlisted():
                if self.unlisted_since_s is None:
                    self.unlisted_since_s = event.at_s
            case MarketCooled():
                self._cool_failed(event.market, event.at_s)
            case NodesOffered():
                self.offered, self.machines_of_use = frozenset(event.instance_ids), event.machines
            case JobReopened():
                self.begun_at_s, self.closed = event.at_s, False
            case JobClosed():
                # An unanswered purchase stays open until the caller has found out whether it was made.
                self.closed = True

    def note_tick(self, at_s: int, prices: Mapping[Market, Micros]) -> None:
        """Note that a tick decides."""
        self.last_prices.update(prices)
        self.unlisted_since_s = None
        self.ticked_at_s = at_s

    def note_order(self, order: Acquire) -> None:
        """Note a purchase that is ordered now."""
        self.purchases += 1
        self.open_orders[order.order_id] = order

    def _handle_opened(self, event: JobOpened) -> None:
        if self._opened is not None:
            raise EngineError(f"job {event.job_id} was opened before")
        policy(event.policy)  # a job is not opened with one that there is not
        self._opened = event
        self.begun_at_s = event.at_s

    def _handle_granted(self, event: AllocationGranted) -> None:
        if event.allocation.market.instance_type not in self.opened.types:
            raise EngineError(f"{event.allocation.allocation_id}: no such type as {event.allocation.market} in the job")
        order = self.open_orders.get(event.order_id)
        if order is not None and event.allocation.count < order.count:  # it has no more for now
            self._cool(order.market, event.at_s + self.opened.job.cooldown_s, on_demand=order.bid_micros is None)
        self._answer(event.order_id)
        # One that is found may be newer than this record, which was restored from a backup: no id is ordered twice.
        self.purchases = max(self.purchases, number_after(self.opened.job_id, event.order_id, PURCHASE))
        if event.allocation.allocation_id not in self.positions:
            machines = {name: HeldMachine() for name in event.instance_ids}
            self.positions[event.allocation.allocation_id] = HeldAllocation(event.allocation, machines)

    def _handle_taken(self, event: AllocationTaken) -> None:
        if event.allocation.market.instance_type not in self.opened.types:
            raise EngineError(f"{event.allocation.allocation_id}: no such type as {event.allocation.market} in the job")
        machines = {name: HeldMachine() for name in event.instance_ids}
        hours = set(range(event.allocation.hour_index(event.at_s) + 1))  # the other job has decided on them
        self.positions[event.allocation.allocation_id] = HeldAllocation(event.allocation, machines, decided=hours)

    def _handle_refused(self, event: AllocationRefused) -> None:
        order = self.open_orders.get(event.order_id)
        if order is not None:
            # The quota is the account's, not the market's. Half of the order fits in, perhaps; so it is found out.
            fewer, on_demand = replace(order, count=order.count // 2), order.bid_micros is None
            if failure_of(event.code) is Failure.QUOTA and (not on_demand or fewer.count):
                vcpus = self._vcpus_of_kind(on_demand) + self.vcpus_of(fewer)
                self.quotas[on_demand] = (vcpus, event.at_s + QUOTA_S)
            else:
                cooling = self.on_demand_cooling if on_demand else self.cooling
                cooling[order.market] = event.at_s + self.opened.job.cooldown_s
        self._answer(event.order_id)

    def _handle_notice(self, event: NoticeSeen) -> None:
        position = self._position(event.allocation_id)
        held = [machine for machine in position.machines.values() if machine.state is MachineState.HELD]
        if held:
            self._notice(position, held, event.at_s, event.takes_at_s)

    def _handle_machine_noticed(self, event: MachineNoticed) -> None:
        position = self._position(event.allocation_id)
        machine = position.machine(event.instance_id)
        if machine.state is not MachineState.GONE:
            self._notice(position, [machine], event.at_s, event.takes_at_s)

    def _notice(self, position: HeldAllocation, machines: list[HeldMachine], at_s: int, takes_at_s: int) -> None:
        for machine in machines:
            machine.state, machine.takes_at_s = MachineState.NOTICED, takes_at_s
        position.update()
        _note_doubt(position, at_s)
        # A market that is about to take machines would sell one and take it, too.
        market = position.allocation.market
        self._cool(market, takes_at_s + 1)

    def _cool(self, market: Market, until_s: int, on_demand: bool = False) -> None:
        cooling = self.on_demand_cooling if on_demand else self.cooling
        cooling[market] = max(cooling.get(market, until_s), until_s)

    def _cool_failed(self, market: Market, at_s: int) -> None:
        """Leave a market alone after a launch that was of no use, twice as long after each further one in a row."""
        in_row = 0
        for position in reversed(self.positions.values()):
            if position.allocation.market != market:
                continue
            if position.ended_at_s is None or position.ended_at_s - position.allocation.launched_at_s > LAUNCH_S:
                break
            in_row += position.cause is not EndCause.EVICTED and position.lapse is None
        until_s = at_s + (self.opened.job.cooldown_s << min(max(in_row - 1, 0), _MOST_DOUBLINGS))
        self._cool(market, until_s)
        self._cool(market, until_s, on_demand=True)

    def _handle_gone(self, event: AllocationGone) -> None:
        position = self._position(event.allocation_id)
        self._end(position, position.living(), event.at_s, event.cause)

    def _handle_machine_gone(self, event: MachineGone) -> None:
        position = self._position(event.allocation_id)
        if position.machine(event.instance_id).state is not MachineState.GONE:
            self._end(position, [event.instance_id], event.at_s, event.cause)

    def _end(self, position: HeldAllocation, names: list[str], at_s: int, cause: EndCause) -> None:
        for name in names:
            position.machines[name] = HeldMachine(MachineState.GONE, ended_at_s=at_s, cause=cause)
        position.update()
        _note_doubt(position, at_s)
        if names and cause is EndCause.EVICTED:
            self.last_eviction_s = max(at_s, self.last_eviction_s or at_s)
        if names and cause is EndCause.FAILED:
            self._cool_failed(position.allocation.market, at_s)

    def _handle_machine_seen(self, event: MachineSeen) -> None:
        position = self._position(event.allocation_id)
        before = position.standing
        position.machine(event.instance_id)
        position.machines[event.instance_id] = HeldMachine()
        position.update()
        if position.doubted_since_s is not None and position.held():
            position.survived = (position.doubted_since_s, event.at_s, before)
            position.doubted_since_s = None

    def _answer(self, order_id: str) -> None:
        self.answered.add(order_id)
        self.open_orders.pop(order_id, None)

    def _position(self, allocation_id: str) -> HeldAllocation:
        if allocation_id not in self.positions:
            raise EngineError(f"no allocation {allocation_id!r} was granted")
        return self.positions[allocation_id]

    def validate(self) -> None:
        """Raise `EngineError` where an invariant does not hold."""
        if both := self.answered.intersection(self.open_orders):
            raise EngineError(f"{min(both)} is open and answered")
        if self._opened is None and self.positions:
            raise EngineError("allocations without a job")


def _note_doubt(position: HeldAllocation, at_s: int) -> None:
    if not position.held() and position.doubted_since_s is None:
        position.doubted_since_s = at_s
