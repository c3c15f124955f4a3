"""Losses of much of the transient tier, told in dribs, and of all of it at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.membership.event_batch import BURST_S, LossBurst
from proteus_spot.psengine.protocol.events import JobStarted, NoticeReceived, TimerFired
from tests.psengine.controller.test_recovery import clocks, join, settle
from tests.support.controller_model import SHARDS, ModelNode, World
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import check, job, run_job


@pytest.mark.parametrize(
    ("losses", "on"),
    [
        ([], False),
        ([(0, 9, 0.0)], False),
        ([(2, 0, 0.0)], False),
        ([(3, 0, 0.0)], True),
        ([(3, 3, 0.0)], False),
        ([(4, 3, 0.0)], True),
        ([(2, 5, 0.0), (2, 3, 1.0)], True),
        ([(2, 5, 0.0), (2, 3, BURST_S)], False),
        ([(4, 3, 0.0), (1, 60, 1.0)], True),
    ],
    ids=str,
)
def test_a_wave_is_more_that_are_lost_together_than_are_left(losses: list[tuple[int, int, float]], on: bool) -> None:
    burst = LossBurst()
    for lost, left, now_s in losses:
        burst.lose(lost, left, now_s)
    assert burst.on is on


def test_a_wave_has_passed_when_nobody_has_been_lost_for_a_time() -> None:
    burst = LossBurst()
    burst.lose(3, 2, 10.0)
    burst.lose(1, 1, 12.0)
    assert not burst.passes(10.0 + BURST_S)
    assert burst.passes(12.0 + BURST_S)
    assert not burst.passes(13.0 + BURST_S), "once"
    assert not burst.on


def training(reliable: int, transient: int) -> tuple[World, list[ModelNode], list[ModelNode]]:
    world = World()
    config = JobConfig("job", n_partitions=2, n_shards=SHARDS, clocks=90, stage_2_above=0.0, start_patience_s=1.0)
    world.anew(config)
    stay = [join(world, f"r{i}", True) for i in range(reliable)]
    go = [join(world, f"t{i}", False) for i in range(transient)]
    world.feed(JobStarted(world.config, 0.0))
    settle(world)
    clocks(world, 3, copies=True)
    assert not {*map(id, world.serving())} & {*map(id, stay)}
    return world, stay, go


def test_a_wave_takes_all_back_once_and_those_who_are_left_serve_when_it_has_passed() -> None:
    world, (r,), go = training(1, 8)
    servers = world.serving()
    first = [*servers[:3], *(node for node in go if node not in servers)][:5]
    world.lose(*first)
    settle(world)
    assert world.serving() == [r], "who is left of its tier is not relied on"
    for node in [node for node in go if node not in first][:2]:
        world.lose(node)
        settle(world)
    assert len(world.controller.job.rollbacks) == 1
    clocks(world, 1, copies=True)
    assert world.serving() == [r]
    world.now_s += BURST_S
    world.feed(TimerFired(world.now_s))
    settle(world)
    clocks(world, 3, copies=True)
    assert world.serving() == [go[-1]]
    assert len(world.controller.job.rollbacks) == 1


def test_nodes_that_were_told_to_go_are_no_wave() -> None:
    world, _, go = training(1, 8)
    for node in go[:7]:
        world.feed(NoticeReceived(node.name, 10.0, world.now_s))
    told = world.now_s
    while world.now_s < told + 9.0:
        clocks(world, 1, copies=True)
        world.now_s += 0.5
        world.feed(TimerFired(world.now_s))
        settle(world)
    world.lose(*go[:7])
    assert not world.controller.job.tiers.loss_burst.on
    settle(world)
    assert world.serving() == [go[7]]
    assert not world.controller.job.rollbacks


def test_what_nobody_keeps_any_more_is_gone_on_with_where_it_is() -> None:
    world, stay, go = training(2, 8)
    shards, backup = world.controller.job.shards, world.controller.job.tiers.backups.backup
    kept = {shard: at.node for shard in range(SHARDS) if (at := backup(shard)) is not None}
    [alone] = [shard for shard, node in kept.items() if node == stay[0].name]
    server = shards.owners[alone].node
    world.lose(stay[0], *(node for node in go if node.name != server))
    assert shards.owners[alone].node == server
    settle(world)
    assert [clock for clock, _ in world.controller.job.rollbacks] == [3], "not to the beginning"
    clocks(world, 2, copies=True)
    assert world.serving() == [stay[1]]


#: Seconds in which those who are left have work again.
AGAIN_S = 2.0


@pytest.mark.parametrize("into_a_clock_s", [0.0, 0.03, 0.1, 0.2, 0.3, 0.4])
@pytest.mark.parametrize("staleness", [0, 1])
def test_when_all_transient_nodes_are_killed_at_once_a_clock_is_lost_and_those_who_are_left_work_at_once(
    staleness: int, into_a_clock_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real shell and agents in virtual time, where clocks last longer than a round of copies and its rest."""
    monkeypatch.setattr("tests.support.simulated_cluster.KERNEL_S", 0.1)
    cluster = WiredCluster(0, Trouble())
    seen: dict[str, Any] = {}

    reliable, transient = ("r1", "r2"), ("t1", "t2", "t3", "t4")

    async def lose(cluster: WiredCluster) -> None:
        loop, controller = asyncio.get_running_loop(), cluster.shell.controller
        while not controller.job.tiers.backups.group:
            await asyncio.sleep(0.01)
        clock = controller.job.history.common
        while controller.job.history.common < clock + 3:
            await asyncio.sleep(0.001)
        await asyncio.sleep(into_a_clock_s)
        assert {owner.node for owner in controller.job.shards.owners} <= {*transient}
        seen["before"], killed_s = controller.job.history.common, loop.time()
        await asyncio.gather(*(cluster.kill(name) for name in transient))
        while not (
            controller.job.rollbacks and controller.job.tasks and any(map(controller.job.tasks.running_on, reliable))
        ):
            await asyncio.sleep(0.01)
        seen["idle_s"] = loop.time() - killed_s

    config = job("Tally", n_reliable=2, stage_2_above=0.5, staleness=staleness)
    run_job(cluster, config, (*reliable, *transient), lose)
    [(clock, _)] = cluster.shell.controller.job.rollbacks
    assert seen["before"] - clock <= 1 + staleness
    assert seen["idle_s"] <= AGAIN_S
    check(cluster, "Tally")
