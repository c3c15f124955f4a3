"""Nodes that join are sent their input from memory; nodes that are asked to go are released, and how soon is noted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.psengine.whole_engine.test_driver_jobs import LIMIT_S, reached
from tests.psengine.whole_engine.test_wires import check, ended, job
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.virtual_time import run_virtual


def trained(app: str, staleness: int, befalls: Callable[[WiredCluster], Awaitable[None]]) -> WiredCluster:
    cluster = WiredCluster(0, Trouble(usual_s=0.05))

    async def story() -> None:
        cluster.open()
        try:
            for name, tier in (("r1", "reliable"), ("r2", "reliable"), ("t1", "transient")):
                cluster.start(name, tier)  # type: ignore[arg-type]
            await cluster.shell.start(job(app, staleness=staleness).to_dict())
            await befalls(cluster)
            await ended(cluster)
        finally:
            await cluster.close()

    run_virtual(story(), LIMIT_S)
    check(cluster, app)
    return cluster


def test_a_node_that_joins_is_sent_its_partitions_and_reads_none() -> None:
    async def befalls(cluster: WiredCluster) -> None:
        await reached(cluster, 5)

        def absent(partition: int) -> dict[str, Any]:
            raise OSError(f"partition {partition} is read from storage")

        cluster.load = absent
        cluster.start("t2")
        while (node := cluster.shell.controller.members.nodes.get("t2")) is None or node.state == "joining":
            await asyncio.sleep(0.1)
        assert node.state == "ready"
        assert node.holds

    cluster = trained("Descent", 0, befalls)
    assert cluster.shell.controller.history.traffic.figures()["bytes_moved"]["input"] > 0


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
