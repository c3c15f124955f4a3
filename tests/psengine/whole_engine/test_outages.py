"""The store is away for a while: nodes that could not read are asked again, and the model has every bit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proteus_spot.psengine.config import JobError
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster, numbered
from tests.support.simulated_jobs import check, job, run_job

LIMIT_S = 4_000.0


def train(cluster: WiredCluster, reliable: int, transient: int, **config: Any) -> None:
    nodes = [*(f"r{number}" for number in range(reliable)), *(f"t{number}" for number in range(transient))]
    run_job(cluster, job("Descent", n_reliable=reliable, **config), nodes, limit_s=LIMIT_S)


@pytest.mark.parametrize("away_s", [8.0, 900.0])
def test_a_store_that_was_away_at_the_beginning_is_read_when_it_is_back(away_s: float) -> None:
    def load(partition: int) -> dict[str, Any]:
        if asyncio.get_running_loop().time() < away_s:
            raise OSError("the store is away")
        return numbered(partition)

    cluster = WiredCluster(0, Trouble(), load)
    train(cluster, 1, 2)
    check(cluster, "Descent")
    begun_s = cluster.shell.controller.job.progress.started_s
    assert begun_s is not None
    assert away_s < begun_s < away_s + 70.0


def test_data_that_are_not_there_fail_the_job() -> None:
    def load(partition: int) -> dict[str, Any]:
        raise JobError("part-00001.npz: is not there")

    cluster = WiredCluster(0, Trouble(), load)
    train(cluster, 1, 1)
    assert cluster.shell.controller.job.state == "failed"
    assert cluster.shell.controller.job.reason.count("is unfit: JobError: part-00001.npz: is not there") == 2
