"""Jobs with a driver and partitions with state on the whole engine: the bits of the undisturbed job under any loss."""

import asyncio
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.single_process import drive_alone, initial
from tests.support.driver_world import Loop, Picked, Picky
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import Meanwhile, reached, run_job
from tests.support.simulated_storm import storm

Lasso = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "examples" / "lasso.py"))["Lasso"]

EXAMPLES, INPUTS, PARTITIONS = 60, 12, 5
LIMIT_S = 20_000.0
NODES = ("r1", "r2", "t1", "t2")
CALM = Trouble()


def part(partition: int) -> dict[str, Any]:
    rng = np.random.default_rng([5, partition])
    x = rng.normal(size=(EXAMPLES // PARTITIONS, INPUTS))
    return {"x": x, "y": x[:, :3] @ np.array([2.0, -1.0, 0.5]) + 0.1 * rng.normal(size=len(x))}


def config() -> JobConfig:
    params = {"n_inputs": INPUTS, "n_examples": EXAMPLES, "alpha": 0.05, "at_once": 3}
    return JobConfig(
        "lasso",
        "tests.psengine.whole_engine.test_driver_jobs:Lasso",
        params,
        n_partitions=PARTITIONS,
        n_shards=2,
        clocks=500,
        n_reliable=1,
        start_patience_s=3.0,
        checkpoint_s=2.0,
        stage_2_above=0.5,
    )


def trained(
    seed: int,
    befalls: Meanwhile | None = None,
    trouble: Trouble = CALM,
    job: JobConfig | None = None,
) -> WiredCluster:
    cluster = WiredCluster(seed, trouble, part, part(99))
    run_job(cluster, job or config(), NODES, befalls, LIMIT_S)
    assert cluster.shell.controller.job.state == "finished", cluster.shell.controller.job.reason
    return cluster


@pytest.fixture(scope="module")
def undisturbed() -> WiredCluster:
    return trained(0)


def same(cluster: WiredCluster, undisturbed: WiredCluster) -> bool:
    """Return whether two jobs came to the same model, in the same groups."""
    assert cluster.store.model is not None
    assert undisturbed.store.model is not None
    assert cluster.store.result is not None
    assert undisturbed.store.result is not None
    ours, theirs = cluster.store.model["weights"], undisturbed.store.model["weights"]
    return ours.tobytes() == theirs.tobytes() and cluster.store.result["losses"] == undisturbed.store.result["losses"]


def test_it_has_the_bits_of_one_process(undisturbed: WiredCluster) -> None:
    app = Lasso(**config().app_params)
    parts = [app.prepare(part(partition)) for partition in range(PARTITIONS)]
    tables, losses = drive_alone(app, parts, initial(app, 0, 2), 500)
    assert undisturbed.store.model is not None
    assert undisturbed.store.result is not None
    assert tables["weights"].tobytes() == undisturbed.store.model["weights"].tobytes()
    assert [loss / EXAMPLES for loss in losses] == [loss for _, loss in undisturbed.store.result["losses"]]


def test_one_process_reads_in_two_ways_too() -> None:
    app = Picked(20)
    tables, losses = drive_alone(app, [None] * 6, initial(app, 4), 20, seed=4)
    loop = Loop(Picky(20), 6, 4)
    assert tables["w"].item() == loop.values[-1]
    assert losses == [len(loop.tasks[group]) for group in range(1, 21)]


def test_it_ends_where_the_driver_says(undisturbed: WiredCluster) -> None:
    result = undisturbed.store.result
    assert result is not None
    assert result["converged"] == "no coordinate changes by more than 1e-07"
    assert result["clocks"] < 500
    assert result["metrics"]["squared_error"] < 0.1
    assert result["lost_micro_tasks"] == 0


def test_a_lost_node_takes_executors_with_it_and_nothing_else(undisturbed: WiredCluster) -> None:
    async def befalls(cluster: WiredCluster) -> None:
        await reached(cluster, 8)
        await cluster.kill("t1")
        cluster.start("t3")
        await reached(cluster, 20)
        await cluster.kill("t2")

    cluster = trained(1, befalls)
    assert same(cluster, undisturbed)
    assert cluster.shell.controller.job.rollbacks


def test_another_controller_goes_on_from_the_checkpoint_with_the_driver(undisturbed: WiredCluster) -> None:
    async def befalls(cluster: WiredCluster) -> None:
        while cluster.store.newest is None or cluster.store.newest.group < 5:
            await asyncio.sleep(0.02)
        assert "driver" in cluster.store.newest.summary
        await cluster.lose_controller(config())

    cluster = trained(2, befalls)
    assert same(cluster, undisturbed)


@pytest.mark.storm
@pytest.mark.parametrize("seed", range(60))
def test_storms(seed: int, undisturbed: WiredCluster) -> None:
    async def befalls(cluster: WiredCluster) -> None:
        await storm(cluster, 8)

    assert same(trained(seed, befalls, Trouble(lost=0.03, doubled=0.03)), undisturbed)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.storm) for seed in range(4, 60))])
def test_groups_of_some_executors_that_read_in_two_ways(seed: int) -> None:
    """A read of what is there must not be taken for one of exactly the group before, nor the other way round."""
    groups, partitions = 20, 6
    app = "tests.support.driver_world:Picked"
    job = JobConfig(
        "picked",
        app,
        {"groups": groups},
        "",
        partitions,
        2,
        clocks=groups,
        seed=seed,
        stage_2_above=0.5,
        checkpoint_s=2.0,
    )

    async def befalls(cluster: WiredCluster) -> None:
        if seed % 2:
            await storm(cluster, 4)

    cluster = trained(seed, befalls, Trouble(usual_s=0.05), job)
    loop = Loop(Picky(groups), partitions, seed)
    assert cluster.store.model is not None
    assert cluster.store.model["w"].item() == loop.values[-1]
    assert cluster.store.result is not None
    assert sum(cluster.store.result["micro_tasks_done"].values()) == sum(map(len, loop.tasks.values()))


def test_a_group_is_evaluated_when_the_driver_asks() -> None:
    params = {"groups": 10, "curious": True}
    job = JobConfig("picked", "tests.support.driver_world:Picked", params, "", 6, 2, clocks=10, evaluate_every=4)
    result = trained(0, job=job).store.result
    assert result is not None
    values = Loop(Picky(10), 6, 0).values
    assert result["metrics_by_clock"] == [[clock, {"w": values[clock]}] for clock in (4, 5, 8, 10)]
