"""Each fault is planted in an application once, and found; the sound application passes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.application_check import check_application
from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.digests import digest
from proteus_spot.psengine.drivers.ssp import Ssp

PARTS = [{"x": np.arange(6.0) + n, "first": np.array(2 * n)} for n in range(3)]
HELD_OUT = {"x": np.arange(4.0), "y": np.zeros(4, np.int64)}
WHERE = "partition 0, clock 1"


class Planted:
    """An application whose model depends on all that it reads; `fault` names what is wrong with it."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.calls = 0
        self.buffer = np.zeros((5, 2), np.float32)

    def tables(self) -> tuple[Any, ...]:
        kinds = {"table of texts": "U5", "table of objects": "object"}
        names = ("weights", "weights" if self.fault == "names" else "own")
        rows = 0 if self.fault == "no rows" else 6
        return (
            TableSpec(names[0], 5, 2, kinds.get(self.fault, "float32")),
            TableSpec(names[1], rows, 1, "int32", own=True),
        )

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> Any:
        shape = (rows[1] - rows[0], table.n_cols)
        if self.fault == "initial shape":
            return np.zeros((table.n_rows, table.n_cols))
        if self.fault == "initial infinite":
            return np.full(shape, np.inf if table.name == "weights" else 0)
        if self.fault == "initial bits":
            return np.random.default_rng().integers(0, 1 << 30, shape)
        return rng.standard_normal(shape) if table.name == "weights" else rng.integers(0, 9, shape)

    def prepare(self, arrays: Any) -> Any:
        if self.fault == "prepare bits":
            return SimpleNamespace(x=np.random.default_rng().standard_normal(6), first=0)
        if self.fault == "prepare raises":
            raise KeyError("y")
        return SimpleNamespace(x=arrays["x"].copy(), first=int(arrays["first"]))

    def rows(self, data: Any, clock: int) -> Any:
        if self.fault == "rows write":
            data.x[0] = clock
            data.x[1] += 1
        if self.fault == "no such rows":
            return {"own": slice(4, 8)}
        if self.fault == "rows bits":
            self.calls += 1
            return {"own": slice(data.first, data.first + 1 + self.calls % 2)}
        width = 3 if self.fault == "shared rows" and data.first < 4 else 2
        return {} if self.fault == "shared tables" else {"own": slice(data.first, data.first + width)}

    def run(self, data: Any, params: Any, clock: int) -> Any:
        self.calls += 1
        weights, own = params["weights"], params["own"]
        step = (weights * np.float32(data.x.mean()) + np.float32(own.sum() + clock)) * np.float32(0.001)
        if self.fault == "keeps":
            step = step + np.float32(self.calls)
        if self.fault == "data":
            data.x[0] += 1
        if self.fault == "params":
            weights += step
        if self.fault == "params unlocked":
            weights.flags.writeable = True
            weights[0, 0] = clock
        if self.fault == "buffer":
            self.buffer += step
            return Work({"weights": self.buffer}, 0.0, 6)
        updates = {"weights": step, "own": np.ones(own.shape, np.int32)}
        changes: dict[str, dict[str, Any]] = {
            "shape": {"weights": step[:3]},
            "dtype": {"own": np.ones(own.shape, np.float32)},
            "unknown table": {"bias": step},
            "list": {"weights": [[0.0, 0.0]] * 5},
            "nan": {"weights": np.where(np.eye(5, 2) > 0, np.nan, step).astype(np.float32)},
        }
        results = {"no work": None, "loss": Work(updates, float("nan"), 6), "examples": Work(updates, 0.0, -1)}
        return results.get(self.fault, Work({**updates, **changes.get(self.fault, {})}, float(step.sum()), 6))

    def evaluate(self, params: Any, heldout: Any) -> Any:
        if self.fault == "evaluate writes":
            heldout["x"][0] += 1
        return [1.0] if self.fault == "figures" else {"sum": float(params["weights"].sum())}

    predicts = "number"

    def predict(self, params: Any, arrays: Any) -> Any:
        return arrays["x"][: 2 if self.fault == "predictions" else None]


