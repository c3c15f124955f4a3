"""The driver of a job in the controller: its calls, its snapshots, and how it is rolled back.

A cut is the state of the driver after the call in which a group was sealed, with the tasks that it had dispatched for
later groups. Up to then only tasks of this and earlier groups were reported: a task goes into the open group.
To roll back to a group, a new driver is restored from the cut of that group, and the calls since are repeated without
those that concern later groups: their updates are gone. What the driver has said up to the cut of later groups, that
they end the job or are to be evaluated, stays.

A driver with `resume` (see `Resumes`) needs no cuts: its state follows from the last committed group.

Source: Litz (2017), sections 3.1 and 3.2 (dispatch and inform; consistent checkpoints with the state of the driver).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from proteus_spot.psengine.apps.returned import (
    checked_driver,
    checked_task,
    figures_of,
    finite_number,
    remarks_of,
    whole,
)
from proteus_spot.psengine.drivers.interface import Dispatcher, Done, Driver, Task
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.rpc.cancellation import plain_error
from proteus_spot.psengine.rpc.pickled_text import from_text, to_text
from proteus_spot.psengine.scheduling.task_table import TaskTable


class DriverFailed(Exception):
    """A driver raised, or did what a driver must not do; the cause is the error."""


@runtime_checkable
class Resumes(Protocol):
    """A driver whose state follows from the number of partitions and the last committed group; it never omits one."""

    def resume(self, to: Dispatcher, partitions: int, group: int) -> None:
        """Dispatch what may run when `group` is committed, and nothing later is under way."""
        ...


#: What a driver did: a task that it dispatched, or the group that it sealed, with the members if it named them.
_Step = Task | tuple[int, tuple[int, ...] | None]


@dataclass(frozen=True)
class _Call:
    """A call of the driver that is repeated after a rollback; `group` 0: whatever the group."""

    method: str
    argument: Any
    group: int = 0


@dataclass(frozen=True)
class _Cut:
    """The driver when a group was sealed.

    Attributes
    ----------
    state : str
        Its snapshot, as `to_text` returns it.
    calls : int
        Number of calls that it includes, since the beginning.
    absent : frozenset of int
        Partitions that it does without.
    later : tuple
        What it had dispatched and sealed for later groups, in order: tasks, and (group, members) of a seal.
    end, evaluations : see `DriverHost`
        What it had said by then of the end, and of groups to evaluate.
    """

    state: str
    calls: int
    absent: frozenset[int]
    later: tuple[_Step, ...]
    end: tuple[int, str] | None = None  # a checkpoint may be of a version without these two
    evaluations: frozenset[int] = frozenset()


class DriverHost:
    """The driver of one job, which dispatches into `tasks`.

    Parameters
    ----------
    make : callable
        Makes a new driver.

    Attributes
    ----------
    absent : set of int
        Partitions that the driver does without.
    evaluations : set of int
        Groups that the driver wants evaluated, and that are not committed.
    counts_clocks : bool
        Whether the driver counts the clocks of the job: they are not its groups.
    end : (int, str) or None
        The last group of the job and the reason, once the driver has decided.
    """

    def __init__(self, make: Callable[[], Driver], tasks: TaskTable, seed: int) -> None:
        self._make, self._tasks, self._seed = make, tasks, seed
        self.absent: set[int] = set()
        self.evaluations: set[int] = set()
        self.end: tuple[int, str] | None = None
        self.counts_clocks = False
        #: Whether the driver has raised, or returned what it must not: it is asked nothing more.
        self.has_failed = False
        self._clock = 0
        self._figures: dict[str, float] = {}
        self._remarks: tuple[str, ...] = ()
        self._driver: Any = None  # a `Driver`, which may have more methods
        self._resumes = False
        self._calls: list[_Call] = []
        #: Number of calls that were dropped from the beginning of `_calls`.
        self._dropped = 0
        self._cuts: dict[int, _Cut] = {}
        #: {committed group: number of tasks in the groups up to it}, of a driver that needs cuts.
        self._n_updates: dict[int, int] = {}
        #: What the call under way has dispatched and sealed, in order.
        self._done: list[_Step] = []

    # -- of the driver --------------------------------------------------------------------------------------------

    def dispatch(self, task: Task) -> None:
        """Append a task to the queue of its partition."""
        task = checked_task(task)
        if task.partition in self.absent:
            raise ValueError(f"partition {task.partition} has vanished, and the driver does without it")
        self._tasks.enqueue(task)
        self._done.append(task)

    def seal(self, group: int, members: Collection[int] | None = None) -> None:
        """Close the open group."""
        group = whole("seal: the group", group)
        members = None if members is None else tuple(whole("seal: a member", member) for member in members)
        if not self._tasks.seal(group, members):
            raise ValueError(f"group {group} was sealed without tasks")
        self._done.append((group, members))

    def evaluate(self, group: int) -> None:
        """Evaluate the model of a group that is not committed."""
        group = whole("evaluate: the group", group)
        if group <= self._tasks.common:
            raise ValueError(f"group {group} is committed already: it cannot be evaluated any more")
        self.evaluations.add(group)

    def finish(self, group: int, reason: str = "") -> None:
        """End the job with the model of `group`."""
        self.end = whole("finish: the group", group), str(reason)

    @property
    def clocks(self) -> int | None:
        """The number of clocks that a driver which counts them makes; None if it makes no certain number."""
        clocks = self._driver.clocks if self.counts_clocks and not self.has_failed else None
        return None if clocks is None else self._run(lambda: whole("clocks", clocks))

    @property
    def clock(self) -> int:
        """The number of clocks that are complete: committed groups, or what the driver counts."""
        if not self.counts_clocks:
            return self._tasks.common
        if not self.has_failed:
            self._clock = self._run(lambda: whole("clock", self._driver.clock))
        return self._clock

    def figures(self) -> dict[str, float]:
        """Return the driver's own figures of the job."""
        if hasattr(self._driver, "figures") and not self.has_failed:
            self._figures = self._run(lambda: figures_of(self._driver.figures, self._driver.figures()))
        return self._figures

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks of the driver so far."""
        if hasattr(self._driver, "remarks") and not self.has_failed:
            self._remarks = self._run(lambda: remarks_of(self._driver.remarks, self._driver.remarks()))
        return self._remarks

    def passes(self, group: int, examples: int) -> float | None:
        """Return how many passes the job has made with `group`, and `examples` examples; None if that is not known."""
        if not hasattr(self._driver, "passes") or self.has_failed:
            return None

        def made() -> float | None:
            passes = self._driver.passes(group, examples)
            return None if passes is None else finite_number("passes", passes, True)

        found: float | None = self._run(made)
        return found

    def check_figures(self) -> None:
        """Raise `DriverFailed` if the driver says of the job what it must not."""
        self.figures(), self.remarks, self.passes(max(1, self._tasks.common), 0), self.clocks, self.clock

    # -- of the controller ----------------------------------------------------------------------------------------

    def resume(self, checkpoint: Checkpoint | None) -> None:
        """Begin again with a checkpoint, or at the beginning; partitions that are absent now stay so."""
        if checkpoint is None:
            self.roll_back(0)
        elif "driver" not in checkpoint.summary:
            self.roll_back(checkpoint.group)
        else:
            absent, group, n_partitions = set(self.absent), checkpoint.group, self._tasks.n_partitions
            cut: _Cut = self._run(lambda: from_text(checkpoint.summary["driver"]))
            self._tasks.roll_back(group, checkpoint.n_updates(n_partitions))
            self._calls, self._dropped, self._cuts = [], 0, {group: cut}
            self._n_updates = {group: checkpoint.n_updates(n_partitions)}
            self._restore(cut)
            self.vanished(absent - self.absent)

    def completed(self, dones: Sequence[Done]) -> None:
        """Report completed tasks to the driver."""
        if self._resumes:  # nothing to keep of each
            self._run(lambda: self._inform(dones))
            return
        for done in dones:
            if not self._tasks.is_withdrawn(done.task):  # by the driver, when it was told of the one before
                self._call(_Call("completed", done, done.task.group))

    def _inform(self, dones: Sequence[Done]) -> None:
        for done in dones:
            self._driver.completed(self, done)

    def committed(self, group: int) -> None:
        """Report to the driver that a group is committed."""
        self.evaluations.discard(group)
        if not self._resumes:
            self._n_updates[group] = self._tasks.n_updates
        self._call(_Call("committed", group, group))

    def n_updates_at(self, group: int) -> int:
        """Return the number of tasks in the groups up to `group`, which is committed and not forgotten."""
        return self._n_updates.get(group, group * self._tasks.n_partitions)

    def vanished(self, partitions: Collection[int]) -> None:
        """Report partitions whose nodes were lost; their tasks are withdrawn if the driver does without them."""
        if lost := tuple(sorted(set(partitions) - self.absent)):
            self._call(_Call("vanished", lost))

    def returned(self, partitions: Collection[int]) -> None:
        """Report that partitions have a node again which the driver did without."""
        if back := tuple(sorted(set(partitions) & self.absent)):
            self._call(_Call("returned", back))

    def restarts(self, free: int) -> frozenset[int]:
        """Return which of the absent partitions get a node, `free` at most."""
        absent = frozenset(self.absent)
        if hasattr(self._driver, "restarts"):
            wanted = self._run(lambda: frozenset(self._driver.restarts(absent, free)) & absent)
            return frozenset(wanted)
        return frozenset(sorted(absent)[:free])

    def next_is_certain(self, partition: int, group: int) -> bool:
        """Return whether the partition's next task is one of `group`, without arguments, that reads the one before."""
        driver = self._driver
        return bool(self._run(lambda: bool(driver.next_task(partition) == Task(partition, group))))

    def forget_before(self, group: int) -> None:
        """Forget what only a rollback to a group before `group` needs."""
        if not self._cuts or group not in self._cuts:
            return
        self._cuts = {number: cut for number, cut in self._cuts.items() if number >= group}
        self._n_updates = {number: n_updates for number, n_updates in self._n_updates.items() if number >= group}
        needed = min(cut.calls for cut in self._cuts.values())
        del self._calls[: needed - self._dropped]
        self._dropped = needed

    def roll_back(self, group: int) -> None:
        """Roll the tasks and the driver back to a committed group, whose cut is known, or to the beginning."""
        absent, calls, cut = set(self.absent), self._calls, self._cuts.get(group)
        self._tasks.roll_back(group, self.n_updates_at(group))
        if group == 0 or self._resumes or self._driver is None:
            self._calls, self._dropped, self._cuts, self._n_updates = [], 0, {}, {}
            self._start()
            self.vanished(absent)
            return
        assert cut is not None, f"no cut of group {group}"
        self._calls, later = calls[: cut.calls - self._dropped], calls[cut.calls - self._dropped :]
        self._cuts = {number: cut for number, cut in self._cuts.items() if number <= group}
        self._n_updates = {number: n_updates for number, n_updates in self._n_updates.items() if number <= group}
        self._restore(cut)
        for call in later:
            if call.group <= group:
                self._call(call)

    def record(self, group: int) -> dict[str, Any]:
        """Return what a checkpoint of a committed group, whose cut is known, must hold of the driver; JSON-able."""
        if self._resumes:
            return {}
        copy = DriverHost(self._make, TaskTable(self._tasks.n_partitions), self._seed)
        copy._driver, copy.absent, copy._n_updates = self._driver, set(self.absent), dict(self._n_updates)
        copy._calls, copy._dropped, copy._cuts = list(self._calls), self._dropped, dict(self._cuts)
        copy.roll_back(group)
        tasks, later = copy._tasks.queued(), list[_Step]()
        for number in range(group + 1, copy._tasks.sealed + 2):
            later += [task for task in tasks if task.group == number]
            later += [(number, None)] if number <= copy._tasks.sealed else []
        cut = copy._cut_with(copy._snapshot(), 0, tuple(later))
        return {"n_updates": self.n_updates_at(group), "driver": to_text(cut)}

    def _start(self) -> None:
        self._begin()
        driver = self._driver
        if isinstance(driver, Resumes):
            self._run(lambda: driver.resume(self, self._tasks.n_partitions, self._tasks.common))
        elif self._tasks.common:
            raise DriverFailed("the checkpoint holds no state of it: another application wrote it; start a new job")
        else:
            self._done = []
            self._run(lambda: driver.start(self, self._tasks.n_partitions, self._seed))
            self._cut()

    def _begin(self) -> None:
        self._driver = self._run(lambda: checked_driver(self._make, self._make()))
        self._resumes = isinstance(self._driver, Resumes)
        self.counts_clocks = hasattr(self._driver, "clocks") and hasattr(self._driver, "clock")
        self.absent, self.end = set(), None
        self.evaluations = set()

    def _restore(self, cut: _Cut) -> None:
        self._begin()
        driver = self._driver
        self.absent, self.end = set(cut.absent), cut.end
        self.evaluations = {group for group in cut.evaluations if group > self._tasks.common}
        self._run(lambda: driver.restore(from_text(cut.state)))
        for index, step in enumerate(cut.later):
            if isinstance(step, Task):
                self._tasks.enqueue(step)
            else:
                self._tasks.seal(*step)
                self._cuts[step[0]] = replace(cut, later=cut.later[index + 1 :])

    def _call(self, call: _Call) -> None:
        """Call the driver, and keep what a rollback needs of that."""
        driver, self._done = self._driver, []
        if call.method == "returned":
            self.absent -= set(call.argument)

        def answered() -> bool:
            answer = getattr(driver, call.method)(self, call.argument)
            return call.method == "vanished" and bool(answer)

        if self._run(answered):
            self.absent |= set(call.argument)
            for partition in call.argument:
                self._tasks.withdraw(partition)
        if self._resumes:
            if self.absent:
                raise DriverFailed("a driver that has `resume` cannot drop partitions")
            return
        self._calls.append(call)
        self._cut()

    def _cut(self) -> None:
        """Keep a cut of each group that the last call has sealed."""
        sealed = [(index, step[0]) for index, step in enumerate(self._done) if not isinstance(step, Task)]
        if sealed:
            state = self._snapshot()
            calls = self._dropped + len(self._calls)
            for index, group in sealed:
                self._cuts[group] = self._cut_with(state, calls, tuple(self._done[index + 1 :]))
        self._done = []

    def _cut_with(self, state: str, calls: int, later: tuple[_Step, ...]) -> _Cut:
        return _Cut(state, calls, frozenset(self.absent), later, self.end, frozenset(self.evaluations))

    def _snapshot(self) -> str:
        driver = self._driver
        return str(self._run(lambda: to_text(driver.snapshot())))

    def _run(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except BaseException as error:
            plain = plain_error(error)
            if isinstance(plain, Exception):
                self.has_failed = True
                raise DriverFailed from plain
            raise
