"""An allocation as the engine holds it: its machines, each with a state of its own."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from proteus_spot.bidding.engine.orders import Lapse
from proteus_spot.bidding.market.model import Allocation, EndCause


class MachineState(StrEnum):
    """State of one machine of an allocation."""

    HELD = "held"
    NOTICED = "noticed"  # the market will take it
    GONE = "gone"


class AllocationState(StrEnum):
    """State of an allocation, by those of its machines."""

    HELD = "held"  # at least one machine is, and works on
    NOTICED = "noticed"  # the market will take all that are left
    LAPSING = "lapsing"  # we have ordered all that is held gone
    GONE = "gone"


@dataclass(slots=True)
class HeldMachine:
    """A machine of an allocation: when it will be taken once it is noticed, its end once it is gone."""

    state: MachineState = MachineState.HELD
    takes_at_s: int | None = None
    ended_at_s: int | None = None
    cause: EndCause | None = None


#: Begins the name of a machine whose instance the grant did not name (in backtests, and where none was ever seen).
_UNNAMED = "#"


@dataclass(slots=True)
class HeldAllocation:
    """An allocation, as it was bought, with the state of each of its machines."""

    allocation: Allocation
    #: By instance id, or `_UNNAMED` and a number until an observation names the instance.
    machines: dict[str, HeldMachine] = field(default_factory=dict)
    #: Follows from the machines and the lapse; see `update`.
    standing: AllocationState = AllocationState.HELD
    #: Hours whose renewal was decided; hour 0 was decided by the purchase.
    decided: set[int] = field(default_factory=lambda: {0})
    #: Since when it is not held, since the market takes all of it or it is gone; None while some of it is held.
    doubted_since_s: int | None = None
    #: Begin, end and last state of the last such time that it has survived.
    survived: tuple[int, int, AllocationState] | None = None
    #: The order to end it, or some of its machines; repeated at every tick while they are held, since the first order
    #: may have been lost in a crash.
    lapse: Lapse | None = None
    #: End and cause of the last machine, once none is left.
    ended_at_s: int | None = None
    cause: EndCause | None = None
    #: The part that works on, the part that works until it ends by `lapse`, the part that the market will take; None
    #: where no machine is in it.
    working: Allocation | None = None
    lapsing: Allocation | None = None
    noticed: Allocation | None = None

    def __post_init__(self) -> None:
        for number in range(len(self.machines), self.allocation.count):
            self.machines[f"{_UNNAMED}{number}"] = HeldMachine()
        self.update()

    @property
    def unnamed(self) -> list[str]:
        """The names of machines whose instances are not known; they share one state."""
        return [name for name in self.machines if name.startswith(_UNNAMED)]

    def living(self) -> list[str]:
        """Return the names of the machines that are not gone."""
        return [name for name, machine in self.machines.items() if machine.state is not MachineState.GONE]

    def held(self) -> list[str]:
        """Return the names of the machines that are held."""
        return [name for name, machine in self.machines.items() if machine.state is MachineState.HELD]

    def ending(self) -> list[str]:
        """Return the names of the machines that are held, and whose end is ordered."""
        if self.lapse is None:
            return []
        return [name for name in self.held() if not self.lapse.instance_ids or name in self.lapse.instance_ids]

    def machine(self, instance_id: str) -> HeldMachine:
        """Return the machine of an instance; one that is not known is an unnamed one, or else joins the allocation."""
        if instance_id not in self.machines:
            unnamed = self.unnamed
            self.machines[instance_id] = self.machines.pop(unnamed[0]) if unnamed else HeldMachine()
            if len(self.machines) > self.allocation.count:
                self.allocation = replace(self.allocation, count=len(self.machines))
        return self.machines[instance_id]

    def update(self) -> None:
        """Derive the state of the whole from those of the machines; call it after every change of one."""
        states = [machine.state for machine in self.machines.values()]
        n_ending = len(self.ending())
        self.working = self._part(states.count(MachineState.HELD) - n_ending)
        self.lapsing = self._part(n_ending)
        self.noticed = self._part(states.count(MachineState.NOTICED))
        self.ended_at_s = self.cause = None
        if self.working is not None:
            self.standing = AllocationState.HELD
        elif self.lapsing is not None:
            self.standing = AllocationState.LAPSING
        elif self.noticed is not None:
            self.standing = AllocationState.NOTICED
        else:
            self.standing = AllocationState.GONE
            ends = [(machine.ended_at_s or 0, machine.cause) for machine in self.machines.values()]
            self.ended_at_s = max(at_s for at_s, _ in ends)
            self.cause = common_cause(cause for at_s, cause in ends if at_s == self.ended_at_s)

    def _part(self, count: int) -> Allocation | None:
        if count in (0, self.allocation.count):
            return self.allocation if count else None
        return replace(self.allocation, count=count)


def common_cause(causes: Iterable[EndCause | None]) -> EndCause:
    """Return the cause of the end of several machines: that of all, or the job's where they differ."""
    (cause, *others) = set(causes)
    return EndCause.USER if others or cause is None else cause
