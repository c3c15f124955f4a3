"""Blocks that rotate: a task waits for the last writer of its block alone, and the bits are those of one process."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.config import JobConfig, Momentum, TableSpec
from proteus_spot.psengine.drivers.interface import Dispatcher, Done, Driver, Task
from proteus_spot.psengine.scheduling.dispatcher import BatchDispatcher
from proteus_spot.psengine.single_process import drive_alone, initial
from proteus_spot.psengine.tables.row_sets import RowBlock
from proteus_spot.psengine.worker.task_parameters import WrittenRows
from tests.psengine.whole_engine.test_driver_jobs import LIMIT_S, NODES
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import Meanwhile, run_job
from tests.support.simulated_storm import storm

BLOCKS, WIDTH, GROUPS, DEPTH = 6, 3, 30, 3


class Rotation:
    """Each partition has a number as state; what it adds to a block depends on that and on all of the block's bits."""

    def __init__(self, ruled: bool = False) -> None:
        self.ruled = ruled

    def tables(self) -> tuple[TableSpec, ...]:
        table = TableSpec("blocks", BLOCKS * WIDTH, 2, "float64")
        return (TableSpec("blocks", BLOCKS * WIDTH, 2, "float64", rule=Momentum(0.1)) if self.ruled else table,)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        return rng.random((rows[1] - rows[0], table.n_cols))

    def prepare(self, arrays: Mapping[str, Any]) -> None:
        return None

    def executor(self, data: None, partition: int, n_partitions: int) -> Turner:
        return Turner(partition)

    def driver(self) -> Rotating:
        return Rotating()

    def evaluate(self, params: Mapping[str, Any], heldout: Mapping[str, Any]) -> dict[str, float]:
        return {"sum": float(params["blocks"].sum())}


class Turner:
    def __init__(self, number: int) -> None:
        self.value = np.float64(number + 1)

    def reads(self, args: int, group: int) -> dict[str, slice]:
        return {"blocks": slice(args * WIDTH, (args + 1) * WIDTH)}

    def run(self, args: int, params: Any, rng: np.random.Generator) -> tuple[float, float, int]:
        rows = self.reads(args, params.group)["blocks"]
        block = params.get("blocks", rows)
        self.value = 0.7 * self.value + block.sum() / 3.0
        params.add("blocks", (block * self.value) % 1.0 - 0.3 * block, rows)
        return float(self.value), float(self.value), 1

    def snapshot(self) -> dict[str, np.ndarray]:
        return {"value": np.array([self.value])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.value = state["value"][0]


class Rotating(Driver):
    def __init__(self) -> None:
        self.n = self.last = 0

    def start(self, to: Dispatcher, partitions: int, seed: int) -> None:
        self.n = partitions
        for _ in range(DEPTH):
            self._dispatch(to)

    def committed(self, to: Dispatcher, group: int) -> None:
        self._dispatch(to)

    def completed(self, to: Dispatcher, done: Done) -> None:
        pass

    def passes(self, group: int, examples: int) -> float:
        return group / self.n

    def snapshot(self) -> Any:
        return self.n, self.last

    def restore(self, state: Any) -> None:
        self.n, self.last = state

    def _dispatch(self, to: Dispatcher) -> None:
        self.last += 1
        for partition in range(self.n):
            block = (partition + self.last) % self.n
            to.dispatch(Task(partition, self.last, block, "rows", after=self._writers(partition)))
        to.seal(self.last)

    def _writers(self, partition: int) -> tuple[int, ...]:
        return ((partition + 1) % self.n,)


class Forgetful(Rotation):
    """Its driver names no writers."""

    def driver(self) -> Rotating:
        return Forgetting()


class Forgetting(Rotating):
    def _writers(self, partition: int) -> tuple[int, ...]:
        return ()


def trained(
    seed: int,
    befalls: Meanwhile | None = None,
    ruled: bool = False,
    calm: Trouble | None = None,
    app: str = "Rotation",
    **config: Any,
) -> WiredCluster:
    trouble = Trouble(lost=0.02, doubled=0.05, usual_s=0.05) if befalls else calm or Trouble()
    cluster = WiredCluster(seed, trouble)
    job = JobConfig(
        "rotation",
        f"tests.psengine.whole_engine.test_rotation:{app}",
        {"ruled": ruled},
        n_partitions=BLOCKS,
        n_shards=4,  # blocks lie across shards
        passes=GROUPS // BLOCKS,
        stage_2_above=0.5,
        checkpoint_s=2.0,
        **config,
    )
    run_job(cluster, job, NODES, befalls, LIMIT_S)
    return cluster


@pytest.fixture(scope="module")
def alone() -> np.ndarray:
    app = Rotation()
    tables, _ = drive_alone(app, [None] * BLOCKS, initial(app, 0, 4), GROUPS)
    return tables["blocks"]


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.storm) for seed in range(3, 60))])
def test_it_has_the_bits_of_one_process_whatever_befalls(seed: int, alone: np.ndarray) -> None:
    async def befalls(cluster: WiredCluster) -> None:
        await storm(cluster, 4)

    cluster = trained(seed, befalls if seed else None)
    assert cluster.shell.controller.job.state == "finished", cluster.shell.controller.job.reason
    assert cluster.store.model is not None
    assert cluster.store.model["blocks"].tobytes() == alone.tobytes()
    assert cluster.store.result is not None
    assert (cluster.store.result["clocks"], cluster.store.result["passes"]) == (GROUPS, GROUPS / BLOCKS)


