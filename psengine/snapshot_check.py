"""Check of the snapshots of partitions and drivers, while an application is trained in one process.

Before each task, and before each call of the driver, the snapshot is restored in a new object, which then does the
same: it must give the same bits. The engine relies on that when a partition moves, and when a job rolls back.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.base import HasState, Parameters
from proteus_spot.psengine.apps.returned import checked_driver
from proteus_spot.psengine.digests import digest
from proteus_spot.psengine.drivers.interface import Dispatcher, Done, Task
from proteus_spot.psengine.read_order_check import ReadOrder
from proteus_spot.psengine.scheduling.driver_host import Resumes
from proteus_spot.psengine.tables.row_sets import RowSet

#: Begins the fault of a snapshot that no process can send to another one.
NOT_PICKLED = "does not pickle"
_WRITTEN = "later calls write to what it returned; return copies"


class SnapshotCheck:
    """The faults of one application's snapshots: {call: text}, the first of each call.

    Attributes
    ----------
    order : ReadOrder
        What the tasks have read and written.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self.faults: dict[str, str] = {}
        self.order = ReadOrder()

    def application(self) -> Any:
        """Return the application with executors, and a driver if it has one, that check themselves while they run."""
        return _Application(self._app, self._fault, self.order)

    def _fault(self, call: str, text: str) -> None:
        self.faults.setdefault(call, text)


_Fault = Callable[[str, str], None]


class _Application:
    """The application; what is not here is the checked one's."""

    def __init__(self, app: Any, fault: _Fault, order: ReadOrder) -> None:
        self._app, self._fault, self._order = app, fault, order
        if hasattr(app, "driver"):
            self.driver = self._driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    def executor(self, data: Any, partition: int, n_partitions: int) -> Any:
        make = partial(self._app.executor, data, partition, n_partitions)
        kind = _ExecutorWithState if isinstance(make(), HasState) else _Executor
        return kind(make, partition, self._fault, self._order)

    def _driver(self) -> Any:
        driver = checked_driver(self._app.driver, self._app.driver())
        return driver if isinstance(driver, Resumes) else _Driver(self._app.driver, driver, self._fault, self._order)


# -- partitions ------------------------------------------------------------------------------------------------------


class _Executor:
    """A partition without state: a new one gives the same bits."""

    def __init__(self, make: Callable[[], Any], partition: int, fault: _Fault, order: ReadOrder) -> None:
        self._make, self._partition, self._fault, self._order = make, partition, fault, order
        self._where = f"partition {partition}"
        self._executor = make()
        if hasattr(self._executor, "reads"):
            self.reads = self._executor.reads

    def run(self, args: Any, params: Parameters, rng: np.random.Generator) -> tuple[Any, float, int]:
        result, bits, others = self._twice(self._make(), args, params, rng)
        if bits != others:
            self._fault(
                f"run, {self._where}",
                "a new partition comes to other bits; what it keeps between tasks needs `snapshot` and `restore`",
            )
        return result

    def _twice(
        self, twin: Any, args: Any, params: Parameters, rng: np.random.Generator
    ) -> tuple[tuple[Any, float, int], str, str]:
        """Run a task, and in `twin`, whose updates do not count; return the result and both digests."""
        again, ours, theirs = copy.deepcopy(rng), _Recorded(params, self._partition, self._order), _Recorded(params)
        result = self._executor.run(args, ours, rng)
        return result, digest([result, ours.added]), digest([twin.run(args, theirs, again), theirs.added])


class _ExecutorWithState(_Executor):
    """A partition with state: one that its snapshot is restored in gives the same bits and state."""

    def run(self, args: Any, params: Parameters, rng: np.random.Generator) -> tuple[Any, float, int]:
        state, where = self._executor.snapshot(), self._where
        sent = self._sent(state)
        if sent is None:
            return self._executor.run(args, params, rng)  # type: ignore[no-any-return]
        before, twin = digest(state), self._make()
        twin.restore(sent)
        result, bits, others = self._twice(twin, args, params, rng)
        if digest(state) != before:
            self._fault(f"snapshot, {where}", _WRITTEN)
        if digest(sent) != before:
            self._fault(f"restore, {where}", "a later task writes to the arrays of the state; copy them")
        if (bits, digest(self._executor.snapshot())) != (others, digest(twin.snapshot())):
            self._fault(
                f"restore, {where}",
                "the task comes to other bits after restore(snapshot()); the state must hold all that `run` changes",
            )
        return result

    def snapshot(self) -> Mapping[str, NDArray[Any]]:
        return self._executor.snapshot()  # type: ignore[no-any-return]

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._executor.restore(state)

    def _sent(self, state: Any) -> Any:
        """Return a state as another process gets it; None if it cannot be sent."""
        if not isinstance(state, Mapping) or not all(
            isinstance(array, np.ndarray) and not array.dtype.hasobject for array in state.values()
        ):
            self._fault(f"snapshot, {self._where}", f"{NOT_PICKLED}: want a dict of arrays of numbers or texts by name")
            return None
        return {name: array.copy() for name, array in state.items()}


