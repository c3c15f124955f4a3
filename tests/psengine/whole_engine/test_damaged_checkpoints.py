"""Checkpoints are written between losses; of a damaged one an older one is used, with the bits of one process."""

from __future__ import annotations

import asyncio

import pytest

from proteus_spot.psengine.controller.recovery import DAMAGED
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import check, job, run_job, started

#: (application, what of a checkpoint is damaged).
CASES = (("Descent", "all"), ("Tally", "states"))


async def until_kept(cluster: WiredCluster, count: int) -> None:
    while len(cluster.store.kept) < count:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("app", "damaged_in"), CASES)
@pytest.mark.parametrize("n_damaged", [1, 2, 3])
def test_an_older_one_is_used_or_the_job_begins_again(
    app: str, damaged_in: str, n_damaged: int, restarted: bool
) -> None:
    cluster = WiredCluster(3, Trouble())
    config = job(app, n_reliable=1, checkpoint_s=0.1)
    lines: list[str] = []

    async def damage(cluster: WiredCluster) -> None:
        await until_kept(cluster, 3)
        for name in ("r1", "t1"):
            await cluster.kill(name)
        kept = cluster.store.kept
        cluster.store.damaged, cluster.store.damaged_in = {one.name for one in kept[:n_damaged]}, damaged_in
        if restarted:
            await cluster.lose_controller(config)
        cluster.start("r2", "reliable")
        cluster.start("t2")
        used = f"the checkpoint of clock {kept[n_damaged].clock}" if n_damaged < 3 else "the beginning"
        while not any(DAMAGED in line and f"to {used}" in line for line in lines):
            await asyncio.sleep(0.01)
            lines[:] = [reason for _, reason in cluster.shell.controller.job.rollbacks]

    run_job(cluster, config, ("r1", "t1"), damage)
    check(cluster, app)
    assert f"{cluster.shell.controller.job.damage}".startswith(DAMAGED)


def test_they_are_written_where_servers_are_lost_more_often_than_checkpoints_are_due() -> None:
    cluster = WiredCluster(0, Trouble())

    async def losses(cluster: WiredCluster) -> None:
        await started(cluster)
        for number in range(2, 5):
            cluster.start(f"t{number}")
            await asyncio.sleep(4.0)
            await cluster.kill(f"t{number - 1}")
            await asyncio.sleep(1.0)
        newest = cluster.store.newest
        assert newest is not None
        tasks = cluster.shell.controller.job.tasks
        assert tasks is not None
        assert newest.group > tasks.common // 2
        await cluster.shell.stop("enough")

    config = job("Descent", n_reliable=1, clocks=10**6, checkpoint_s=6.0, stage_2_above=0.5)
    run_job(cluster, config, ("r1", "t1"), losses, 3000.0)
    assert len(cluster.shell.controller.job.rollbacks) >= 3
