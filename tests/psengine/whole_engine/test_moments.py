"""A process is lost at the worst moment of a hand-over, a replication round or a recovery: the model is undisturbed.

The real shell and agents in virtual time, over links that lose nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product

import pytest

from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import CONTROLLER, WiredCluster
from tests.support.simulated_jobs import check, job, run_job

APP = "Tally"
#: What begins an operation: a server is given notice, nothing at all, a server is killed.
BEGUN_BY = {"proteus_hand_over": "notice", "proteus_store_backup": "", "proteus_backups": "kill"}
MOMENTS = ("asked", "done", "answered")
VICTIMS = ("who asks", "who answers", "the controller")


class Story:
    """Two reliable and four transient nodes, of which two serve; at the given moment one of those concerned dies."""

    def __init__(self, op: str, moment: str, victim: str) -> None:
        self.cluster = WiredCluster(0, Trouble())
        self.config = job(APP, n_reliable=2, stage_2_above=0.5, checkpoint_s=0.3)
        self.moment, self.victim = (moment, op), victim
        self.struck = ""
        self.watched = False

    @property
    def clock(self) -> int:
        tasks = self.cluster.shell.controller.job.tasks
        return 0 if tasks is None else tasks.common

    def run(self) -> None:
        self.cluster.wires.watch = self.watch
        run_job(self.cluster, self.config, ("r1", "r2", "t1", "t2", "t3", "t4"), self.begin)

    async def begin(self, cluster: WiredCluster) -> None:
        while not (cluster.shell.controller.job.tiers.backups.group and self.clock >= 3):
            await asyncio.sleep(0.001)
        self.watched = True
        match BEGUN_BY[self.moment[1]]:
            case "notice":
                await cluster.shell.notice(self.server(), 0.0)
            case "kill":
                await cluster.kill(self.server())

    def server(self) -> str:
        owners = self.cluster.shell.controller.job.shards.owners
        return next(owner.node for owner in owners if owner.node.startswith("t"))

    def watch(self, moment: str, op: str, asks: str, answers: str) -> None:
        if self.struck or not self.watched or (moment, op) != self.moment:
            return
        if self.victim == "the controller":
            self.struck = CONTROLLER
            self.now(CONTROLLER, partial(self.cluster.lose_controller, self.config))
            return
        address = asks if self.victim == "who asks" else answers
        name = next(node.name for node in self.cluster.nodes.values() if node.address == address)
        self.struck = name
        self.now(address, partial(self.cluster.kill, name))
        if name.startswith("r"):
            self.cluster.after(1.0, partial(self.replace, f"{name}-again"))

    def now(self, address: str, then: Callable[[], Awaitable[None]]) -> None:
        self.cluster.wires.hang_up(address)
        self.cluster.after(0.0, then)

    async def replace(self, name: str) -> None:
        self.cluster.start(name, "reliable")


@pytest.mark.parametrize(("op", "moment", "victim"), list(product(BEGUN_BY, MOMENTS, VICTIMS)))
def test_who_is_lost_at_the_worst_moment_takes_nothing_along(op: str, moment: str, victim: str) -> None:
    story = Story(op, moment, victim)
    story.run()
    assert story.struck, "the moment never came"
    check(story.cluster, APP)
