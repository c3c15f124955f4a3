"""An application in a bare loop: one process, no network, no servers; the reference for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from proteus_spot.psengine.apps.base import App, Application, MakesDriver
from proteus_spot.psengine.apps.registry import initial_shards
from proteus_spot.psengine.apps.residents import (
    Resident,
    as_application,
    own_tables,
    shared_tables,
    whole_own_tables,
)
from proteus_spot.psengine.apps.returned import tables_of
from proteus_spot.psengine.config import Add, Replace, TableSpec
from proteus_spot.psengine.drivers.interface import Done, Driver, Task
from proteus_spot.psengine.scheduling.driver_host import DriverHost
from proteus_spot.psengine.scheduling.task_table import TaskTable
from proteus_spot.psengine.tables.allowed_values import WrongSum, check_finite, check_sum
from proteus_spot.psengine.tables.row_sets import Array, RowBlock, RowSet, read_only
from proteus_spot.psengine.tables.row_updates import RowDelta, added
from proteus_spot.psengine.tables.sharding import Arrays, Sharding
from proteus_spot.psengine.tables.tree_sum import Delta, Subtree, tree_sum
from proteus_spot.psengine.tables.update_rules import advance_tables, init_optimizer_state
from proteus_spot.psengine.worker.task_parameters import TaskParameters, checked_reads


def initial(app: App | Application, seed: int, n_shards: int = 1, finite: bool = True) -> Arrays:
    """Return the tables at clock 0, as the servers and partitions of a job with this seed and shards have them.

    The memory of update rules is among them (see `psengine.tables.update_rules`). `finite`: see `train_alone`.
    """
    sharding = Sharding(tables_of(app), n_shards)
    shards = initial_shards(app, sharding, seed, range(n_shards), finite)
    return init_optimizer_state(sharding.tables, sharding.join(list(shards.values())))


def train_alone(
    app: App | Application,
    parts: Sequence[Any],
    tables: Arrays,
    clocks: int,
    after: Callable[[int, Arrays, float], None] | None = None,
    done: int = 0,
    seed: int = 0,
    finite: bool = True,
) -> Arrays:
    """Return the tables after `clocks` bulk-synchronous clocks; a job under staleness 0 ends in the same bits.

    Parameters
    ----------
    parts : sequence
        Result of `app.prepare` for each partition.
    tables : dict
        The tables at clock `done`, with the memory of their rules (see `initial`); they are not modified.
    after : callable, optional
        Called after each clock with the clock, the tables, and the sum of the losses.
    done : int
        Number of clocks that `tables` are trained for already; `clocks` counts them. Partitions begin in their first
        state, but for the rows of own tables.
    seed : int
        Of the generators that tasks are given.
    finite : bool
        Whether numbers that are not finite are refused, as in a job without `nan: allow`.

    Raises
    ------
    WrongValue
        If the application returns what is not allowed, or a sum does not fit its table.
    """

    def first(table: TableSpec, rows: RowSet) -> Array:
        return tables[table.name][rows]

    general = as_application(app, first, finite)
    specs = {table.name: table for table in shared_tables(app)}
    residents = [Resident(general, data, p, len(parts), finite) for p, data in enumerate(parts)]
    states: dict[int, Arrays | None] = dict.fromkeys(range(len(parts)))
    own = {table.name for table in own_tables(app)}
    shared = {name: rows for name, rows in tables.items() if name not in own}
    for clock in range(done + 1, clocks + 1):
        updates: list[Delta] = []
        loss = 0.0
        read = {name: RowBlock(None, read_only(shared[name])) for name in specs}
        for part, resident in enumerate(residents):
            reads = checked_reads(resident.reads(None, clock), specs)
            params = TaskParameters(clock, specs, reads, read, _no_fetch, finite=finite)
            rng = np.random.default_rng([seed, clock, part])
            _, loss_sum, _, states[part] = resident.run(states[part], None, params, rng)
            loss += loss_sum
            updates.append(params.updates())
        shared = advance(tuple(specs.values()), shared, updates, finite, clock)
        if after is not None or clock == clocks:
            whole = shared | _own(app, states, first)
            tables_now = {name: whole[name] for name in tables}
            if after is not None:
                after(clock, tables_now, loss)
    return tables_now if clocks > done else tables


def drive_alone(
    app: Application, parts: Sequence[Any], tables: Arrays, groups: int, seed: int = 0, finite: bool = True
) -> tuple[Arrays, list[float]]:
    """Return the tables when the driver of `app` has ended the job, at the latest after `groups` groups.

    A job of the engine whose tasks all read "group" ends in the same bits.

    Parameters
    ----------
    parts, tables, seed, finite
        As in `train_alone`; `tables` are those at the beginning.

    Returns
    -------
    tables : dict
    losses : list of float
        Sum of the losses of each group.

    Raises
    ------
    TypeError
        If the application has no driver.
    WrongValue
        As in `train_alone`.
    DriverFailed
        If the driver raises, or does what a driver must not do; the cause is the error.
    RuntimeError
        If the driver dispatches nothing more, and has not ended the job.
    """
    job = JobAlone(app, parts, tables, seed, finite)
    while job.committed < (groups if job.driver.end is None else min(groups, job.driver.end[0])):
        ready = job.ready(groups)
        if not ready:
            raise RuntimeError(f"the driver dispatched nothing more after group {job.committed}")
        for task in ready:
            job.run(task)
    job.driver.check_figures()
    return job.tables(), [job.losses.get(group, 0.0) for group in range(1, job.committed + 1)]


class JobAlone:
    """A job with a driver in a bare loop, one task at a time; partitions lose their nodes and get new ones.

    Parameters
    ----------
    app, parts, tables, seed, finite
        As in `drive_alone`.
    driver : callable, optional
        Makes the driver; default: the `driver` of the application.
    per_node : int
        Partitions of a node: those whose numbers have the same quotient by it. Their sums are kept together.

    Attributes
    ----------
    driver : DriverHost
    shared : dict
        The tables of the servers after the last committed group.
    losses : dict
        {group: sum of the losses of its completed tasks}.

    Raises
    ------
    TypeError
        If the application has no driver.
    """

    def __init__(
        self,
        app: Application,
        parts: Sequence[Any],
        tables: Arrays,
        seed: int = 0,
        finite: bool = True,
        driver: Callable[[], Driver] | None = None,
        per_node: int = 1,
    ) -> None:
        if not isinstance(app, MakesDriver):
            raise TypeError(f"{type(app).__name__} has no driver")
        self._app, self._parts, self._tables = app, parts, tables
        self._seed, self._finite, self._per_node = seed, finite, per_node
        self._specs = {table.name: table for table in shared_tables(app)}
        own = {table.name for table in own_tables(app)}
        self.shared = {name: rows for name, rows in tables.items() if name not in own}
        self.losses: dict[int, float] = {}
        self._residents = [self._new_resident(number) for number in range(len(parts))]
        self._states: dict[int, Arrays | None] = dict.fromkeys(range(len(parts)))
        #: {partition: the state that its last task began with, and the loss of that}.
        self._before: dict[int, tuple[Arrays | None, float]] = {}
        self._pending: dict[int, dict[int, Delta]] = {}
        #: {table: {partition: what it added in the last group that had the table}}.
        self._kept: dict[str, dict[int, Array | RowDelta]] = {}
        self._away: set[int] = set()
        self._tasks = TaskTable(len(parts))
        self.driver = DriverHost(app.driver if driver is None else driver, self._tasks, seed)
        self.driver.resume(None)

    @property
    def committed(self) -> int:
        """The last committed group."""
        return self._tasks.common

    def ready(self, limit: int | None = None) -> list[Task]:
        """Return the next task of each partition that may run now, by partition; no group after `limit` is begun."""
        return [task for task, withdrawn in self._tasks.ready(limit) if withdrawn or task.partition not in self._away]

    def run(self, task: Task) -> None:
        """Run a task that was ready; nothing happens if the driver has withdrawn it meanwhile.

        Raises
        ------
        WrongValue, DriverFailed
            As in `drive_alone`.
        """
        if not self._tasks.is_next(task):
            return
        key = self._tasks.start(task.partition, "")
        if key.withdrawn:  # it was completed
            self._undo(task)
            self._tasks.complete(task.partition, task.group, key.attempt)
        else:
            result, loss, examples = self._run(task)
            self._tasks.complete(task.partition, task.group, key.attempt)
            self.driver.completed([Done(task, result, examples, loss)])
        self._commit()

    def lose(self, partitions: Collection[int]) -> None:
        """Let partitions lose their nodes; what they have completed counts."""
        lost = set(partitions) - self._away
        self._away |= lost
        for partition in sorted(lost):  # another node has its input and its state, and nothing else of it
            self._residents[partition] = self._new_resident(partition)
        self.driver.vanished(lost)
        self._commit()

    def bring_back(self, partitions: Collection[int]) -> None:
        """Let partitions have nodes again."""
        self._away -= set(partitions)
        self.driver.returned(partitions)
        self._commit()

    def tables(self) -> Arrays:
        """Return all tables as they are now."""
        whole = self.shared | _own(self._app, self._states, self._first)
        return {name: whole[name] for name in self._tables}

    def _first(self, table: TableSpec, rows: RowSet) -> Array:
        return self._tables[table.name][rows]

    def _new_resident(self, number: int) -> Resident:
        return Resident(self._app, self._parts[number], number, len(self._parts), self._finite)

    def _run(self, task: Task) -> tuple[Any, float, int]:
        resident = self._residents[task.partition]
        seen = _with_pending(self._specs, self.shared, self._visible(task), len(self._parts))
        read = {name: RowBlock(None, read_only(seen[name])) for name in self._specs}
        wanted = checked_reads(resident.reads(task.args, task.group), self._specs)
        params = TaskParameters(task.group, self._specs, wanted, read, _no_fetch, self._kept_sum, finite=self._finite)
        rng = np.random.default_rng([self._seed, task.group, task.partition])
        state = self._states[task.partition]
        result, loss, examples, self._states[task.partition] = resident.run(state, task.args, params, rng)
        self._before[task.partition] = state, loss
        self._pending.setdefault(task.group, {})[task.partition] = params.updates()
        self.losses[task.group] = self.losses.get(task.group, 0.0) + loss
        return result, loss, examples

    def _visible(self, task: Task) -> Mapping[int, Mapping[int, Delta]]:
        """Return the updates of groups that are not committed which a task sees."""
        if task.read == "group":
            return {}
        if task.read == "rows":
            return {group: updates for group, updates in self._pending.items() if group < task.group}
        return self._pending

    def _undo(self, task: Task) -> None:
        self._states[task.partition], loss = self._before[task.partition]
        del self._pending[task.group][task.partition]
        self.losses[task.group] -= loss

    def _commit(self) -> None:
        while self._tasks.commit_next():
            group = self._tasks.common
            updates = self._pending.pop(group, {})
            self.shared = _after_group(self._specs, self.shared, updates, len(self._parts), self._finite, group)
            self._keep_sums(updates)
            self.driver.committed(group)

    def _keep_sums(self, updates: Mapping[int, Delta]) -> None:
        for name, spec in self._specs.items():
            if isinstance(spec.rule, Replace) and spec.rule.keeps_sums:
                added_to = {partition: update[name] for partition, update in updates.items() if name in update}
                self._kept[name] = added_to or self._kept.get(name, {})

    def _kept_sum(self, table: str, partitions: Collection[int]) -> Array | None:
        kept, nodes = self._kept.get(table, {}), {partition // self._per_node for partition in partitions}
        of_nodes = [partition for partition in sorted(kept) if partition // self._per_node in nodes]
        if not of_nodes or set(of_nodes) != set(partitions):
            return None
        parts = [{table: kept[partition]} if partition in partitions else {} for partition in range(len(self._parts))]
        total = tree_sum((0, len(parts)), partial(_leaf, parts))
        assert total is not None
        return added(np.zeros_like(self.shared[table]), total[table])


def _after_group(
    specs: Mapping[str, TableSpec],
    shared: Arrays,
    updates: Mapping[int, Delta],
    n_partitions: int,
    finite: bool,
    group: int,
) -> Arrays:
    every = [updates.get(part, {}) for part in range(n_partitions)]
    return advance(tuple(specs.values()), shared, every, finite, group)


def _with_pending(
    specs: Mapping[str, TableSpec], shared: Arrays, pending: Mapping[int, Mapping[int, Delta]], n_partitions: int
) -> Arrays:
    """Return the tables with the updates of groups that are not committed, but for those that a rule applies once."""
    added = {name: spec for name, spec in specs.items() if isinstance(spec.rule, Add)}
    for group in sorted(pending):
        updates = {
            part: {name: delta for name, delta in update.items() if name in added}
            for part, update in pending[group].items()
        }
        shared = _after_group(added, shared, updates, n_partitions, False, group)
    return shared


def _own(
    app: App | Application, states: Mapping[int, Arrays | None], first: Callable[[TableSpec, RowSet], Array]
) -> Arrays:
    if not own_tables(app):
        return {}
    return whole_own_tables(app, {part: state for part, state in states.items() if state is not None}, first)


def _no_fetch(table: str, rows: RowSet | None) -> RowBlock:
    raise AssertionError(f"all of table {table!r} is here")


def advance(
    specs: Sequence[TableSpec], tables: Arrays, updates: Sequence[Delta], finite: bool = True, clock: int = 0
) -> Arrays:
    """Return the tables after a clock with these updates, one of each partition; `tables` are not modified.

    Raises
    ------
    WrongSum
        If a sum does not fit its table, or is not finite though it has to be.
    """
    named = {name: delta for update in updates for name, delta in update.items()}
    try:
        for name in named:
            check_sum(name, [update[name] for update in updates if name in update], tables[name])
        total = tree_sum((0, len(updates)), partial(_leaf, updates)) or {}
        after = advance_tables(specs, tables, {**named, **total}, len(updates))
        for name, table in after.items() if finite else ():
            if table is not tables.get(name):
                check_finite(name, table)
    except WrongSum as error:
        raise WrongSum(error.table, error.row, error.why, clock) from None
    return after


def _leaf(updates: Sequence[Delta], part: Subtree) -> Delta | None:
    return updates[part[0]] if part[1] - part[0] == 1 else None
