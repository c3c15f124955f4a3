"""Eviction notices as the status tells them: the first one of each process, in order."""

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.status import describe
from proteus_spot.psengine.protocol.events import (
    NodeJoined,
    NodesLost,
    NoticeReceived,
    TimerFired,
)
from proteus_spot.psengine.protocol.instructions import LoadPartitions
from tests.support.controller import started
from tests.support.controller_invariants import check_invariants


def test_a_notice_is_told_once_and_that_of_the_next_process_anew() -> None:
    controller, _ = started(JobConfig("noticed", n_partitions=2, n_shards=1, clocks=9))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0))
    controller.handle(NoticeReceived("t", 120.0, 1.0, {"allocation_id": "a"}))
    controller.handle(NoticeReceived("t", 115.0, 6.0, {"allocation_id": "a"}))
    controller.handle(NoticeReceived("nobody", 120.0, 6.0))
    told = {"node": "t", "seconds_left": 120.0, "seq": 1, "about": {"allocation_id": "a"}}
    assert describe(controller.job, 0, 7.0)["notices"] == [told]
    assert controller.job.members.nodes["t"].state == "drained", "it ran nothing"

    controller.handle(NodesLost({"tcp://t": "taken"}, 8.0))
    controller.handle(NodeJoined("t", "tcp://t-again", "transient", 1, 9.0))
    orders = controller.handle(TimerFired(9.5))
    assert [order.node for order in orders if isinstance(order, LoadPartitions)] == ["t"]
    controller.handle(NoticeReceived("t", 60.0, 10.0))
    assert [notice["seq"] for notice in describe(controller.job, 0, 11.0)["notices"]] == [1, 2]
    check_invariants(controller.job)


def test_a_notice_of_a_node_that_is_gone_is_not_told() -> None:
    controller, _ = started(JobConfig("late", n_partitions=2, n_shards=1, clocks=9))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0))
    controller.handle(NodesLost({"tcp://t": "taken"}, 1.0))
    assert controller.handle(NoticeReceived("t", 120.0, 1.5)) == []
    assert describe(controller.job, 0, 2.0)["notices"] == []


def test_an_earlier_deadline_counts() -> None:
    """A drain in a minute, then a notice of ten seconds: what runs is given up after ten."""
    controller, _ = started(JobConfig("soon", n_partitions=2, n_shards=1, clocks=9))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0))
    for seconds_left in (60.0, 10.0, 30.0):
        controller.handle(NoticeReceived("t", seconds_left, 1.0))
    assert controller.job.members.nodes["t"].until_s == 11.0
