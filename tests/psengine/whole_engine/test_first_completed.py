"""A driver that seals each group with those that completed first: the late result is left out, wherever it is."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pytest

from proteus_spot import Driver, TableSpec, Task
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.single_process import drive_alone, initial
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import finished, reached, run_job

GROUPS, PARTITIONS = 20, 4


class Late(Driver):
    """It seals a group when all are completed, without the one that was reported last."""

    def start(self, to: Any, partitions: int, seed: int) -> None:
        self.n, self.group, self.got = partitions, 0, list[int]()
        self.committed(to, 0)

    def completed(self, to: Any, done: Any) -> None:
        self.got = [*self.got, done.task.partition]
        if len(self.got) == self.n:
            to.seal(self.group, self.got[:-1])

    def committed(self, to: Any, group: int) -> None:
        self.group, self.got = group + 1, []
        for partition in range(self.n):
            to.dispatch(Task(partition, self.group))

    def snapshot(self) -> Any:
        return self.n, self.group, self.got

    def restore(self, state: Any) -> None:
        self.n, self.group, self.got = state


class First(Driver):
    """All but the last one of each group count; partitions say how many of their tasks count."""

    def __init__(self) -> None:
        self.n = self.group = 0
        self.got: list[int] = []
        self.counts: list[int] = []
        self.wrong: list[str] = []

    def start(self, to: Any, partitions: int, seed: int) -> None:
        self.n, self.counts = partitions, [0] * partitions
        self._next(to)

    def completed(self, to: Any, done: Any) -> None:
        partition = done.task.partition
        if done.task.group != self.group or len(self.got) == self.n - 1:
            self.wrong = [*self.wrong, f"partition {partition} in group {done.task.group} was left out"]
            return
        if done.result != self.counts[partition]:
            self.wrong = [
                *self.wrong,
                f"partition {partition} had run {done.result} tasks, not {self.counts[partition]}",
            ]
        self.counts = [count + (e == partition) for e, count in enumerate(self.counts)]
        self.got = [*self.got, partition]
        if len(self.got) == self.n - 1:
            to.seal(self.group, self.got)

    def committed(self, to: Any, group: int) -> None:
        if group == GROUPS:
            to.finish(GROUPS, "twenty")
        else:
            self._next(to)

    def _next(self, to: Any) -> None:
        self.group, self.got = self.group + 1, []
        for partition in range(self.n):
            to.dispatch(Task(partition, self.group))

    def remarks(self) -> list[str]:
        return self.wrong

    def figures(self) -> dict[str, float]:
        return {f"counts {partition}": count for partition, count in enumerate(self.counts)}

    def snapshot(self) -> Any:
        return self.n, self.group, self.got, self.counts, self.wrong

    def restore(self, state: Any) -> None:
        self.n, self.group, self.got, self.counts, self.wrong = state


class Counting:
    """It adds 1 to its row, and counts its tasks in its state."""

    def __init__(self, partition: int) -> None:
        self.partition, self.tasks = partition, 0

    def run(self, args: Any, params: Any, rng: Any) -> tuple[Any, float, int]:
        params.add("w", np.ones((1, 1)), np.array([self.partition]))
        self.tasks += 1
        return self.tasks - 1, 1.0, 1

    def snapshot(self) -> Any:
        return {"tasks": np.array(self.tasks)}

    def restore(self, state: Any) -> None:
        self.tasks = int(state["tasks"])


class App:
    def tables(self) -> Any:
        return (TableSpec("w", PARTITIONS, 1, "float64"),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: Any) -> Any:
        return np.zeros((rows[1] - rows[0], 1))

    def prepare(self, arrays: Any) -> None:
        return None

    def executor(self, data: Any, partition: int, n_partitions: int) -> Counting:
        return Counting(partition)

    def __init__(self, late: bool = False) -> None:
        self.late = late

    def driver(self) -> Driver:
        return Late() if self.late else First()

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        return {}


def test_one_process_leaves_the_last_one_out() -> None:
    app = App()
    tables, losses = drive_alone(app, [None] * PARTITIONS, initial(app, 0), GROUPS)
    assert (tables["w"].sum(), sum(losses)) == (GROUPS * (PARTITIONS - 1), GROUPS * (PARTITIONS - 1))


def test_one_that_was_reported_is_left_out_likewise() -> None:
    app, groups = App(late=True), 5
    tables, losses = drive_alone(app, [None] * PARTITIONS, initial(app, 0), groups)
    assert tables["w"].ravel().tolist() == [groups, groups, groups, 0]
    assert sum(losses) == groups * (PARTITIONS - 1)
    cluster = WiredCluster(0, Trouble())
    config = JobConfig(
        "job", f"{__name__}:App", {"late": True}, n_partitions=PARTITIONS, n_shards=2, clocks=groups, n_reliable=1
    )
    run_job(cluster, config, ("r1", "t1"), limit_s=500.0)
    model, result = finished(cluster)
    assert (model["w"].sum(), result["examples_done"]) == (groups * (PARTITIONS - 1),) * 2


@pytest.mark.parametrize("seed", [0, 1, 3, *(pytest.param(seed, marks=pytest.mark.storm) for seed in range(4, 60))])
def test_nodes_leave_the_last_one_out(seed: int) -> None:
    chance = random.Random(seed)
    cluster = WiredCluster(seed, Trouble(usual_s=0.05))
    config = JobConfig(
        "job",
        f"{__name__}:App",
        n_partitions=PARTITIONS,
        n_shards=2,
        clocks=2 * GROUPS,
        n_reliable=1,
        stage_2_above=0.5,
        start_patience_s=3.0,
    )

    async def lose(cluster: WiredCluster) -> None:
        if seed > 1:
            await reached(cluster, chance.randrange(1, GROUPS - 2))
            await asyncio.sleep(chance.random())
            await cluster.kill("t1")
            cluster.start("t3", "transient")

    run_job(cluster, config, ("r1", "t1", "t2"), lose, limit_s=5000.0)
    model, result = finished(cluster)
    assert result.get("remarks") is None
    figures = result["driver_figures"]
    counts = [figures[f"counts {partition}"] for partition in range(PARTITIONS)]
    assert model["w"].ravel().tolist() == counts
    assert sum(counts) == GROUPS * (PARTITIONS - 1)
    assert result["examples_done"] == GROUPS * (PARTITIONS - 1)
