"""An application in a bare loop: one process, no network, no servers; the reference for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from proteus_spot.psengine.apps.base import App, Application, MakesDriver
from proteus_spot.psengine.apps.executors import (
    ResidentExecutor,
    as_application,
    own_tables,
    shared_tables,
    whole_own_tables,
)
from proteus_spot.psengine.apps.registry import initial_shards
from proteus_spot.psengine.apps.returned import tables_of
from proteus_spot.psengine.config import Add, TableSpec
from proteus_spot.psengine.drivers.interface import Done
from proteus_spot.psengine.scheduling.driver_host import DriverHost
from proteus_spot.psengine.scheduling.micro_tasks import MicroTaskTable
from proteus_spot.psengine.tables.allowed_values import WrongSum, check_finite, check_sum
from proteus_spot.psengine.tables.row_sets import Array, RowBlock, RowSet, read_only
from proteus_spot.psengine.tables.sharding import Arrays, Sharding
from proteus_spot.psengine.tables.tree_sum import Delta, Subtree, tree_sum
from proteus_spot.psengine.tables.update_rules import advance_tables, begin_memory
from proteus_spot.psengine.worker.task_parameters import TaskParameters, checked_reads


def initial(app: App | Application, seed: int, n_shards: int = 1, finite: bool = True) -> Arrays:
    """Return the tables at clock 0, as the servers and executors of a job with this seed and shards have them.

    The memory of update rules is among them (see `psengine.tables.update_rules`). `finite`: see `train_alone`.
    """
    sharding = Sharding(tables_of(app), n_shards)
    shards = initial_shards(app, sharding, seed, range(n_shards), finite)
    return begin_memory(sharding.tables, sharding.join(list(shards.values())))


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
        Number of clocks that `tables` are trained for already; `clocks` counts them. Executors begin in their first
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
    executors = [
        ResidentExecutor(partial(general.executor, data, p, len(parts)), finite) for p, data in enumerate(parts)
    ]
    states: dict[int, Arrays | None] = dict.fromkeys(range(len(parts)))
    own = {table.name for table in own_tables(app)}
    shared = {name: rows for name, rows in tables.items() if name not in own}
    for clock in range(done + 1, clocks + 1):
        updates: list[Delta] = []
        loss = 0.0
        read = {name: RowBlock(None, read_only(shared[name])) for name in specs}
        for part, executor in enumerate(executors):
            reads = checked_reads(executor.reads(None, clock), specs)
            params = TaskParameters(clock, specs, reads, read, _no_fetch, finite=finite)
            rng = np.random.default_rng([seed, clock, part])
            _, loss_sum, _, states[part] = executor.run(states[part], None, params, rng)
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
    WrongValue
        As in `train_alone`.
    DriverFailed
        If the driver raises, or does what a driver must not do; the cause is the error.
    RuntimeError
        If the driver dispatches nothing more, and has not ended the job.
    """

    def first(table: TableSpec, rows: RowSet) -> Array:
        return tables[table.name][rows]

    if not isinstance(app, MakesDriver):
        raise TypeError(f"{type(app).__name__} has no driver")
    specs, own = {table.name: table for table in shared_tables(app)}, {table.name for table in own_tables(app)}
    executors = [ResidentExecutor(partial(app.executor, data, p, len(parts)), finite) for p, data in enumerate(parts)]
    states: dict[int, Arrays | None] = dict.fromkeys(range(len(parts)))
    shared = {name: rows for name, rows in tables.items() if name not in own}
    book = MicroTaskTable(len(parts))
    driver = DriverHost(app.driver, book, seed)
    driver.resume(None)
    pending: dict[int, dict[int, Delta]] = {}
    #: {executor: the state that its last task began with, and the loss of that}.
    before: dict[int, tuple[Arrays | None, float]] = {}
    losses = [0.0] * groups
    while book.common < (groups if driver.end is None else min(groups, driver.end[0])):
        ready = book.ready(groups)
        if not ready:
            raise RuntimeError(f"the driver dispatched nothing more after group {book.common}")
        for task, withdrawn in ready:
            if not book.is_next(task):  # the driver has withdrawn it meanwhile
                continue
            key, executor = book.start(task.executor, ""), executors[task.executor]
            if withdrawn:  # it was completed
                states[task.executor], loss = before[task.executor]
                del pending[task.group][task.executor]
                losses[task.group - 1] -= loss
                book.complete(task.executor, task.group, key.attempt)
            else:
                visible = {} if task.read == "group" else pending
                if task.read == "rows":
                    visible = {group: updates for group, updates in pending.items() if group < task.group}
                seen = _with_pending(specs, shared, visible, len(parts))
                read = {name: RowBlock(None, read_only(seen[name])) for name in specs}
                wanted = checked_reads(executor.reads(task.args, task.group), specs)
                params = TaskParameters(task.group, specs, wanted, read, _no_fetch, finite=finite)
                rng = np.random.default_rng([seed, task.group, task.executor])
                state = states[task.executor]
                result, loss, examples, states[task.executor] = executor.run(state, task.args, params, rng)
                before[task.executor] = state, loss
                pending.setdefault(task.group, {})[task.executor] = params.updates()
                losses[task.group - 1] += loss
                book.complete(task.executor, task.group, key.attempt)
                driver.completed([Done(task, result, examples, loss)])
            while book.commit_next():
                shared = _after_group(specs, shared, pending.pop(book.common), len(parts), finite, book.common)
                driver.committed(book.common)
    driver.check_figures()
    whole = shared | _own(app, states, first)
    return {name: whole[name] for name in tables}, losses[: book.common]


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
        after = advance_tables(specs, tables, {**named, **total})
        for name, table in after.items() if finite else ():
            if table is not tables.get(name):
                check_finite(name, table)
    except WrongSum as error:
        raise WrongSum(error.table, error.row, error.why, clock) from None
    return after


def _leaf(updates: Sequence[Delta], part: Subtree) -> Delta | None:
    return updates[part[0]] if part[1] - part[0] == 1 else None
