"""Elastic descent through the engine: whatever vanishes, a job ends at the minimum of the whole objective."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.apps.bgd import ElasticDescent
from proteus_spot.psengine.config import JobConfig
from tests.psengine.apps.bgd.test_losses import examples
from tests.psengine.whole_engine.test_wires import WEATHERS
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import LIMIT_S, ended, finished, run_job, started
from tests.support.simulated_storm import WiredStorm
from tests.support.virtual_time import run_virtual

PARTITIONS = 6
X, Y = examples("logistic", 3, n=60)
PARAMS = {"n_inputs": 5, "n_examples": 60, "n_partitions": PARTITIONS, "n_classes": 3, "l2": 0.05}
#: Solvers, and the number of clocks: L-BFGS ends at the minimum.
RULES: dict[str, tuple[dict[str, Any], int]] = {
    "lbfgs": ({}, 300),
    "searched": ({"solver": "gradient"}, 12),
    "constant": ({"solver": "gradient", "step": 1.0}, 12),
}


def load(partition: int) -> dict[str, Any]:
    return {"x": X[partition::PARTITIONS], "y": Y[partition::PARTITIONS]}


@pytest.mark.parametrize("seed", [s if s in (2, 4) else pytest.param(s, marks=pytest.mark.storm) for s in range(60)])
def test_in_a_storm_it_ends_at_the_minimum(seed: int) -> None:
    rule = list(RULES)[seed % 3 and seed // 2 % 3]
    params, clocks = RULES[rule]
    cluster = WiredCluster(seed, WEATHERS[seed % len(WEATHERS)], load=load, heldout=load(0))
    storm = WiredStorm(cluster)
    storm.names = 3  # t1, t2 and t3
    config = JobConfig(
        "job",
        "bgd",
        PARAMS | params,
        n_partitions=PARTITIONS,
        n_shards=3,
        clocks=clocks,
        start_patience_s=5.0,
        n_reliable=2,
        stage_2_above=[0.5, 1.0, 9.0][seed % 3],
        checkpoint_s=[None, 2.0][seed % 2],
    )

    async def meanwhile(cluster: WiredCluster) -> None:
        await started(cluster)
        await storm.run(10)

    run_job(cluster, config, ("r1", "r2", "t1", "t2", "t3"), meanwhile)
    model, result = finished(cluster)
    weights = model["weights"]
    if rule != "lbfgs":
        assert result["converged"].startswith(f"{clocks} rounds; redone rounds: ")
        return
    assert result["converged"].startswith("no step decreases the objective; redone rounds: ")
    app: Any = ElasticDescent(**PARAMS)  # type: ignore[arg-type]
    whole = app.prepare({"x": X, "y": Y})
    penalty = np.full((6, 1), 0.05)
    penalty[-1] = 0.0
    assert np.abs(whole.gradient(weights)[1] + penalty * weights).max() < 1e-6


def lose_a_node(approximation: str) -> tuple[np.ndarray, dict[str, Any]]:
    """Lose one of three nodes that serve nothing after step 4, and return the model of step 10."""
    cluster = WiredCluster(1, Trouble(), load=load, heldout=load(0))
    config = JobConfig(
        "job",
        "bgd",
        PARAMS | {"solver": "gradient", "approximation": approximation},
        n_partitions=PARTITIONS,
        n_shards=2,
        clocks=10,
        n_reliable=1,
        stage=1,
    )

    async def story() -> None:
        cluster.open()
        try:
            cluster.start("r1", "reliable")
            cluster.start("t1")
            cluster.start("t2")
            await cluster.shell.hold(4)
            await cluster.shell.start(config.to_dict())
            while (await cluster.shell.status())["clock"] < 4:
                await asyncio.sleep(0.1)
            await cluster.kill("t1")
            while (await cluster.shell.status())["nodes"][1]["state"] != "lost":
                await asyncio.sleep(0.1)
            await cluster.shell.hold(None)
            await ended(cluster)
        finally:
            await cluster.close()

    run_virtual(story(), LIMIT_S)
    model, result = finished(cluster)
    assert result["clocks"] == 10
    assert [clock for clock, _ in result["metrics_by_clock"]] == [10], "by clocks, of which each has several groups"
    return model["weights"], result["driver_figures"]


def test_the_sums_that_the_servers_keep_and_a_second_reduce_agree() -> None:
    (kept, figures), (redone, others) = lose_a_node("kept"), lose_a_node("redone")
    both = {"redone_rounds": 1, "approximated": 0, "not_approximated": 0}  # what was lost is back
    assert figures == both | {"second_reduces": 0}
    assert others == both | {"second_reduces": 1}
    np.testing.assert_allclose(kept, redone, atol=1e-12)


def test_partitions_above_the_cap_stay_without_a_node_until_there_are_more_nodes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "proteus_spot.psengine.shell.controller_shell")
    cluster = WiredCluster(2, Trouble(), load=load, heldout=load(0))
    params = PARAMS | {"solver": "gradient"}
    config = JobConfig("job", "bgd", params, n_partitions=6, n_shards=2, clocks=20, stage=1, max_partitions_per_node=2)
    seen: list[list[int]] = []
    figures: dict[str, float] = {}

    async def at_clock(clock: int) -> None:
        """Let the job come to a clock, and note which partitions the driver does without there."""
        await cluster.shell.hold(clock)
        while (await cluster.shell.status())["clock"] < clock:
            await asyncio.sleep(0.1)
        await asyncio.sleep(5.0)
        driver = cluster.shell.controller.job.driver
        assert driver is not None
        seen.append(sorted(driver.absent))

    async def story() -> None:
        cluster.open()
        try:
            cluster.start("r1", "reliable")
            cluster.start("t1")
            await cluster.shell.hold(3)
            await cluster.shell.start(config.to_dict())
            await at_clock(3)
            cluster.start("t2")
            await asyncio.sleep(5.0)
            await at_clock(6)
            await cluster.kill("t1")
            await at_clock(9)
            figures.update((await cluster.shell.status())["driver_figures"])
            await cluster.shell.notice("t2", 5.0)  # it is drained, and nobody may own what it had
            await asyncio.sleep(4.0)
            await cluster.kill("t2")
            await at_clock(12)
            cluster.start("t3")
            await asyncio.sleep(5.0)
            await at_clock(15)
            cluster.start("t4")
            await asyncio.sleep(5.0)
            await at_clock(18)
            owned = [len(node["partitions"]) for node in (await cluster.shell.status())["nodes"] if not node["gone"]]
            assert owned == [2, 2, 2]
            await cluster.shell.hold(None)
            await ended(cluster)
        finally:
            await cluster.close()

    run_virtual(story(), LIMIT_S)
    _, result = finished(cluster)
    first, second = set(seen[2]), set(seen[3]) - set(seen[2])
    assert [len(absent) for absent in seen] == [2, 0, 2, 4, 2, 0]
    assert set(seen[4]) == second, f"those that were lost first, {first}, return first"
    assert result["driver_figures"]["redone_rounds"] == 2
    assert result["driver_figures"]["not_approximated"] == 2
    left_out = f"round 0: partitions {', '.join(map(str, seen[0]))} are away and were in no step yet: they are left out"
    assert result["remarks"] == [f"{left_out} until they are back, without an approximation"]
    assert caplog.messages.count(result["remarks"][0]) == 1
    assert [figures[name] for name in ("approximated", "not_approximated", "redone_rounds")] == [2, 2, 1], "t1 is away"
