"""A driver that says early when the job ends, and what is evaluated: a loss behind that changes neither."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pytest

from proteus_spot import Driver, TableSpec, Task
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.scheduling.driver_host import DriverHost
from proteus_spot.psengine.scheduling.task_table import TaskTable
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import finished, reached, run_job

GROUPS, EVALUATED, PARTITIONS = 30, 20, 4


class Ahead(Driver):
    """It says so in `start`, or when group 3 is committed; `endless`: it goes on to dispatch."""

    def __init__(self, how: str, endless: bool) -> None:
        self.how, self.endless, self.n, self.last = how, endless, 0, 0

    def start(self, to: Any, partitions: int, seed: int) -> None:
        self.n = partitions
        self._next(to)
        if self.how == "start":
            self._say(to)

    def committed(self, to: Any, group: int) -> None:
        if self.how == "early" and group == 3:
            self._say(to)
        if self.endless or self.last < GROUPS:
            self._next(to)

    def _say(self, to: Any) -> None:
        to.finish(GROUPS, "enough")
        to.evaluate(EVALUATED)

    def _next(self, to: Any) -> None:
        self.last += 1
        for partition in range(self.n):
            to.dispatch(Task(partition, self.last))
        to.seal(self.last)

    def snapshot(self) -> Any:
        return self.n, self.last

    def restore(self, state: Any) -> None:
        self.n, self.last = state


class App:
    def __init__(self, how: str, endless: bool) -> None:
        self.how, self.endless = how, endless

    def tables(self) -> Any:
        return (TableSpec("w", PARTITIONS, 1, "float64"),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: Any) -> Any:
        return np.zeros((rows[1] - rows[0], 1))

    def prepare(self, arrays: Any) -> None:
        return None

    def executor(self, data: Any, partition: int, n_partitions: int) -> Any:
        class Executor:
            def run(self, args: Any, params: Any, rng: Any) -> tuple[Any, float, int]:
                params.add("w", np.ones((1, 1)), np.array([partition]))
                return None, 1.0, 1

        return Executor()

    def driver(self) -> Ahead:
        return Ahead(self.how, self.endless)

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        return {"w": float(params["w"].sum())}


def check(how: str, endless: bool, seed: int, losses: int) -> None:
    chance = random.Random(seed)
    cluster = WiredCluster(seed, Trouble())
    config = JobConfig(
        "job",
        f"{__name__}:App",
        {"how": how, "endless": endless},
        n_partitions=PARTITIONS,
        n_shards=2,
        clocks=2 * GROUPS,
        stage_2_above=0.5,
        n_reliable=1,
        start_patience_s=3.0,
    )

    async def lose(cluster: WiredCluster) -> None:
        for number in range(losses):
            await reached(cluster, chance.randrange(1 + 8 * number, 8 + 8 * number) if losses > 1 else 10)
            owners = cluster.shell.controller.job.shards.owners
            served = sorted({owner.node for owner in owners if owner.node.startswith("t")})
            if served:
                await cluster.kill(served[0])
                cluster.start(f"t{10 + number}", "transient")
            await asyncio.sleep(0.1)

    run_job(cluster, config, ("r1", "t1", "t2"), lose, limit_s=5000.0)
    assert cluster.shell.controller.job.rollbacks
    model, result = finished(cluster)
    assert model["w"].ravel().tolist() == [GROUPS] * PARTITIONS
    assert (result["clocks"], result["converged"]) == (GROUPS, "enough")
    assert [clock for clock, _ in result["metrics_by_clock"]] == [EVALUATED, GROUPS]


@pytest.mark.parametrize("how", ["start", "early"])
@pytest.mark.parametrize("endless", [False, True])
def test_what_was_said_of_later_groups_outlives_a_loss(how: str, endless: bool) -> None:
    check(how, endless, 0, losses=1)


@pytest.mark.storm
@pytest.mark.parametrize("seed", range(20))
def test_what_was_said_of_later_groups_outlives_storms(seed: int) -> None:
    check(("start", "early")[seed % 2], bool(seed // 2 % 2), seed, losses=3)


def test_a_checkpoint_holds_what_was_said_of_later_groups() -> None:
    hosts = [DriverHost(lambda: Ahead("early", False), TaskTable(1), 0) for _ in range(2)]
    books = [host._tasks for host in hosts]
    hosts[0].resume(None)
    for group in range(1, 6):
        for task, _ in books[0].ready(None):
            books[0].complete(task.partition, task.group, books[0].start(task.partition, "n").attempt)
        assert books[0].commit_next()
        hosts[0].committed(group)
    assert hosts[0].end == (GROUPS, "enough")
    record = hosts[0].record(5)
    hosts[1].resume(Checkpoint(5, "c", record))
    assert (hosts[1].end, hosts[1].evaluations) == (hosts[0].end, {EVALUATED})