def test_a_block_is_handed_over_on_a_node_and_that_is_seen(alone: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the next reader on the node gets the block without what was added to it."""
    handed, after = [], WrittenRows.after

    def without(self: WrittenRows, tables: Collection[str]) -> dict[str, RowBlock]:
        handed.append(after(self, tables))
        return {table: RowBlock(self.named[table], self.read[table].of(self.named[table])) for table in tables}

    monkeypatch.setattr(WrittenRows, "after", without)
    cluster = trained(0)
    assert len(handed) >= GROUPS, "of six blocks, some stay on their node"
    assert cluster.store.model is not None
    assert cluster.store.model["blocks"].tobytes() != alone.tobytes()


def test_a_group_is_shorter_where_links_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages take up to 50 ms, and kernels 20 ms."""

    def group_s() -> float:
        cluster = trained(0, calm=Trouble(usual_s=0.05))
        assert cluster.store.result is not None
        seconds = cluster.store.result["seconds_by_clock"][6:]
        return float(sum(seconds) / len(seconds))

    early_s = group_s()
    monkeypatch.setattr(BatchDispatcher, "_following", lambda *args: {})
    assert early_s < 0.75 * group_s()


def test_a_table_with_an_update_rule_cannot_be_read_before_its_group_is_committed() -> None:
    controller = trained(0, ruled=True).shell.controller
    assert controller.job.state == "failed"
    assert "wants table 'blocks', whose update rule is applied to whole groups" in controller.job.reason
    assert "\n" not in controller.job.reason


def test_a_training_whose_driver_forgets_a_writer_fails_and_never_ends_with_other_bits(alone: np.ndarray) -> None:
    """Whether a read comes too early is a matter of the messages; if one does, the job fails."""
    reasons = []
    for seed in range(6):
        cluster = trained(seed, app="Forgetful", calm=Trouble(usual_s=0.05))
        controller = cluster.shell.controller
        if controller.job.state == "finished":
            assert cluster.store.model is not None
            assert cluster.store.model["blocks"].tobytes() == alone.tobytes()
        else:
            reasons.append(controller.job.reason)
    assert reasons
    task = r"(the task of partition \d|one of the tasks of partitions \d[\d, ]+) in group \d+"
    rows = r"(row \d+|\d rows from \d+ to \d+) of table 'blocks'"
    late = rf"{task} has read {rows} before {task} has changed them: the driver has to name"
    for reason in reasons:
        assert re.fullmatch(
            rf"partition \d, clock \d+, on node \w+: ValueError: {late} that partition in `after`", reason
        )


class Relay(Rotation):
    """One after the other, partition 0 writes the last row, 2 the first one, and 4 the last one again."""

    def executor(self, data: None, partition: int, n_partitions: int) -> Runner:
        return Runner(partition)

    def driver(self) -> Relaying:
        return Relaying()


class Runner:
    def __init__(self, number: int) -> None:
        self.rows = np.array([0 if number == 2 else BLOCKS * WIDTH - 1])

    def run(self, args: int, params: Any, rng: np.random.Generator) -> tuple[float, float, int]:
        seen = params.get("blocks", self.rows)
        params.add("blocks", 0.25 * seen + params.group, self.rows)
        return 0.0, float(seen.sum()), 1


class Relaying(Rotating):
    def _dispatch(self, to: Dispatcher) -> None:
        self.last += 1
        partition = 2 * ((self.last - 1) % 3)
        to.dispatch(Task(partition, self.last, 0, "rows", after=((partition - 2) % 6,)))
        to.seal(self.last)


def test_a_task_comes_after_those_that_its_writers_came_after_on_servers_that_these_did_not_read() -> None:
    app = Relay()
    tables, _ = drive_alone(app, [None] * BLOCKS, initial(app, 0, 4), GROUPS)
    for seed in range(8):
        cluster = trained(seed, app="Relay", calm=Trouble(usual_s=0.05), stage=1)  # two servers
        assert cluster.shell.controller.job.state == "finished", cluster.shell.controller.job.reason
        assert cluster.store.model is not None
        assert cluster.store.model["blocks"].tobytes() == tables["blocks"].tobytes()


class Staying(Rotation):
    """Each partition stays with its block: what a task reads was written by the one before it of its partition."""

    def executor(self, data: None, partition: int, n_partitions: int) -> Stayer:
        return Stayer(partition)

    def driver(self) -> Forgetting:
        return Forgetting()


class Stayer(Turner):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def reads(self, args: int, group: int) -> dict[str, slice]:
        return super().reads(self.number, group)


def test_a_task_that_is_sent_early_sees_what_its_executor_has_written() -> None:
    app = Staying()
    tables, _ = drive_alone(app, [None] * BLOCKS, initial(app, 0, 4), GROUPS)
    for seed in range(2):
        cluster = trained(seed, app="Staying", calm=Trouble(usual_s=0.05))
        assert cluster.shell.controller.job.state == "finished", cluster.shell.controller.job.reason
        assert cluster.store.model is not None
        assert cluster.store.model["blocks"].tobytes() == tables["blocks"].tobytes()
