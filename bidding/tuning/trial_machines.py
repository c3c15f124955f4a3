"""The machines of a sweep: every allocation with the state of its machine, and the markets that are left alone."""

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
from proteus_spot.bidding.market.model import EndCause, Market


class SweepMachines:
    """Allocations by id, as the market's events leave them; one deployment each.

    Parameters
    ----------
    cooldown_s : seconds without a request to a market after it refused one.
    """

    def __init__(self, cooldown_s: int) -> None:
        self._cooldown_s = cooldown_s
        self.positions: dict[str, HeldAllocation] = {}
        #: Market -> end of its cooldown, because it refused or takes what it sold.
        self._cooling: dict[Market, int] = {}

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
        if names and cause is EndCause.FAILED:
            self.cool(position.allocation.market, at_s)

    def _cool(self, market: Market, until_s: int) -> None:
        self._cooling[market] = max(self._cooling.get(market, until_s), until_s)
