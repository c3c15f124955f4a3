"""The protocols of drivers. A driver dispatches tasks to partitions and decides which of them are committed together.

Partitions of the input are numbered from 0; each may have a state. A *task* is one run on a partition. A *group* is a
numbered set of tasks: groups are numbered from 1, sealed in order, and committed in order, each when all of its tasks
are completed. Updates are committed, replicated and rolled back by group. In a group each partition has at most one
task.

A driver is pure: it reads no time, does no I/O, and uses no random numbers but those of its seed. It runs in the
controller, which calls one method at a time. After a loss the controller makes a new driver, restores a snapshot,
repeats the calls since, and continues, so a driver must decide alike when it is called alike.

Source: Litz (2017), Table 1 and section 3.1.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, Protocol

#: What a task sees of the model: exactly the groups before its own ("group"); of the rows that it reads, exactly those
#: groups ("rows"); at least the tasks that the driver knew to be completed when it dispatched this one ("parent").
Read = Literal["group", "rows", "parent"]


@dataclass(frozen=True)
class Task:
    """A task for a partition.

    Attributes
    ----------
    partition : int
        Number of the partition.
    group : int
        The group that the task is committed with.
    args : any
        Small picklable arguments for the partition's `run`.
    read : {"group", "rows", "parent"}
        What the task sees. A task that reads "group", or "rows" without `after`, is not sent before the previous group
        is committed.
    after : tuple of int, optional
        Of a task that reads "rows": the partitions that wrote the rows that this task reads, in groups before its own,
        last. The task is sent at once, and its reads wait until what those partitions have to do in these groups has
        been written. Earlier writers of the rows need not be named if the last writers named them.
        Tables with an update rule cannot be read so: a rule is applied to whole groups.
    """

    partition: int
    group: int
    args: Any = None
    read: Read = "group"
    after: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Done:
    """A completed task.

    Attributes
    ----------
    task : Task
    result : any
        What the partition returned to the driver; small and picklable.
    examples : int
        Number of examples that the task processed.
    loss : float
        Sum of their losses.
    """

    task: Task
    result: Any
    examples: int
    loss: float


class Dispatcher(Protocol):
    """What a driver may do. Its methods are called from within the driver's methods only."""

    def dispatch(self, task: Task) -> None:
        """Append a task to the queue of its partition; the tasks of a partition run in this order.

        Raises
        ------
        ValueError
            If there is no such partition, it has a task in this group already, or the group is not the open one: the
            first that is not sealed. If `after` names what cannot be waited for: a partition that does not exist, or
            one whose task reads "parent", so that it may write something else when it is repeated.
        """
        ...

    def seal(self, group: int, members: Collection[int] | None = None) -> None:
        """Close the open group: no task is added to it. It is committed when all of its tasks are completed.

        Parameters
        ----------
        members : collection of int, optional
            Partitions whose tasks belong to the group; default: all that were dispatched in it. The tasks of the others
            are withdrawn, also those that have been completed meanwhile and were not reported: their updates do not
            count, they are not reported, and their partitions go on from the state before.

        Raises
        ------
        ValueError
            If the group is not the open one, a member has no task in it, or a task that was sent reads the rows of one
            to be withdrawn.
        """
        ...

    def evaluate(self, group: int) -> None:
        """Evaluate the model of `group`, which is not committed yet, on the held-out data, beside the training."""
        ...

    def finish(self, group: int, reason: str = "") -> None:
        """End the job with the model of `group`; a group that is committed already stands for the last one begun."""
        ...


class Driver(Protocol):
    """Decides what a job does. The controller makes it with `application.driver()` and calls one method at a time.

    A class that inherits from this one needs `start`, `snapshot` and `restore`, and of the rest what it reacts to. It
    may also have:

    clocks, clock
        A clock of the job is not a group: the driver counts the clocks, and ends the job by `finish`. Losses,
        evaluations, holds and the output are by its clocks. `clocks`: the job's number of them, None if only time or
        convergence ends it. `clock`: how many are complete; it rises by 1 at most in a call of `committed`.
    passes(group, examples)
        How many passes over the data the job has made when `group` is committed, and the tasks of the groups up to it
        have processed `examples` examples, as `Executor.run` returned them; None if that is not known. It depends on
        the arguments alone, and is no less for a later group.
    restarts(absent, free)
        Which of the `absent` partitions get a node, at most `free`; by default any. It changes nothing, and may be
        called at any time.
    figures()
        Figures of its own by name; `--json` has them beside those of every job.
    remarks()
        All that it has to say of the job so far, one line each, from the oldest: for the log and the result of the job.
        They are part of its snapshot.
    """

    def start(self, to: Dispatcher, partitions: int, seed: int) -> None:
        """Dispatch the first tasks, for partitions 0 to `partitions` - 1."""
        ...

    def completed(self, to: Dispatcher, done: Done) -> None:
        """Note a completed task; each task is reported once, in the order in which the controller learns of it."""
        return

    def committed(self, to: Dispatcher, group: int) -> None:
        """Note that a group is committed: all its tasks are completed, and so are all groups before it."""
        ...

    def vanished(self, to: Dispatcher, partitions: Collection[int]) -> bool:
        """Note that the nodes of these partitions were lost; return whether the driver does without them.

        True: their tasks that are not completed are withdrawn, and none may be dispatched to them until they have
        `returned`. False, the default: their tasks run again, as soon as another node has their input.
        """
        return False

    def returned(self, to: Dispatcher, partitions: Collection[int]) -> None:
        """Note that partitions which the driver did without have a node again."""
        return

    def next_task(self, partition: int) -> Task | None:
        """Return the task that the partition gets after its last dispatched one, if that is certain already.

        It must be the one that is dispatched later, without arguments and with the read "group". A node then reads
        ahead and begins it early. A driver that does not know it returns None, the default.
        """
        return None

    def snapshot(self) -> Any:
        """Return the driver's whole state as a picklable value that later calls do not change."""
        ...

    def restore(self, state: Any) -> None:
        """Continue from a snapshot; called on a new driver instead of `start`."""
        ...
