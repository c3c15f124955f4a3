"""Checkpoints take nothing from those who serve and work: in stages 2 and 3 they are read from the backups' copies."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.support.lossy_network import Trouble, machine
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import CLOCKS, LIMIT_S, check, job, run_job
from tests.support.virtual_time import run_virtual


@pytest.mark.parametrize(("stage", "asked"), [(2, "proteus_backups"), (3, "proteus_backups"), (1, "proteus_gather")])
def test_a_checkpoint_asks_backups_where_there_are_any(stage: int, asked: str) -> None:
    cluster = WiredCluster(0, Trouble())
    #: {(op, tier of whoever answers)} of what the controller asks for while clocks go by
    seen: Counter[tuple[str, str]] = Counter()

    def watch(moment: str, op: str, asks: str, answers: str) -> None:
        tasks = cluster.shell.controller.job.tasks
        if (
            moment == "asked"
            and op in ("proteus_gather", "proteus_backups")
            and tasks is not None
            and tasks.common < CLOCKS
        ):
            tier = next(node.name for node in cluster.nodes.values() if node.address == answers)[0]
            seen[op, tier] += 1

    cluster.wires.watch = watch
    run_job(cluster, job("Descent", stage=stage, checkpoint_s=0.1), ("r1", "t1", "t2", "t3", "t4"))
    check(cluster, "Descent")
    assert cluster.shell.controller.job.checkpoints.group > 0
    assert set(seen) == {(asked, "r")}


def test_a_checkpoint_that_is_due_when_a_backup_is_gone_is_of_all_shards() -> None:
    cluster = WiredCluster(0, Trouble())
    seen: Counter[str] = Counter()

    def watch(moment: str, op: str, asks: str, answers: str) -> None:
        seen[op] += moment == "asked"

    async def lose(cluster: WiredCluster) -> None:
        while cluster.shell.controller.job.checkpoints.group < 3:
            await asyncio.sleep(0.001)
        before = cluster.shell.controller.job.checkpoints.group
        cluster.wires.watch = watch
        with pytest.MonkeyPatch.context() as patch:  # the next round of copies is a while away
            patch.setattr(cluster.shell.controller.job.tiers.backups, "due", lambda now_s, rarely: False)
            await cluster.kill("r2")
            async with asyncio.timeout(30.0):
                while cluster.shell.controller.job.checkpoints.group == before:
                    await asyncio.sleep(0.001)
        assert seen["proteus_gather"], "the servers have all of it"

    run_job(cluster, job("Descent", stage=2, checkpoint_s=0.05), ("r1", "r2", "t1", "t2", "t3", "t4"), lose)
    check(cluster, "Descent")
    assert cluster.shell.controller.job.rollbacks == []


def test_where_copies_come_to_nothing_a_checkpoint_is_of_those_who_serve() -> None:
    """Else the newest one would be of the last whole round for ever, and the next loss throw the job back to there."""
    cluster = WiredCluster(0, Trouble(usual_s=0.1))  # few clocks while the copies wait for their deadlines

    async def story() -> None:
        cluster.open()
        controller = cluster.shell.controller
        cluster.shell._watch._links.look = lambda ends, now_s: None  # type: ignore[method-assign] # nobody fixes it
        try:
            cluster.start("r1", "reliable")
            for name in ("t1", "t2", "t3"):
                cluster.start(name)
            await cluster.shell.start(job("Descent", stage=3, checkpoint_s=0.1, clocks=20_000).to_dict())
            while not controller.job.tiers.backups.group:
                await asyncio.sleep(0.01)
            served, backup = machine(controller.job.shards.owners[0].address), machine("sim://r1/1")
            cluster.wires.cuts |= {(served, backup), (backup, served)}
            while not controller.job.tiers.backups.failing:
                await asyncio.sleep(0.01)
            kept = controller.job.tiers.backups.group
            while controller.job.checkpoints.group <= kept + 10:
                await asyncio.sleep(0.1)
            assert controller.job.tiers.backups.group == kept
        finally:
            await cluster.close()

    run_virtual(story(), LIMIT_S)
