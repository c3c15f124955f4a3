"""The easy application as a general one: an executor for each partition, its rows of `own` tables as its state.

State of an executor is sent, replicated and saved as arrays by name. Those of an own table are two: its values under
the table's name, and which rows they are under `rows_name`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.base import App, Application, Executor, HasState, Parameters, ReadsRows
from proteus_spot.psengine.apps.registry import initial_arrays
from proteus_spot.psengine.apps.returned import executor_of, rows_of, state_of, tables_of, task_of, work_of, wrong
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.tables.allowed_values import WrongValue, as_update, check_finite, check_sum
from proteus_spot.psengine.tables.row_owners import refuse_shared
from proteus_spot.psengine.tables.row_sets import (
    Array,
    RowBlock,
    RowSet,
    checked,
    count,
    distinct_rows,
    indices,
    read_only,
    same,
)
from proteus_spot.psengine.tables.row_updates import RowDelta, added
from proteus_spot.psengine.tables.sharding import Arrays, Sharding

#: Returns the rows of an own table at clock 0.
InitialRows = Callable[[TableSpec, RowSet], Array]


def as_application(app: App | Application, initial_rows: InitialRows, finite: bool = True) -> Application:
    """Return `app` as a general application; `initial_rows` gives the first state of an easy one.

    `finite`: updates of own tables that are not finite are refused.
    """
    return app if isinstance(app, Application) else cast(Application, _EasyApplication(app, initial_rows, finite))


def prepare(
    app: App | Application, arrays: Mapping[str, NDArray[np.generic]], partition: int, n_partitions: int
) -> Any:
    """Return the `data` of a partition."""
    return app.prepare(arrays, **_accepted(app.prepare, partition=partition, n_partitions=n_partitions))


def shared_tables(app: App | Application) -> tuple[TableSpec, ...]:
    """Return the tables on the servers: all but those whose rows are the state of executors."""
    return tuple(table for table in tables_of(app) if not table.own)


def own_tables(app: App | Application) -> tuple[TableSpec, ...]:
    """Return the tables whose rows are the state of executors."""
    return tuple(table for table in tables_of(app) if table.own)


def initial_rows(app: App | Application, seed: int, n_shards: int, finite: bool = True) -> InitialRows:
    """Return a function for the rows of an own table at clock 0: those that `n_shards` servers would begin with."""
    cut = Sharding(tables_of(app), n_shards)

    def rows_of(table: TableSpec, rows: RowSet) -> Array:
        found = np.zeros((count(rows), table.n_cols), table.dtype)
        numbers = indices(rows)
        for shard in range(n_shards):
            low, high = cut.rows(shard, table)
            here = slice(*np.searchsorted(numbers, (low, high)))
            if here.stop > here.start:
                values = initial_arrays(app, seed, shard, {table.name: (low, high)}, finite)[table.name]
                found[here] = values[numbers[here] - low]
        return found

    return rows_of


def rows_name(table: str) -> str:
    """Return the name under which a state holds the row numbers of an own table."""
    return f"{table}/rows"


def own_rows(table: TableSpec, state: Mapping[str, Array]) -> RowBlock | None:
    """Return the rows of an own table in a state; None if it has none."""
    rows = claimed_rows(state).get(table.name)
    return RowBlock(rows, state[table.name]) if rows is not None and table.name in state else None


def claimed_rows(state: Mapping[str, Array]) -> dict[str, RowSet]:
    """Return the rows of own tables in a state, by table."""
    suffix, found = rows_name(""), dict[str, RowSet]()
    for name, numbers in state.items():
        if name.endswith(suffix):
            rows = numbers.astype(np.int64, copy=False)
            found[name.removesuffix(suffix)] = slice(int(rows[0, 0]), int(rows[0, 1])) if rows.ndim == 2 else rows
    return found


def whole_own_tables(
    app: App | Application, states: Mapping[int, Mapping[str, Array]], first: InitialRows
) -> dict[str, Array]:
    """Return the own tables of an application from the states of its executors.

    Raises
    ------
    SharedRowError
        If two partitions have the same row.
    """
    tables: dict[str, Array] = {}
    for table in own_tables(app):
        blocks = {part: own_rows(table, state) for part, state in sorted(states.items())}
        rows = {part: block.rows for part, block in blocks.items() if block is not None and block.rows is not None}
        refuse_shared(table.name, rows)
        missing = np.ones(table.n_rows, bool)
        values = np.zeros((table.n_rows, table.n_cols), table.dtype)
        for part, of_part in rows.items():
            block = blocks[part]
            assert block is not None
            values[of_part], missing[of_part] = block.values, False
        if missing.any():
            numbers = np.flatnonzero(missing)
            values[numbers] = first(table, numbers)
        tables[table.name] = values
    return tables


def wants(app: App, tables: Sequence[TableSpec], data: Any, clock: int) -> dict[str, RowSet]:
    """Return the rows that a task of an easy application needs of the tables that it does not need whole.

    Raises
    ------
    ValueError
        If they are not rows of these tables.
    """
    asked = rows_of(app.rows, app.rows(data, clock)) if isinstance(app, ReadsRows) else {}
    specs = {table.name: table for table in tables}
    for name in asked:
        if name not in specs:
            raise ValueError(f"rows of table {name!r} are wanted: the tables are {', '.join(specs)}")
    return {name: checked(rows, specs[name]) for name, rows in asked.items()}


def checked_updates(
    updates: Mapping[str, Any], tables: Mapping[str, TableSpec], rows: Mapping[str, RowSet]
) -> dict[str, Array]:
    """Return the updates of a task of an easy application that wanted these rows, in the types of the tables.

    Raises
    ------
    WrongValue
        If one is of no table, or its table does not take it.
    """
    return {name: as_update(_table(tables, name), update, rows.get(name)) for name, update in updates.items()}


def _table(tables: Mapping[str, TableSpec], name: str) -> TableSpec:
    if name not in tables:
        raise WrongValue(f"an update of table {name!r} came: the tables are {', '.join(tables)}")
    return tables[name]


class _EasyApplication:
    """An `App` as an `Application`."""

    def __init__(self, app: App, first: InitialRows, finite: bool) -> None:
        self._app, self._first, self._finite = app, first, finite

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    def executor(self, data: Any, partition: int, n_partitions: int) -> Executor:
        has_state = bool(own_tables(self._app))
        kind = _EasyExecutorWithState if has_state else _EasyExecutor
        about = {"partition": partition, "n_partitions": n_partitions}
        return kind(self._app, data, self._first, about, self._finite)


class _EasyExecutor:
    """A partition of an `App`: it reads what `rows` names, or whole tables, and adds what `run` returns."""

    def __init__(self, app: App, data: Any, first: InitialRows, about: Mapping[str, int], finite: bool) -> None:
        self._app, self._data, self._first, self._finite = app, data, first, finite
        self._specs = {table.name: table for table in tables_of(app)}
        self._about = _accepted(app.run, **about)
        self._takes_rng = bool(_accepted(app.run, rng=None))
        self._takes_staleness = bool(_accepted(app.run, staleness=None))
        #: Rows that `App.rows` named, by clock: it is called once. A thread names those of the next clock while a task
        #: runs on another one, so the dictionary is replaced and never written to.
        self._rows: dict[int, dict[str, RowSet]] = {}
        #: Rows of own tables; the arrays are never written to.
        self._own: dict[str, RowBlock] = {}

    def reads(self, args: Any, group: int) -> Mapping[str, RowSet | None]:
        del args
        rows = self._named(group)
        return {name: rows.get(name) for name, table in self._specs.items() if not table.own}

    def run(self, args: Any, params: Parameters, rng: np.random.Generator) -> tuple[Any, float, int]:
        del args
        clock = params.group
        rows = self._named(clock)
        given = {
            name: self._own_rows(table, rows.get(name)) if table.own else params.get(name, rows.get(name))
            for name, table in self._specs.items()
        }
        more: dict[str, Any] = {"rng": rng} if self._takes_rng else {}
        if self._takes_staleness:
            more["staleness"] = clock - 1 - params.read_group
        work = work_of(self._app.run, self._app.run(self._data, given, clock, **self._about, **more), self._finite)
        try:
            for name, update in work.updates.items():
                if _table(self._specs, name).own:
                    self._add_own(name, rows.get(name), update)
                else:
                    params.add(name, update, rows.get(name))
        except WrongValue as error:
            raise wrong(self._app.run, f"run: {error}") from None
        return None, work.loss_sum, work.examples

    def _named(self, clock: int) -> dict[str, RowSet]:
        found = self._rows.get(clock)
        if found is None:
            found = wants(self._app, list(self._specs.values()), self._data, clock)
            # At most the present clock and the next one are in use.
            self._rows = {before: rows for before, rows in self._rows.items() if before >= clock - 1} | {clock: found}
        return found

    def _own_rows(self, table: TableSpec, rows: RowSet | None) -> Array:
        wanted = slice(0, table.n_rows) if rows is None else rows
        block = self._own.get(table.name)
        if block is None or block.rows is None:
            block = RowBlock(wanted, read_only(self._first(table, wanted)))
        elif not block.has(wanted):
            numbers = distinct_rows((block.rows, wanted))
            values = np.array(self._first(table, numbers))
            values[np.searchsorted(numbers, indices(block.rows))] = block.values
            block = RowBlock(numbers, read_only(values))
        self._own[table.name] = block
        return block.of(wanted)

    def _add_own(self, name: str, rows: RowSet | None, update: Any) -> None:
        block = self._own[name]
        assert block.rows is not None
        update = as_update(self._specs[name], update, rows, self._finite)
        if rows is None or same(rows, block.rows):
            after = added(block.values, update)
        else:
            at = np.searchsorted(indices(block.rows), indices(rows))
            update = RowDelta(at, update)
            after = added(block.values, update)
        check_sum(name, (update,), block.values)
        if self._finite:
            check_finite(name, after)
        self._own[name] = RowBlock(block.rows, read_only(after))


class _EasyExecutorWithState(_EasyExecutor):
    """A partition of an `App` with own tables."""

    def snapshot(self) -> Arrays:
        state: Arrays = {}
        for name, block in self._own.items():
            rows = block.rows
            state[name] = block.values
            state[rows_name(name)] = np.array([[rows.start, rows.stop]]) if isinstance(rows, slice) else rows  # type: ignore[assignment]
        return state

    def restore(self, state: Arrays) -> None:
        blocks = {name: own_rows(table, state) for name, table in self._specs.items() if table.own}
        self._own = {name: block for name, block in blocks.items() if block is not None}


class Resident:
    """The executor of a partition on this node, and the state that it is in.

    Parameters
    ----------
    data : Any
        What the application has prepared of the partition.
    finite : bool
        Whether losses that are not finite are refused.

    Notes
    -----
    `reads` is called on one thread while a task runs on another one.
    """

    def __init__(self, app: Application, data: Any, partition: int, n_partitions: int, finite: bool = True) -> None:
        self._make, self._finite = partial(app.executor, data, partition, n_partitions), finite
        self._lock = threading.Lock()
        self._executor: Executor | None = None
        #: The state that it is in, by identity; None: its first one.
        self._state: object = None

    def reads(self, args: Any, group: int) -> Mapping[str, RowSet | None]:
        """Return what a task is known to read."""
        with self._lock:
            executor = self._executor = self._executor or self._new()
        reads = getattr(executor, "reads", None)
        return {} if reads is None else rows_of(reads, reads(args, group))

    def run(
        self, before: Arrays | None, args: Any, params: Parameters, rng: np.random.Generator
    ) -> tuple[Any, float, int, Arrays | None]:
        """Run a task from the state `before` (None: the first one); return its result and the state after it."""
        executor = self._in_state(before)
        self._state = _UNKNOWN  # it may raise
        result, loss, examples = task_of(executor.run, executor.run(args, params, rng), self._finite)
        after = state_of(executor.snapshot, executor.snapshot()) if isinstance(executor, HasState) else None
        self._state = after
        return result, loss, examples, after

    def _new(self) -> Executor:
        executor: Executor = executor_of(self._make, self._make())
        return executor

    def _in_state(self, before: Arrays | None) -> Executor:
        with self._lock:
            executor = self._executor
            if executor is None or (before is None and self._state is not None and isinstance(executor, HasState)):
                executor = self._executor = self._new()
                self._state = None
        if before is not None and self._state is not before and isinstance(executor, HasState):
            executor.restore(before)
        return executor


_UNKNOWN = object()


def _accepted(function: Callable[..., Any], **available: Any) -> dict[str, Any]:
    """Return those of `available` that a function has parameters for."""
    names: Iterable[str] = inspect.signature(function).parameters
    return {name: value for name, value in available.items() if name in names}
