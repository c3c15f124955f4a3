"""Nodes that join while a training goes on are planned for together, and shards stay until they are there."""

from __future__ import annotations

import pytest

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.membership.event_batch import JoinBatching
from proteus_spot.psengine.protocol.events import (
    NodeJoined,
    NodeReady,
    NoticeReceived,
    ShardsNotTaken,
    ShardsTaken,
    TimerFired,
)
from proteus_spot.psengine.protocol.instructions import BackUp, Instruction, LoadPartitions, TakeShards
from proteus_spot.psengine.tables.tree_sum import largest_subtrees
from proteus_spot.psengine.telemetry.event_log import LayoutChanged
from tests.support.controller import done, started
from tests.support.controller_invariants import check_invariants


def test_another_one_is_waited_for_but_not_for_ever() -> None:
    joins = JoinBatching()
    assert not joins.due(0.0)
    for now_s in (1.0, 1.4, 1.8):
        joins.add(now_s)
        assert not joins.due(now_s + 0.4)
    assert joins.due(2.3)
    assert not joins.due(9.0), "once"
    for tenths in range(100, 130, 4):
        joins.add(tenths / 10)
    assert not joins.due(12.9)
    assert joins.due(13.0), "the first one has waited for three seconds"


def test_shards_stay_until_those_who_were_planned_for_have_loaded() -> None:
    joins = JoinBatching()
    assert not joins.may_serve_soon(1.0, loading=True), "nobody has come since the training began"
    joins.add(1.0)
    assert joins.may_serve_soon(1.2, loading=True)
    assert joins.due(1.5)
    assert joins.may_serve_soon(9.0, loading=True)
    assert not joins.may_serve_soon(9.1, loading=False), "all are there"
    assert not joins.may_serve_soon(9.2, loading=True)
    joins.add(10.0)
    assert joins.due(10.5)
    assert not joins.may_serve_soon(31.0, loading=True), "who loads for long is not waited for"


@pytest.mark.parametrize("many", [15, 63])
def test_many_who_join_one_after_the_other_are_one_plan(many: int) -> None:
    """Each of them receives one instruction to load, of a run that it adds up before it sends it; shards move once."""
    n, names = 4 * (many + 1), [f"t{i}" for i in range(many)]
    controller, dispatch = started(JobConfig("bulk", n_partitions=n, n_shards=12, clocks=99, stage_3_above=99.0))
    orders = list[Instruction]()
    for i, name in enumerate(names):
        orders += controller.handle(NodeJoined(name, f"tcp://{name}", "transient", 1, 1.0 + i / 20 * 15 / many))
    assert not [o for o in orders if isinstance(o, LoadPartitions)]
    loads = {o.node: o for o in controller.handle(TimerFired(2.3)) if isinstance(o, LoadPartitions)}
    assert set(loads) == set(names)
    assert [len(largest_subtrees(load.partitions, n)) for load in loads.values()] == [1] * len(names)
    changes = len(controller.job.history.log.of(LayoutChanged))
    for load in loads.values():
        orders += controller.handle(NodeReady(load.node, load.address, load.request, load.partitions, 2.5))
    orders += controller.handle(done(dispatch, 3.0))
    assert not [o for o in orders if isinstance(o, LoadPartitions)]
    assert len(controller.job.history.log.of(LayoutChanged)) == changes + 1, (
        "one change of the layout, and none on the way"
    )
    assert [o.node for o in orders if isinstance(o, BackUp)] == ["r"]
    check_invariants(controller.job)


@pytest.mark.parametrize(("apart_s", "most"), [(0.5, 1), (2.0, 2), (10.0, 15)])
def test_those_who_load_for_long_serve_together_as_far_as_they_come_together(apart_s: float, most: int) -> None:
    names = [f"t{i}" for i in range(15)]
    controller, _ = started(JobConfig("slow", n_partitions=64, n_shards=12, clocks=99))
    for name in names:
        controller.handle(NodeJoined(name, f"tcp://{name}", "transient", 1, 1.0))
    loads = [o for o in controller.handle(TimerFired(2.2)) if isinstance(o, LoadPartitions)]
    changes, now_s = len(controller.job.history.log.of(LayoutChanged)), 30.0
    for load in loads:
        controller.handle(NodeReady(load.node, load.address, load.request, load.partitions, now_s))
        for _ in range(round(apart_s / 0.25)):
            now_s += 0.25
            controller.handle(TimerFired(now_s))
    assert 1 <= len(controller.job.history.log.of(LayoutChanged)) - changes <= most
    assert (
        {owner for owner in controller.job.tiers.layout.owners} <= set(names) if controller.job.tiers.layout else False
    )
    check_invariants(controller.job)


def test_a_notice_does_not_wait_for_those_who_load() -> None:
    controller, _ = started(JobConfig("told", n_partitions=8, n_shards=2, clocks=99, n_reliable=1))
    controller.handle(NodeJoined("s", "tcp://s", "reliable", 1, 1.0))
    (load,) = (o for o in controller.handle(TimerFired(1.5)) if isinstance(o, LoadPartitions))
    orders = controller.handle(NodeReady("s", "tcp://s", load.request, load.partitions, 2.0))
    for take in (o for o in orders if isinstance(o, TakeShards)):
        controller.handle(ShardsTaken(take.node, take.address, take.shards, take.epoch, 2.1))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 3.0))
    controller.handle(TimerFired(3.5))
    orders = controller.handle(NoticeReceived("s", 0.0, 4.0))
    assert [o.node for o in orders if isinstance(o, TakeShards)] == ["r"]


def test_a_shard_whose_move_failed_is_taken_back_while_others_load() -> None:
    """Nobody but its old owner knows whether it has handed the shard over: until it is told, nobody may serve it."""
    controller, _ = started(JobConfig("failed", n_partitions=8, n_shards=2, clocks=99, n_reliable=1))
    controller.handle(NodeJoined("s", "tcp://s", "reliable", 1, 1.0))
    (load,) = (o for o in controller.handle(TimerFired(1.5)) if isinstance(o, LoadPartitions))
    orders = controller.handle(NodeReady("s", "tcp://s", load.request, load.partitions, 2.0))
    (take,) = (o for o in orders if isinstance(o, TakeShards))
    controller.handle(NodeJoined("t", "tcp://t", "reliable", 1, 3.0))
    controller.handle(ShardsNotTaken(take.node, take.address, take.shards, take.epoch, "no answer", 3.1))
    assert [o for o in controller.handle(TimerFired(3.2)) if isinstance(o, TakeShards)]
