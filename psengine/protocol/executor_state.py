"""State of one executor, as it is moved, replicated and restored."""

from __future__ import annotations

from dataclasses import dataclass

from proteus_spot.psengine.tables.sharding import Arrays


@dataclass(frozen=True)
class ExecutorState:
    """State that a task of an executor has left. Its arrays are never written to.

    Attributes
    ----------
    group, attempt
        The task's group, and the attempt that left the state: the two identify it.
    """

    executor: int
    group: int
    attempt: int
    arrays: Arrays


@dataclass(frozen=True)
class StateRef:
    """Where the state of an executor is: in the process at `address`, or else in the checkpoint of that name."""

    executor: int
    group: int
    attempt: int
    address: str = ""
    checkpoint: str = ""
