"""Each fault of a snapshot is planted in a partition or a driver once, and found; the sound application passes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.application_check import check_application
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.drivers.interface import Dispatcher, Done, Driver, Task

AFTER_RESTORE = "comes to other bits after restore(snapshot()); the state must hold"
DECIDES = "it decides otherwise after restore(snapshot()); the state must hold"
KEPT = "what it keeps between tasks needs `snapshot` and `restore`"
PARTS = [{"x": np.arange(6.0) + n} for n in range(3)]


class Application:
    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec("weights", 5, 2),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> Any:
        return rng.random((rows[1] - rows[0], 2))

    def prepare(self, arrays: Any) -> Any:
        return arrays["x"]

    def executor(self, data: Any, partition: int, n_partitions: int) -> Any:
        return (NoSnapshot if self.fault == "no snapshot" else Walker)(data, self.fault)

    def driver(self) -> Driver:
        return Sums(self.fault)

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        return {"sum": float(params["weights"].sum())}


class NoSnapshot:
    """It walks through its examples, in an order that it shuffles."""

    def __init__(self, data: Any, fault: str) -> None:
        self.data, self.fault = data, fault
        self.order, self.at, self.forgotten = np.arange(len(data)), 0, 0

    def run(self, args: int, params: Any, rng: np.random.Generator) -> tuple[float, float, int]:
        self.at = (self.at + 1) % len(self.data)
        self.forgotten += self.fault == "forgets"
        if self.fault in ("shares", "writes to the restored"):
            rng.shuffle(self.order)
        else:
            self.order = rng.permutation(self.order)
        value = self.data[self.order[self.at]] + args + self.forgotten
        params.add("weights", np.full((5, 2), 0.01 * value * params.get("weights").mean(), np.float32))
        return float(value), 0.5, 1


class Walker(NoSnapshot):
    def snapshot(self) -> Any:
        if self.fault == "no arrays":
            return {"order": self.order, "at": self.at}
        order = self.order if self.fault == "shares" else self.order.copy()
        return {"order": order, "at": np.array(self.at)}

    def restore(self, state: Any) -> None:
        self.order = state["order"] if self.fault == "writes to the restored" else state["order"].copy()
        self.at = int(state["at"])


class Sums(Driver):
    """What it dispatches depends on what has come back."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.n, self.group, self.results, self.lock = 0, 0, dict[int, float](), threading.Lock()

    def start(self, to: Dispatcher, partitions: int, seed: int) -> None:
        self.n = partitions
        self._dispatch(to)

    def completed(self, to: Dispatcher, done: Done) -> None:
        self.results[done.task.partition] = done.result

    def committed(self, to: Dispatcher, group: int) -> None:
        self._dispatch(to)

    def snapshot(self) -> Any:
        results = self.results if self.fault == "driver shares" else dict(self.results)
        lock = self.lock if self.fault == "driver does not pickle" else None
        return self.n, self.group, {} if self.fault == "driver forgets" else results, lock

    def restore(self, state: Any) -> None:
        self.n, self.group, results, _ = state
        self.results = dict(results)

    def _dispatch(self, to: Dispatcher) -> None:
        self.group += 1
        for partition in range(self.n):
            to.dispatch(Task(partition, self.group, round(sum(self.results.values()))))
        to.seal(self.group)


@pytest.mark.parametrize(
    ("fault", "lines"),
    [
        ("", ()),
        ("shares", ("snapshot, partition 0: later calls write to what it returned; return copies",)),
        (
            "writes to the restored",
            ("restore, partition 0: a later task writes to the arrays of the state; copy them",),
        ),
        ("no arrays", ("snapshot, partition 0: does not pickle: want a dict of arrays of numbers or texts by name",)),
        (
            "forgets",
            (f"restore, partition 0: the task {AFTER_RESTORE} all that `run` changes",),
        ),
        (
            "no snapshot",
            (f"run, partition 0: a new partition comes to other bits; {KEPT}",),
        ),
        ("driver shares", ("driver, snapshot: later calls write to what it returned; return copies",)),
        (
            "driver does not pickle",
            ("driver, snapshot: does not pickle: TypeError: cannot pickle '_thread.lock' object",),
        ),
        (
            "driver forgets",
            (f"driver, committed: {DECIDES} all that its methods change",),
        ),
    ],
)
def test_each_planted_fault_is_one_line(fault: str, lines: tuple[str, ...]) -> None:
    assert check_application(Application(fault), PARTS, {"y": np.zeros(2)}, seed=3).faults == lines