class _Recorded:
    """The tables as a task has them; `added` is what it adds, which counts if it is given the `order`."""

    def __init__(self, params: Parameters, partition: int = 0, order: ReadOrder | None = None) -> None:
        self._params, self._partition, self._order = params, partition, order
        self.group = params.group
        self.added: list[str] = []

    def get(self, table: str, rows: RowSet | None = None) -> NDArray[np.generic]:
        found = self._params.get(table, rows)
        if self._order is not None:
            self._order.read(self.group, self._partition, table, rows)
        return found

    def add(self, table: str, delta: NDArray[np.generic], rows: RowSet | None = None) -> None:
        if self._order is not None:
            self._params.add(table, delta, rows)
            self._order.added(self.group, self._partition, table, delta, rows)
        self.added.append(digest([table, delta, rows]))


# -- drivers --------------------------------------------------------------------------------------------------------


class _Driver:
    """A driver: one that its snapshot is restored in does the same."""

    def __init__(self, make: Callable[[], Any], driver: Any, fault: _Fault, order: ReadOrder) -> None:
        self._make, self._driver, self._fault, self._order = make, driver, fault, order
        self.next_task, self.vanished, self.returned = driver.next_task, driver.vanished, driver.returned
        #: Snapshots that were returned, and what they were then.
        self._returned: list[tuple[Any, str]] = []

    def start(self, to: Dispatcher, partitions: int, seed: int) -> None:
        self._driver.start(_Decisions(to, self._order), partitions, seed)

    def completed(self, to: Dispatcher, done: Done) -> None:
        self._call("completed", to, done)

    def committed(self, to: Dispatcher, group: int) -> None:
        self._order.committed = group
        self._call("committed", to, group)

    def snapshot(self) -> Any:
        """Return a copy: a snapshot that does not pickle is a fault, and the training is to find others."""
        state = self._driver.snapshot()
        try:
            copied = pickle.loads(pickle.dumps(state))
        except Exception as error:  # noqa: BLE001 - a user's classes may raise any error
            self._fault("driver, snapshot", f"{NOT_PICKLED}: {type(error).__name__}: {error}")
            return None
        self._returned = [*self._returned[-1:], (state, digest(state))]
        return copied

    def restore(self, state: Any) -> None:
        self._driver.restore(state)

    def _call(self, method: str, to: Dispatcher, argument: Any) -> None:
        state, ours, theirs = self.snapshot(), _Decisions(to, self._order), _Decisions()
        if state is None:
            getattr(self._driver, method)(ours, argument)
            return
        twin = self._make()
        twin.restore(state)
        getattr(self._driver, method)(ours, argument)
        getattr(twin, method)(theirs, copy.deepcopy(argument))
        if any(digest(state) != before for state, before in self._returned):
            self._fault("driver, snapshot", _WRITTEN)
        if (ours.made, digest(self._driver.snapshot())) != (theirs.made, digest(twin.snapshot())):
            self._fault(
                f"driver, {method}",
                "it decides otherwise after restore(snapshot()); the state must hold all that its methods change",
            )


class _Decisions:
    """What a driver does in one call, which counts if it has a dispatcher."""

    def __init__(self, to: Dispatcher | None = None, order: ReadOrder | None = None) -> None:
        self._to, self._order = to, order
        self.made: list[str] = []

    def dispatch(self, task: Task) -> None:
        self._make("dispatch", task)
        if self._order is not None:
            self._order.dispatched(task)

    def seal(self, group: int, members: Collection[int] | None = None) -> None:
        self._make("seal", group, members)

    def evaluate(self, group: int) -> None:
        self._make("evaluate", group)

    def finish(self, group: int, reason: str = "") -> None:
        self._make("finish", group, reason)

    def _make(self, what: str, *arguments: Any) -> None:
        self.made.append(digest([what, *arguments]))
        if self._to is not None:
            getattr(self._to, what)(*arguments)