def faults(fault: str) -> tuple[str, ...]:
    copies = [{name: array.copy() for name, array in part.items()} for part in PARTS]
    held = {name: array.copy() for name, array in HELD_OUT.items()}
    return check_application(Planted(fault), copies, held, seed=3).faults


def test_a_sound_application_passes_with_the_same_bits_in_either_order() -> None:
    one = check_application(Planted(), PARTS, HELD_OUT, 3)
    other = check_application(Planted(), PARTS, HELD_OUT, 3, backwards=True)
    assert one.faults == other.faults == ()
    assert one.digests == other.digests
    assert len([call for call in one.digests if call.startswith("run")]) == 6
    changed = check_application(Planted(), PARTS, HELD_OUT, 4)
    assert changed.digests[f"run, {WHERE}"] != one.digests[f"run, {WHERE}"]


SHARED = (
    "to partition 0 and to partition 1; with own=True each row belongs to one partition: give each other rows, or "
    "leave out own"
)
FINITE = "want finite numbers, or `nan: allow` in the job"
OTHER_BITS = "other bits the second time; seed what is random from the clock and the data"


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("table of texts", "tables: table 'weights' is of U5; want a type of numbers, as in float32"),
        ("table of objects", "tables: table 'weights' is of object; want a type of numbers, as in float32"),
        ("names", "tables: the names are weights, weights; want one or more, and distinct ones"),
        ("no rows", "tables: table 'own' is 0 x 1; want at least 1 x 1"),
        ("initial shape", "initial, shard 0: rows 0 to 1 of table 'weights' are of shape (5, 2): want (2, 2)"),
        ("initial infinite", f"initial, shard 0: rows 0 to 1 of table 'weights' hold inf in row 0, column 0: {FINITE}"),
        ("initial bits", f"initial, shard 0: {OTHER_BITS}"),
        ("prepare bits", "prepare, partition 0: other data the second time; seed what is random from the arrays"),
        ("prepare raises", "prepare, partition 0: raises KeyError: 'y'"),
        ("rows write", f"rows, {WHERE}: writes to `data`; copy what changes"),
        (
            "no such rows",
            f"rows, {WHERE}: raises ValueError: slice(4, 8, None) is not a run of the 6 rows of table 'own'",
        ),
        ("rows bits", f"rows, {WHERE}: {OTHER_BITS}"),
        ("shared rows", f"rows, clock 1: table 'own': row 2 belongs {SHARED}"),
        ("shared tables", f"rows, clock 1: table 'own': 6 rows from 0 to 5 belong {SHARED}"),
        ("keeps", f"run, {WHERE}: {OTHER_BITS}"),
        ("data", f"run, {WHERE}: writes to `data`; copy what changes"),
        ("params", f"run, {WHERE}: writes to params['weights']; copy it first"),
        ("params unlocked", f"run, {WHERE}: writes to params['weights']; copy it first"),
        ("buffer", f"run, {WHERE}: the second call writes to what the first one returned; return new arrays"),
        ("shape", f"run, {WHERE}: the update of table 'weights' is (3, 2): want (5, 2)"),
        ("dtype", f"run, {WHERE}: the update of table 'own' is of float32: the table is of int32; round and cast it"),
        ("unknown table", f"run, {WHERE}: an update of table 'bias' came: the tables are weights, own"),
        ("list", f"run, {WHERE}: the update of table 'weights' is a list: want a NumPy array of shape (5, 2)"),
        ("nan", f"run, {WHERE}: the update of table 'weights' holds nan in row 0, column 0: {FINITE}"),
        ("no work", f"run, {WHERE}: returns None: want Work(updates, loss_sum, examples)"),
        ("loss", f"run, {WHERE}: the loss is nan: {FINITE}"),
        ("examples", f"run, {WHERE}: the number of examples is -1: want a whole number from 0"),
        ("evaluate writes", "evaluate: writes to its arguments; copy them first"),
        ("figures", "evaluate: returns a list: want a dict of numbers by name"),
        ("predictions", "predict: returns values of shape (2,) for 4 examples: want one for each"),
    ],
)
def test_each_planted_fault_is_named_once(fault: str, line: str) -> None:
    found = faults(fault)
    assert line in found
    assert len([each for each in found if each.split(": ", 1)[1] == line.split(": ", 1)[1]]) == 1


