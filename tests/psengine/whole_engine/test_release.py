"""Nodes that join are sent their input from memory; nodes that are asked to go are released, and how soon is noted."""

import asyncio
from typing import Any

import pytest

from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import Meanwhile, check, job, reached, run_job


def trained(app: str, staleness: int, befalls: Meanwhile) -> WiredCluster:
    cluster = WiredCluster(0, Trouble(usual_s=0.05))
    run_job(cluster, job(app, staleness=staleness), ("r1", "r2", "t1"), befalls)
    check(cluster, app)
    return cluster


def test_a_node_that_joins_is_sent_its_partitions_and_reads_none() -> None:
    async def befalls(cluster: WiredCluster) -> None:
        await reached(cluster, 5)

        def absent(partition: int) -> dict[str, Any]:
            raise OSError(f"partition {partition} is read from storage")

        cluster.load = absent
        cluster.start("t2")
        while (node := cluster.shell.controller.job.members.nodes.get("t2")) is None or node.state == "joining":
            await asyncio.sleep(0.1)
        assert node.state == "ready"
        assert node.holds

    cluster = trained("Descent", 0, befalls)
    assert cluster.shell.controller.job.history.traffic.figures()["bytes_moved"]["input"] > 0


@pytest.mark.parametrize("asked", ["drain", "notice"])
def test_how_long_a_node_took_to_be_released_is_in_the_result(asked: str) -> None:
    async def befalls(cluster: WiredCluster) -> None:
        await reached(cluster, 5)
        if asked == "drain":
            assert (await cluster.shell.drain(["t1"], 60.0))["draining"] == ["t1"]
        else:
            await cluster.shell.notice("t1", 3.0)

    cluster = trained("Descent", 0, befalls)
    assert cluster.store.result is not None
    (release,) = cluster.store.result["releases"]
    assert (release["node"], release["event"]) == ("t1", asked)
    assert 0.0 < release["seconds"] < 60.0
