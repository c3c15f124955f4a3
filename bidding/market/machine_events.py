"""What the market says of single machines by events, and the queue that brings these: `EventQueue`, a Protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class EventKind(StrEnum):
    """What is said of a machine."""

    INTERRUPTION = "interruption"  # it will be taken
    REBALANCE = "rebalance"  # it is at elevated risk of that


@dataclass(frozen=True, slots=True)
class MachineEvent:
    """An event of one machine.

    Attributes
    ----------
    at_s : second at which the machine is taken, or of the recommendation.
    receipt : by which the queue removes it.
    """

    kind: EventKind
    instance_id: str
    at_s: int
    receipt: str


class EventQueue(Protocol):
    """A queue of events of machines, ours and others'.

    An event comes at least once, in no order, and again until it is removed or too old to be of use. What is no event
    of a machine is logged and removed by the queue itself.
    """

    def receive(self) -> Sequence[MachineEvent]:
        """Return the events that are there now.

        Raises
        ------
        MarketError
            If the queue does not answer, or refuses.
        """
        ...

    def remove(self, events: Sequence[MachineEvent]) -> None:
        """Remove events that were received; one that was removed already is no error.

        Raises
        ------
        MarketError
            If the queue does not answer, or refuses.
        """
        ...
