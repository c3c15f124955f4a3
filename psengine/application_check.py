"""Check of an application before it is trained: each task twice, with all bits compared.

The engine repeats tasks, runs them speculatively, and hands one `data` to several threads. An application that is
not made for that trains without an error and ends with wrong numbers; here each such fault becomes a line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.base import App, Application, MakesDriver, Predicts, Work
from proteus_spot.psengine.apps.registry import initial_arrays
from proteus_spot.psengine.apps.residents import checked_updates, wants
from proteus_spot.psengine.apps.returned import figures_of, predictions_of, tables_of, work_of
from proteus_spot.psengine.config import JobError, TableSpec
from proteus_spot.psengine.digests import digest
from proteus_spot.psengine.read_order_check import ReadOrder
from proteus_spot.psengine.scheduling.driver_host import DriverFailed
from proteus_spot.psengine.single_process import advance, drive_alone, train_alone
from proteus_spot.psengine.snapshot_check import NOT_PICKLED, SnapshotCheck
from proteus_spot.psengine.tables.allowed_values import WrongValue
from proteus_spot.psengine.tables.row_owners import SharedRowError, refuse_shared
from proteus_spot.psengine.tables.row_sets import RowBlock, RowSet, read_only
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.sharding import Arrays, Sharding
from proteus_spot.psengine.tables.tree_sum import Delta
from proteus_spot.psengine.tables.update_rules import drop_optimizer_state, init_optimizer_state

#: Number of clocks that are run; the second one reads what the first one has changed.
CLOCKS = 2
#: Number of shards that the initial values are asked for; with one, a range would always be the full table.
_SHARDS = 2
_READ_ONLY = "read-only"


@dataclass(frozen=True)
class CheckReport:
    """Result of a check.

    Attributes
    ----------
    faults : a line each that names the method, the partition, and the clock.
    digests : digest of every bit of the result, by call, as in ``run, partition 1, clock 2``; equal in every process
        unless the application depends on the process.
    """

    faults: tuple[str, ...]
    digests: Mapping[str, str]


def check_application(
    app: App | Application,
    parts: Sequence[Mapping[str, NDArray[Any]]],
    heldout: Mapping[str, NDArray[Any]],
    seed: int,
    backwards: bool = False,
) -> CheckReport:
    """Run every method of an application twice on real data, and compare the bits.

    Parameters
    ----------
    parts, heldout
        Arrays of each input partition, and of the held-out part.
    backwards : bool
        Whether the last partition is the first to run, as in the second of two processes: what an application keeps
        between calls then shows in the bits.
    """
    check = _Check(app, seed, backwards)
    check.run(parts, heldout)
    return CheckReport(tuple(f"{call}: {text}" for (_, text), call in check.faults.items()), check.digests)


class _FaultError(Exception):
    """A fault after which the call has no result to go on with."""


class _Check:
    def __init__(self, app: App | Application, seed: int, backwards: bool) -> None:
        self._app: Any = app  # its methods are looked for, not known
        self._seed, self._backwards = seed, backwards
        #: {(method, text): first call with this fault}.
        self.faults: dict[tuple[str, str], str] = {}
        self.digests: dict[str, str] = {}
        self._tables: tuple[TableSpec, ...] = ()

    def run(self, parts: Sequence[Mapping[str, NDArray[Any]]], heldout: Mapping[str, NDArray[Any]]) -> None:
        state = self._guarded("tables", self._initial)
        prepared = [self._guarded(f"prepare, partition {n}", partial(self._prepare, p)) for n, p in enumerate(parts)]
        data = [found[0] for found in prepared if found is not None]
        if state is None or len(data) < len(parts):
            return
        if isinstance(self._app, Application):
            state = self._guarded("run", partial(self._partitions, data, state))
            if state is None:
                return
        for clock in range(1, 1 if isinstance(self._app, Application) else CLOCKS + 1):
            after = self._clock(clock, data, state)
            if after is None:
                return
            state = after
        self._guarded("evaluate", lambda: self._evaluate(state, heldout))
        if isinstance(self._app, Predicts):
            self._guarded("predict", lambda: self._predict(state, heldout))

    def _fault(self, call: str, text: str) -> None:
        self.faults.setdefault((call.partition(",")[0], text), call)

    def _guarded(self, call: str, work: Callable[[], Any]) -> Any:
        """Return the result of `work`; note what it raises as a fault of `call`, and return None."""
        try:
            return work()
        except (_FaultError, WrongValue, JobError) as fault:
            method = f"{call.partition(',')[0]}: "
            # A method that the user's class has beside those of an application is named with its place.
            place = "" if str(fault).startswith(method) else getattr(fault, "place", "")
            self._fault(call, f"{place}: {fault}" if place else str(fault).removeprefix(method))
        except DriverFailed as error:
            cause = error.__cause__ or error
            wrong = isinstance(cause, WrongValue)
            text = str(cause).removeprefix("driver: ") if wrong else f"raises {type(cause).__name__}: {cause}"
            self._fault("driver", text)
        except Exception as error:  # noqa: BLE001 - a user's code may raise any error
            self._fault(call, f"raises {type(error).__name__}: {error}")
        return None

    def _repeated(self, call: str, work: Callable[[], Any]) -> Any:
        """Return the result of `work`, called twice; differing bits are a fault."""
        first = work()
        bits = digest(first)
        second = digest(work())
        if bits != second:
            self._fault(call, "other bits the second time; seed what is random from the clock and the data")
        if digest(first) != bits:
            self._fault(call, "the second call writes to what the first one returned; return new arrays")
        self.digests[call] = bits
        return first

    # -- tables and data --------------------------------------------------------------------------------------------

    def _initial(self) -> Arrays | None:
        tables = self._repeated("tables", lambda: tables_of(self._app))
        for table in tables:
            if not table.n_rows or not table.n_cols:
                raise _FaultError(f"table {table.name!r} is {table.n_rows} x {table.n_cols}; want at least 1 x 1")
        self._tables = tables
        sharding = Sharding(tables, _SHARDS)
        shards = []
        for shard in range(_SHARDS):
            rows = {table.name: sharding.rows(shard, table) for table in tables}
            call = f"initial, shard {shard}"
            shards.append(self._guarded(call, partial(self._repeated, call, partial(self._shard, shard, rows))))
        return None if any(values is None for values in shards) else init_optimizer_state(tables, sharding.join(shards))

    def _shard(self, shard: int, rows: Mapping[str, tuple[int, int]]) -> Arrays:
        return initial_arrays(self._app, self._seed, shard, rows)

    def _prepare(self, arrays: Mapping[str, NDArray[Any]]) -> tuple[Any]:
        data = self._app.prepare({name: array.copy() for name, array in arrays.items()})
        again = self._app.prepare({name: array.copy() for name, array in arrays.items()})
        if digest(data) != digest(again):
            raise _FaultError("other data the second time; seed what is random from the arrays")
        return (data,)

    # -- partitions --------------------------------------------------------------------------------------------------

    def _partitions(self, data: Sequence[Any], state: Arrays) -> Arrays | None:
        """Return the tables after the first groups, of new partitions and a new driver each time."""
        before = [digest(each) for each in data]

        def train(app: Any) -> tuple[Arrays, list[float]]:
            if isinstance(app, MakesDriver):
                return drive_alone(app, data, state, CLOCKS, self._seed)  # type: ignore[arg-type]
            losses: list[float] = []
            after = partial(_note_loss, losses)
            return train_alone(app, data, state, CLOCKS, after, seed=self._seed), losses

        snapshots = SnapshotCheck(self._app)
        try:
            train(snapshots.application())
        except WrongValue:
            if not any(NOT_PICKLED in text for text in snapshots.faults.values()):
                raise
        for call, text in snapshots.faults.items():
            if NOT_PICKLED in text:  # without it nothing can be trained
                self._fault(call, text)
                return None
        tables, losses = self._repeated("run", partial(train, self._app))
        for partition, each in enumerate(data):
            if digest(each) != before[partition]:
                self._fault(f"run, partition {partition}", "writes to `data`; copy what changes")
        for name, array in tables.items():
            _require_finite(f"table {name!r}", array)
        if not np.isfinite(losses).all():
            raise _FaultError(f"the losses of the groups are {losses}; want finite numbers")
        if not self.faults:  # else they may follow from another fault
            for call, text in snapshots.faults.items():
                self._fault(call, text)
            self._check_order(snapshots.order, data, state)
        trained: Arrays = tables
        return trained

    def _check_order(self, order: ReadOrder, data: Sequence[Any], state: Arrays) -> None:
        """Note a task that reads rows which one that its `after` does not name has changed."""
        if order.has_after:  # a driver may send many groups before the first one is committed
            checked = SnapshotCheck(self._app)
            drive_alone(checked.application(), data, state, max(CLOCKS, len(data) + 1), self._seed)
            order = checked.order
        if (found := order.fault()) is not None:
            self._fault(*found)

    # -- tasks ------------------------------------------------------------------------------------------------

    def _clock(self, clock: int, data: Sequence[Any], state: Arrays) -> Arrays | None:
        """Return the tables after a clock; None if a task has no result."""
        partitions = range(len(data))
        wanted = [
            self._guarded(f"rows, partition {n}, clock {clock}", partial(self._rows, n, clock, data[n]))
            for n in partitions
        ]
        if any(rows is None for rows in wanted):
            return None
        self._check_own(clock, wanted)
        updates: dict[int, Delta] = {}
        for n in reversed(partitions) if self._backwards else partitions:
            call = f"run, partition {n}, clock {clock}"
            update = self._guarded(call, partial(self._task, call, data[n], clock, wanted[n], state))
            if update is not None:
                updates[n] = update
        return advance(self._tables, state, [updates[n] for n in partitions]) if len(updates) == len(data) else None

    def _rows(self, partition: int, clock: int, data: Any) -> dict[str, RowSet]:
        before = digest(data)
        call = f"rows, partition {partition}, clock {clock}"
        rows: dict[str, RowSet] = self._repeated(call, lambda: wants(self._app, self._tables, data, clock))
        if digest(data) != before:
            self._fault(call, "writes to `data`; copy what changes")
        return rows

    def _check_own(self, clock: int, wanted: Sequence[Mapping[str, RowSet]]) -> None:
        """Note two partitions that share a row of a partition-local table."""
        for table in filter(lambda table: table.own, self._tables):
            try:
                every = slice(0, table.n_rows)
                refuse_shared(table.name, {n: rows.get(table.name, every) for n, rows in enumerate(wanted)})
            except SharedRowError as error:
                self._fault(f"rows, clock {clock}", str(error))

    def _task(self, call: str, data: Any, clock: int, wanted: Mapping[str, RowSet], state: Arrays) -> Delta:
        full = drop_optimizer_state(self._tables, state)
        params = {name: RowBlock(None, read_only(array)).of(wanted.get(name)) for name, array in full.items()}
        before, tables = digest(data), {name: digest(array) for name, array in params.items()}
        try:
            work = self._repeated(call, lambda: self._work(data, params, clock))
        except WrongValue:
            raise
        except ValueError as error:
            if _READ_ONLY not in str(error):
                raise
            raise _FaultError(self._written(data, params, clock) or f"raises ValueError: {error}") from None
        for name, bits in tables.items():
            if digest(params[name]) != bits:
                self._fault(call, f"writes to params[{name!r}]; copy it first")
        if digest(data) != before:
            self._fault(call, "writes to `data`; copy what changes")
        updates = checked_updates(work.updates, {table.name: table for table in self._tables}, wanted)
        return {name: RowDelta(wanted[name], update) if name in wanted else update for name, update in updates.items()}

    def _work(self, data: Any, params: Mapping[str, NDArray[Any]], clock: int) -> Work:
        return work_of(self._app.run, self._app.run(data, params, clock))

    def _written(self, data: Any, params: Mapping[str, NDArray[Any]], clock: int) -> str:
        """Return which table a task writes to, by running it with arrays that can be written to."""
        copies = {name: array.copy() for name, array in params.items()}
        self._app.run(data, copies, clock)
        written = [name for name, array in copies.items() if digest(array) != digest(params[name])]
        return f"writes to params[{written[0]!r}]; copy it first" if written else ""

    # -- the model --------------------------------------------------------------------------------------------------

    def _evaluate(self, state: Arrays, heldout: Mapping[str, NDArray[Any]]) -> None:
        figures_of(self._app.evaluate, self._on_model("evaluate", state, heldout, self._app.evaluate))

    def _predict(self, state: Arrays, heldout: Mapping[str, NDArray[Any]]) -> None:
        found = self._on_model("predict", state, heldout, self._app.predict)
        if "y" in heldout:
            predictions_of(self._app.predict, found, len(heldout["y"]))

    def _on_model(
        self,
        call: str,
        state: Arrays,
        heldout: Mapping[str, NDArray[Any]],
        method: Callable[[Mapping[str, NDArray[Any]], Mapping[str, NDArray[Any]]], Any],
    ) -> Any:
        params = {name: read_only(array) for name, array in drop_optimizer_state(self._tables, state).items()}
        before = digest(params), digest(heldout)
        found = self._repeated(call, lambda: method(params, heldout))
        if (digest(params), digest(heldout)) != before:
            raise _FaultError("writes to its arguments; copy them first")
        return found


def _note_loss(losses: list[float], clock: int, tables: Arrays, loss: float) -> None:
    del clock, tables
    losses.append(loss)


def _require_finite(what: str, array: NDArray[Any]) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        at = tuple(int(index) for index in np.argwhere(~np.isfinite(array))[0])
        raise _FaultError(f"{what} holds {array[at]} at {list(at)}; want finite numbers")
