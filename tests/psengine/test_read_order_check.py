"""A forgotten `after` is planted in a driver once, and found; what holds by another order is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.application_check import check_application
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.drivers.interface import Driver, Task
from proteus_spot.psengine.drivers.rotation import Rotation
from proteus_spot.psengine.read_order_check import ReadOrder

PARTS = [{"x": np.arange(4.0) + n} for n in range(3)]


class Blocks(Rotation):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def writers(self, group: int, partition: int) -> tuple[int, ...]:
        if self.fault == "forgets" and partition == 2:
            return ()
        if self.fault == "forgets later" and group == 4 and partition == 1:
            return (0,)
        return super().writers(group, partition)


class Block:
    """It works on the two rows of its block."""

    def __init__(self, data: Any, fault: str) -> None:
        self.data, self.fault = data, fault

    def run(self, args: int, params: Any, rng: np.random.Generator) -> tuple[None, float, int]:
        rows = slice(2 * args, 2 * args + 2)
        read = None if self.fault == "reads all" else rows
        found = params.get("weights", read)
        params.add("weights", np.full((2, 1), 0.01 * self.data.sum() * found.mean()), rows)
        return None, 0.5, 1


class Application:
    def __init__(self, fault: str) -> None:
        self.fault = fault

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec("weights", 6, 1, "float64"),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> Any:
        return 1.0 + rng.random((rows[1] - rows[0], 1))

    def prepare(self, arrays: Any) -> Any:
        return arrays["x"]

    def executor(self, data: Any, partition: int, n_partitions: int) -> Block:
        return Block(data, self.fault)

    def driver(self) -> Driver:
        return Blocks(self.fault)

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        return {"sum": float(params["weights"].sum())}


def line(group: int, reader: int, rows: str, writer: int, written: int) -> str:
    return (
        f"driver, group {group}: the task of partition {reader} reads rows {rows} of table 'weights', which partition "
        f"{writer} changes in group {written}; name partition {writer} in its `after`"
    )


@pytest.mark.parametrize(
    ("fault", "lines"),
    [
        ("", ()),
        ("forgets", (line(2, 2, "2-3", 0, 1),)),
        ("forgets later", (line(4, 1, "4-5", 2, 3),)),
        ("reads all", (line(2, 0, "0-1", 2, 1),)),
    ],
)
def test_a_forgotten_writer_is_one_line(fault: str, lines: tuple[str, ...]) -> None:
    assert check_application(Application(fault), PARTS, {"y": np.zeros(2)}, seed=3).faults == lines


ROWS = slice(0, 4)


def order(*tasks: Task, committed: int = 0) -> ReadOrder:
    """Return the order of tasks that each read row 0, and change row 0 if it is of partition 0."""
    noted = ReadOrder()
    noted.committed = committed
    for task in tasks:
        noted.dispatched(task)
        noted.read(task.group, task.partition, "t", np.array([0]))
        delta = np.zeros((4, 1))
        delta[0 if task.partition == 0 else 1] = 1.0
        noted.added(task.group, task.partition, "t", delta, ROWS)
    return noted


def after(partition: int, group: int, *writers: int) -> Task:
    return Task(partition, group, None, "rows", writers)


@pytest.mark.parametrize(
    ("tasks", "committed", "writer"),
    [
        ((Task(0, 1), after(1, 2)), 0, 0),
        ((Task(0, 1), after(1, 2)), 1, None),  # group 1 was committed
        ((Task(0, 1), Task(1, 2, None, "rows")), 0, None),  # it waits for group 1
        ((Task(0, 1), Task(2, 2, None, "rows"), after(1, 3, 2)), 0, None),
        ((Task(0, 1), after(1, 1)), 0, None),  # of its own group it sees nothing
        ((Task(0, 1), after(2, 2, 0), after(1, 3, 2)), 0, None),  # the one that it names came after the writer
        ((Task(0, 1), after(2, 2, 0), after(1, 2), after(2, 3, 0)), 0, 0),
        ((Task(0, 1), after(2, 2, 0), after(2, 3)), 0, None),  # its own task came after the writer
        ((Task(0, 1), after(2, 3), after(1, 2, 0), after(1, 3, 2)), 0, 0),
        ((Task(0, 1), Task(1, 2, None, "parent")), 0, None),  # it says that it may miss some
    ],
)
def test_a_task_comes_after_those_that_are_named(tasks: tuple[Task, ...], committed: int, writer: int | None) -> None:
    found = order(*tasks, committed=committed).fault()
    assert (found is None) == (writer is None)
    if found is not None:
        assert f"reads rows 0 of table 't', which partition {writer} changes in group 1;" in found[1]
