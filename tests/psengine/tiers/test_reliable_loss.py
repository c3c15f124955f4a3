"""Reliable nodes keep copies of each other's shards: the loss of one costs seconds, not a checkpoint interval."""

from __future__ import annotations

import asyncio

import pytest

from proteus_spot.psengine.controller.state import ENDED
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import check, job, run_job


@pytest.mark.parametrize("reliable", [2, 3])
def test_the_loss_of_one_of_several_reliable_nodes_takes_the_job_back_to_their_copies(reliable: int) -> None:
    cluster = WiredCluster(0, Trouble())

    names = {f"r{number}" for number in range(reliable)}

    async def lose(cluster: WiredCluster) -> None:
        controller = cluster.shell.controller
        while not controller.job.tiers.backups.group:
            assert controller.job.state not in ENDED, "it has kept no copies"
            await asyncio.sleep(0.01)
        shards = controller.job.shards.owners
        assert {owner.node for owner in shards} == names
        assert all(controller.job.tiers.backups.backup(owner.shard).node != owner.node for owner in shards)
        await cluster.kill("r0")

    config = job("Descent", stage=1, n_reliable=reliable, checkpoint_s=None)
    run_job(cluster, config, (*sorted(names), "t1", "t2"), lose)
    check(cluster, "Descent")
    (rollback,) = cluster.shell.controller.job.rollbacks
    assert rollback[0] > 0, "there is no checkpoint"
    assert "node r0 was lost with the shards it served" in rollback[1]
