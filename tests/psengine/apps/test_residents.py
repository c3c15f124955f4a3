"""The easy application as partitions: what it is passed, what its state is, and that any state can be gone on from."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.apps.residents import (
    Resident,
    as_application,
    initial_rows,
    own_tables,
    prepare,
    shared_tables,
    whole_own_tables,
)
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.single_process import initial, train_alone
from proteus_spot.psengine.tables.row_owners import SharedRowError
from proteus_spot.psengine.tables.row_sets import RowBlock, RowSet, read_only
from proteus_spot.psengine.worker.task_parameters import TaskParameters, checked_reads
from tests.support.small_apps import PARTITIONS, Walk

N, ROWS, SHARDS = 3, 4, 2


class Dealt:
    """Its `run` asks for all that it may be passed; a partition has rows of its own, other ones in odd clocks."""

    def tables(self) -> tuple[TableSpec, ...]:
        return TableSpec("sum", 2, 1, "float64"), TableSpec("mine", N * ROWS, 1, own=True)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((rows[1] - rows[0], table.n_cols))

    def prepare(self, arrays: Mapping[str, Any], partition: int, n_partitions: int) -> tuple[int, int]:
        return partition, n_partitions

    def rows(self, data: tuple[int, int], clock: int) -> dict[str, RowSet]:
        first = ROWS * data[0]
        return {"mine": np.array([first, first + 3]) if clock % 2 else slice(first, first + 2)}

    def run(self, data: tuple[int, int], params: Any, clock: int, partition: int, n_partitions: int, rng: Any) -> Work:
        assert data == (partition, n_partitions)
        mine = params["mine"]
        update = (rng.standard_normal(mine.shape) + params["sum"].sum()).astype(np.float32)
        return Work({"mine": update, "sum": np.full((2, 1), float(mine.sum()))}, 0.0, 1)

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        return {}


def plainly(clocks: int, seed: int) -> dict[str, np.ndarray]:
    """What it comes to, by whole tables."""
    app, tables = Dealt(), initial(Dealt(), 5, SHARDS)
    for clock in range(1, clocks + 1):
        total, mine = [], tables["mine"].copy()
        for p in range(N):
            rows = app.rows((p, N), clock)["mine"]
            rng = np.random.default_rng([seed, clock, p])
            work = app.run((p, N), {"mine": tables["mine"][rows], "sum": tables["sum"]}, clock, p, N, rng)
            mine[rows] += work.updates["mine"]
            total.append(work.updates["sum"])
        tables = {"sum": tables["sum"] + (total[0] + (total[1] + total[2])), "mine": mine}
    return tables


def test_users_are_passed_the_partition_the_count_and_dice_and_own_rows_may_change_from_clock_to_clock() -> None:
    data = [prepare(Dealt(), {}, p, N) for p in range(N)]
    found = train_alone(Dealt(), data, initial(Dealt(), 5, SHARDS), 5, seed=9)
    for name, table in plainly(5, 9).items():
        assert found[name].tobytes() == table.tobytes(), name


def test_first_rows_are_those_that_servers_would_begin_with() -> None:
    (table,) = own_tables(Dealt())
    assert [shared.name for shared in shared_tables(Dealt())] == ["sum"]
    whole = initial(Dealt(), 5, SHARDS)["mine"]
    for rows in (slice(3, 9), np.array([0, 5, 6, 11]), slice(4, 4)):
        assert np.array_equal(initial_rows(Dealt(), 5, SHARDS)(table, rows), whole[rows])


def resident(app: Any, partition: int, n: int) -> Resident:
    general = as_application(app, initial_rows(app, 5, SHARDS))
    return Resident(general, prepare(app, {"x": partition}, partition, n), partition, n)


def step(executor: Resident, app: Any, before: Any, group: int) -> Any:
    """Run a task on the tables of clock 0; return its state and what it adds."""
    tables = {table.name: table for table in shared_tables(app)}
    read = {name: RowBlock(None, read_only(initial(app, 5, SHARDS)[name])) for name in tables}
    reads = checked_reads(executor.reads(None, group), tables)
    params = TaskParameters(group, tables, reads, read, lambda table, rows: pytest.fail("all is there"))
    *_, state = executor.run(before, None, params, np.random.default_rng([1, group]))
    return state


def bits(state: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    return {name: np.asarray(array).tobytes() for name, array in state.items()}


@pytest.mark.parametrize(("app", "n"), [(Dealt(), N), (Walk(), PARTITIONS)])
def test_any_state_can_be_gone_on_from_on_any_node_and_again(app: Any, n: int) -> None:
    one, other = resident(app, 2, n), resident(app, 2, n)
    first = step(one, app, None, 1)
    before = bits(first)
    second = step(one, app, first, 2)
    assert bits(first) == before, "a state is not written to"
    assert bits(second) != before
    assert bits(step(one, app, first, 2)) == bits(second), "again, from the state before"
    assert bits(step(other, app, first, 2)) == bits(second), "elsewhere"
    assert bits(step(one, app, None, 1)) == before, "from the first state"


def test_a_state_is_not_trusted_after_a_task_that_has_raised() -> None:
    walk = resident(Walk(), 1, PARTITIONS)
    state = step(walk, Walk(), None, 1)
    after = bits(step(walk, Walk(), state, 2))
    tables = {table.name: table for table in Walk().tables()}
    params = TaskParameters(2, tables, {}, {}, lambda table, rows: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        walk.run(state, None, params, np.random.default_rng(0))
    assert bits(step(walk, Walk(), state, 2)) == after


def test_rows_of_two_partitions_are_refused_and_rows_of_none_are_the_first_ones() -> None:
    app, first = Dealt(), initial_rows(Dealt(), 5, SHARDS)
    states = {p: step(resident(app, p, N), app, None, 1) for p in (0, 2)}
    whole = whole_own_tables(app, states, first)["mine"]
    assert np.array_equal(whole[4:8], initial(app, 5, SHARDS)["mine"][4:8])
    with pytest.raises(SharedRowError, match="2 rows from 0 to 3 belong to partition 0 and to partition 1"):
        whole_own_tables(app, {0: states[0], 1: states[0]}, first)


# -- what a task may do with tables -------------------------------------------------------------------------------


def parameters(fetched: list[Any]) -> TaskParameters:
    tables = {"a": TableSpec("a", 6, 2), "b": TableSpec("b", 3, 1, "int64")}
    values = np.arange(12, dtype=np.float32).reshape(6, 2)

    def fetch(table: str, rows: RowSet | None) -> RowBlock:
        fetched.append((table, rows))
        return RowBlock(rows, values if rows is None else values[rows])

    reads: dict[str, RowSet | None] = {"a": slice(0, 2)}
    return TaskParameters(1, tables, reads, {"a": RowBlock(slice(0, 3), values[:3])}, fetch)


def test_only_rows_that_are_not_there_are_fetched_and_each_once() -> None:
    fetched: list[Any] = []
    params = parameters(fetched)
    assert params.get("a", slice(0, 2)).tolist() == [[0, 1], [2, 3]]
    assert params.get("a", np.array([0, 2])).tolist() == [[0, 1], [4, 5]]
    assert not fetched
    for _ in range(2):
        assert params.get("a", np.array([1, 5])).tolist() == [[2, 3], [10, 11]]
    assert len(fetched) == 1


def test_additions_to_one_table_add_up_whatever_their_form() -> None:
    params = parameters([])
    params.add("a", np.ones((2, 2), np.float32), slice(0, 2))
    params.add("a", np.full((2, 2), 2, np.float32), np.array([1, 4]))
    rows, values = params.updates()["a"].rows, params.updates()["a"].values  # type: ignore[union-attr]
    total = np.zeros((6, 2))
    total[rows] = values
    assert total[:, 0].tolist() == [1, 3, 0, 0, 2, 0]
    params.add("a", np.ones((6, 2), np.float32))
    assert params.updates()["a"][:, 0].tolist() == [2, 4, 1, 1, 3, 1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("table", "delta", "rows", "says"),
    [
        ("c", np.ones((1, 1)), None, "table 'c' is not known: the tables are a, b"),
        ("a", np.ones((2, 2)), slice(5, 7), "is not a run of the 6 rows of table 'a'"),
        ("a", np.ones((3, 2)), slice(0, 2), r"the update of table 'a' is \(3, 2\): want \(2, 2\)"),
        ("b", np.ones((3, 1)), None, "the update of table 'b' is of float64: the table is of int64"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(table: str, delta: Any, rows: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parameters([]).add(table, delta, rows)


def test_the_example_of_the_pages_learns_and_reads_the_inputs_of_its_batch_alone() -> None:
    made = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "examples" / "minibatch.py"))
    rng = np.random.default_rng(0)
    x = (rng.random((300, 40)) < 0.1).astype(np.float32)
    y = (x @ rng.standard_normal(40) > 0).astype(np.int64)
    app = made["Minibatches"](40, 300, batch=8, step=2.0)
    parts = [app.prepare({"x": x[p::N], "y": y[p::N]}) for p in range(N)]
    tables = train_alone(app, parts, initial(app, 0), 200)
    assert app.evaluate(tables, {"x": x, "y": y})["accuracy"] > 0.85
    executor = app.executor(parts[0], 0, N)
    read: list[Any] = []
    params = SimpleNamespace(get=lambda table, rows: read.append(rows) or np.zeros((len(rows), 1)), add=lambda *_: None)
    executor.run(None, params, rng)
    assert 0 < len(read[0]) < 40


class Meanwhile(int):
    """A clock: as soon as it is compared with others, a task of the clock before is run."""

    def __new__(cls, clock: int, task: Callable[[], object]) -> Self:
        made = super().__new__(cls, clock)
        made.task = task
        return made

    task: Callable[[], object]

    def __sub__(self, other: int) -> Meanwhile:
        return Meanwhile(int(self) - other, self.task)

    def __le__(self, other: int) -> bool:
        self.task()
        return int(self) <= other


def test_rows_of_the_next_clock_may_be_named_while_a_task_runs() -> None:
    app = Dealt()
    executor = resident(app, 1, N)
    executor.reads(None, 1)
    ran: list[int] = []

    def task() -> None:
        if not ran:
            ran.append(1)
            step(executor, app, None, 1)

    executor.reads(None, Meanwhile(2, task))
    assert ran == [1]
