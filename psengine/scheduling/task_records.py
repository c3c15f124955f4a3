"""Tasks that were sent, groups that are not committed, and checks of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proteus_spot.psengine.drivers.interface import Task


@dataclass(frozen=True)
class Running:
    """A task under way: what was sent, and where to."""

    task: Task
    attempt: int
    node: str
    withdrawn: bool = False

    @property
    def group(self) -> int:
        """The task's group."""
        return self.task.group


@dataclass
class Group:
    """A group that is not committed: its members, and those whose tasks are not completed."""

    members: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    #: Members whose tasks are withdrawn: they count as an empty update.
    withdrawn: set[int] = field(default_factory=set)
    #: Number of its tasks that run.
    running: int = 0
    #: {member: its completed task}.
    completed: dict[int, Running] = field(default_factory=dict)
    #: Attempts under which its completed tasks were completed.
    attempts: set[int] = field(default_factory=set)
    sealed: bool = False

    @property
    def begun(self) -> bool:
        """Whether any of its tasks was sent."""
        return self.running > 0 or len(self.open) < len(self.members)


def check_after(task: Task, n_partitions: int, open_tasks: Callable[[int], Sequence[Task]]) -> None:
    """Check what a task is to read after (`Task.after`); `open_tasks` returns a partition's tasks to be completed.

    Raises
    ------
    ValueError
        If it cannot be waited for.
    """
    if task.after is None:
        return
    if task.read != "rows":
        raise ValueError(f"a task that reads {task.read!r} has `after`: that goes with the read 'rows'")
    for partition in task.after:
        if not 0 <= partition < n_partitions:
            raise ValueError(f"`after` names partition {partition}: they are 0 to {n_partitions - 1}")
        if any(before.read == "parent" and before.group < task.group for before in open_tasks(partition)):
            raise ValueError(
                f"`after` names partition {partition}, whose task reads 'parent': it may write something else "
                "when it is repeated: let it read 'group' or 'rows'"
            )
