"""Reliable nodes keep copies of each other's shards: the loss of one costs seconds, not a checkpoint interval."""

from __future__ import annotations

import asyncio

import pytest

from psengine.controller.state import ENDED
from tests.psengine.whole_engine.test_wires import LIMIT_S, check, ended, job
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.virtual_time import run_virtual


@pytest.mark.parametrize("reliable", [2, 3])
def test_the_loss_of_one_of_several_reliable_nodes_takes_the_job_back_to_their_copies(reliable: int) -> None:
    cluster = WiredCluster(0, Trouble())

    async def story() -> None:
        cluster.open()
        controller = cluster.shell.controller
        try:
            for number in range(reliable):
                cluster.start(f"r{number}", "reliable")
            for name in ("t1", "t2"):
                cluster.start(name)
            await cluster.shell.start(job("Descent", stage=1, n_reliable=reliable, checkpoint_s=None).to_dict())
            while not controller.tiers.backups.clock:
                assert controller.state not in ENDED, "it has kept no copies"
                await asyncio.sleep(0.01)
            shards = controller.shards.owners
            assert {owner.node for owner in shards} == {f"r{number}" for number in range(reliable)}
            assert all(controller.tiers.backups.backup_owner(owner.shard).node != owner.node for owner in shards)
            await cluster.kill("r0")
            await ended(cluster)
        finally:
            await cluster.close()

    run_virtual(story(), LIMIT_S)
    check(cluster, "Descent")
    (rollback,) = cluster.shell.controller.rollbacks
    assert rollback[0] > 0, "there is no checkpoint"
    assert "node r0 was lost with the shards it served" in rollback[1]
