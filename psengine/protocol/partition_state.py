"""State of one partition, as it is moved, replicated and restored."""

from __future__ import annotations

from dataclasses import dataclass

from proteus_spot.psengine.tables.sharding import Arrays


@dataclass(frozen=True)
class PartitionState:
    """State that a task of a partition has left. Its arrays are never written to.

    Attributes
    ----------
    group, attempt
        The task's group, and the attempt that left the state: the two identify it.
    """

    partition: int
    group: int
    attempt: int
    arrays: Arrays


@dataclass(frozen=True)
class StateRef:
    """Where the state of a partition is: in the process at `address`, or else in the checkpoint of that name."""

    partition: int
    group: int
    attempt: int
    address: str = ""
    checkpoint: str = ""
