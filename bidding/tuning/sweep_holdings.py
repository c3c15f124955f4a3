"""What a sweep holds: every allocation with the state of its machine, the markets that are left alone, the quota."""

from collections.abc import Mapping

from proteus_spot.bidding.engine.allocations import AllocationState, HeldAllocation, HeldMachine, MachineState
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    BidEvent,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    NoticeSeen,
)
from proteus_spot.bidding.market.failures import Failure, failure_of
from proteus_spot.bidding.market.model import HOUR_S, EndCause, InstanceType, Market
from proteus_spot.bidding.tuning.sweep_events import SweepOpened

#: Seconds for which a refusal for the account's quota limits the purchases that follow.
QUOTA_S = HOUR_S


class SweepHoldings:
    """Allocations by id, as the market's events leave them; one deployment each."""

    def __init__(self) -> None:
        #: The sweep's id, None before `SweepOpened`, and the instance types on sale.
        self.job_id: str | None = None
        self.types: Mapping[str, InstanceType] = {}
        #: Seconds without a request to a market after it refused one.
        self._cooldown_s = 0
        #: Allocation id -> position, in the order of the grants; ended ones stay, for the record.
        self.positions: dict[str, HeldAllocation] = {}
        #: Market -> end of its cooldown, because it refused or takes what it sold.
        self._cooling: dict[Market, int] = {}
        #: vCPUs of a purchase that the account's quota refused, and until when it is believed to refuse such.
        self._quota_vcpus: int | None = None
        self._quota_until_s = 0
        #: Since when the market lists none of the machines that live by the book; None while it lists some.
        self.unlisted_since_s: int | None = None
        #: When a tick decided last; None before the first.
        self.ticked_at_s: int | None = None

    def open(self, event: SweepOpened) -> None:
        """Take the terms of the sweep."""
        self.job_id, self.types, self._cooldown_s = event.sweep_id, event.types, event.plan.cooldown_s

    def note_tick(self, at_s: int) -> None:
        """Note that a tick decides."""
        self.unlisted_since_s = None
        self.ticked_at_s = at_s

    def quota_vcpus(self, at_s: int) -> int | None:
        """Return the vCPUs of a purchase that the account's quota refused, while it is believed to refuse such."""
        return self._quota_vcpus if at_s < self._quota_until_s else None

    def standing(self, allocation_id: str) -> AllocationState:
        """Return the state of an allocation; one that was never granted is gone."""
        position = self.positions.get(allocation_id)
        return AllocationState.GONE if position is None else position.standing

    def cooling(self, at_s: int) -> dict[Market, int]:
        """Return the markets that are left alone at a time, each with the end of its cooldown."""
        self._cooling = {market: until_s for market, until_s in self._cooling.items() if until_s > at_s}
        return self._cooling

    def cool(self, market: Market, at_s: int) -> None:
        """Leave a market alone from now on, for the cooldown."""
        self._cool(market, at_s + self._cooldown_s)

    def refuse(self, market: Market, code: str, at_s: int) -> None:
        """Note that a purchase was refused: by the account's quota, or by the market, which is left alone then."""
        if failure_of(code) is Failure.QUOTA:
            # The quota is the account's, not the market's: a smaller machine fits in, perhaps, or one after another.
            self._quota_vcpus, self._quota_until_s = self.types[market.instance_type].vcpu, at_s + QUOTA_S
        else:
            self.cool(market, at_s)

    def grant(self, event: AllocationGranted) -> HeldAllocation:
        """Enter an allocation, if it was not yet."""
        name = event.allocation.allocation_id
        if name not in self.positions:
            machines = {machine: HeldMachine() for machine in event.instance_ids}
            self.positions[name] = HeldAllocation(event.allocation, machines)
        return self.positions[name]

    def apply(self, position: HeldAllocation, event: BidEvent) -> None:
        """Apply what happened to the machines of an allocation."""
        match event:
            case NoticeSeen():
                held = [machine for machine in position.machines.values() if machine.state is MachineState.HELD]
                self._notice(position, held, event.takes_at_s)
            case MachineNoticed():
                machine = position.machine(event.instance_id)
                self._notice(position, [machine] if machine.state is not MachineState.GONE else [], event.takes_at_s)
            case AllocationGone():
                self._end(position, position.living(), event.at_s, event.cause)
            case MachineGone():
                is_gone = position.machine(event.instance_id).state is MachineState.GONE
                self._end(position, [] if is_gone else [event.instance_id], event.at_s, event.cause)
            case MachineSeen():
                position.machine(event.instance_id)
                position.machines[event.instance_id] = HeldMachine()
                position.update()

    def _notice(self, position: HeldAllocation, machines: list[HeldMachine], takes_at_s: int) -> None:
        for machine in machines:
            machine.state, machine.takes_at_s = MachineState.NOTICED, takes_at_s
        if machines:
            position.update()
            # A market that is about to take machines would sell one and take it, too.
            self._cool(position.allocation.market, takes_at_s + 1)

    def _end(self, position: HeldAllocation, names: list[str], at_s: int, cause: EndCause) -> None:
        for name in names:
            position.machines[name] = HeldMachine(MachineState.GONE, ended_at_s=at_s, cause=cause)
        position.update()
        if names:
            self._quota_vcpus = None  # a machine less: the next one may fit in
        if names and cause is EndCause.FAILED:
            self.cool(position.allocation.market, at_s)

    def _cool(self, market: Market, until_s: int) -> None:
        self._cooling[market] = max(self._cooling.get(market, until_s), until_s)