def test_what_an_application_keeps_between_calls_shows_in_the_order_of_the_partitions() -> None:
    class ByTurn(Planted):
        """The bits depend on which partition ran before, twice the same."""

        before: tuple[int, int] = (-1, -1)

        def run(self, data: Any, params: Any, clock: int) -> Any:
            if self.before[1] != data.first:
                self.before = self.before[1], data.first
            return Work({"weights": np.full((5, 2), self.before[0], np.float32)}, 0.0, 6)

    one, other = (check_application(ByTurn(), PARTS, HELD_OUT, 3, backwards) for backwards in (False, True))
    assert one.faults == other.faults == ()
    assert one.digests != other.digests


def test_digests_see_every_bit_and_end_on_cycles() -> None:
    ring: list[Any] = [1.0]
    ring.append(ring)
    assert digest(ring) == digest(ring)
    assert digest({"a": -0.0}) != digest({"a": 0.0})
    assert digest(np.zeros(2)) != digest(np.zeros(2, np.float32))
    assert digest(np.zeros((2, 3))) != digest(np.zeros((3, 2)))
    assert digest(np.array([["a"]], object)) != digest(np.array([["b"]], object))
    assert digest(np.arange(6).reshape(2, 3).T) == digest(np.arange(6).reshape(2, 3).T.copy())
    assert digest(SimpleNamespace(a=1)) != digest(SimpleNamespace(a=2))


class Averages(Planted):
    """Partitions with state in place of `run`."""

    def executor(self, data: Any, partition: int, n_partitions: int) -> Any:
        application = self

        class Average:
            def run(self, args: Any, params: Any, rng: np.random.Generator) -> tuple[Any, float, int]:
                application.calls += application.fault == "kept"
                data.x[0] += application.fault == "data"
                value = np.nan if application.fault == "nan" else rng.standard_normal() + application.calls
                params.add("weights", np.full((5, 2), value + params.get("weights").mean() + data.x.mean(), np.float32))
                return None, float("inf") if application.fault == "infinite" else 0.5, len(data.x)

        return Average()

    def tables(self) -> tuple[Any, ...]:
        return (TableSpec("weights", 5, 2),)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("", ""),
        ("kept", f"run: {OTHER_BITS}"),
        ("data", "run, partition 0: writes to `data`; copy what changes"),
        ("nan", f"run: the update of table 'weights' holds nan in row 0, column 0: {FINITE}"),
        ("infinite", f"run: the loss is inf: {FINITE}"),
    ],
)
def test_executors_are_run_twice(fault: str, line: str) -> None:
    copies = [{name: array.copy() for name, array in part.items()} for part in PARTS]
    report = check_application(Averages(fault), copies, HELD_OUT, seed=3)
    assert line in report.faults if fault else report.faults == ()
    assert ("run" in report.digests) == (fault not in ("nan", "infinite"))


class Drives(Averages):
    """Its driver does one thing that is not allowed."""

    def driver(self) -> Any:
        fault = self.fault

        class Wrong(Ssp):
            def figures(self) -> Any:
                return {"a": [1.0]} if fault == "figures" else {}

            def remarks(self) -> Any:
                return "all is well" if fault == "remarks" else []

            def committed(self, to: Any, group: int) -> None:
                if fault == "raises":
                    raise KeyError("group")
                super().committed(to, group)

        return None if fault == "driver" else Wrong(0)


@pytest.mark.parametrize(
    ("fault", "lines"),
    [
        ("", ()),
        ("driver", ("driver: returns None without start: want a Driver",)),
        ("figures", ("driver: figures: 'a' is a list: want one number",)),
        ("remarks", ("driver: remarks: returns 'all is well': want a list of texts",)),
        ("raises", ("driver: raises KeyError: 'group'",)),
    ],
)
def test_what_a_driver_says_is_checked(fault: str, lines: tuple[str, ...]) -> None:
    copies = [{name: array.copy() for name, array in part.items()} for part in PARTS]
    assert check_application(Drives(fault), copies, HELD_OUT, seed=3).faults == lines
