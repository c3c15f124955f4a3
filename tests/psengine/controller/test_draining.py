"""A node that is to leave works on while it has time, and what it serves moves before its time is over."""

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.controller.draining import FLOOR_S, Departures, hands_over_by_s, work_until_s
from proteus_spot.psengine.membership.membership import Membership
from proteus_spot.psengine.protocol.events import (
    DrainRequested,
    HoldRequested,
    JobStarted,
    NodeJoined,
    NodeReady,
    NoticeReceived,
    ShardsOpened,
    ShardsTaken,
    StopRequested,
    TimerFired,
)
from proteus_spot.psengine.protocol.instructions import Dispatch, LoadPartitions, OpenShards, TakeShards
from proteus_spot.psengine.scheduling.task_table import TaskTable
from proteus_spot.psengine.telemetry.training_progress import TrainingProgress
from proteus_spot.psengine.tiers.tier_manager import Tiers
from tests.support.controller import done, some_at_work, started, takes
from tests.support.controller_invariants import check_invariants


def test_a_node_with_time_works_on_and_ends_before_its_time_is_over() -> None:
    """Its partitions are loaded elsewhere meanwhile; nothing is done twice."""
    controller, dispatch = started(JobConfig("noticed", n_partitions=2, n_shards=1, clocks=99))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, -0.5))
    (load,) = (order for order in controller.handle(TimerFired(0.0)) if isinstance(order, LoadPartitions))
    controller.handle(NodeReady("t", "tcp://t", load.request, load.partitions, 0.0))
    orders = controller.handle(done(dispatch, 1.0))
    assert {order.node for order in orders if isinstance(order, Dispatch)} == {"r", "t"}
    controller.handle(NoticeReceived("t", 10.0, 1.0))
    now_s, state = 1.0, controller.job.members.nodes["t"]
    while state.state == "leaving":
        assert now_s < 11.0, "to the very end, and beyond"
        now_s += 0.5
        for order in [order for order in orders if isinstance(order, Dispatch)]:
            orders = [*orders[1:], *controller.handle(done(order, now_s))]
        orders = [order for order in orders if isinstance(order, Dispatch)]
    assert 11.0 - FLOOR_S - 3 * 1.0 - 0.5 <= now_s <= 11.0 - FLOOR_S, "as long as a clock fits in three times"
    assert state.state == "drained"
    assert controller.job.tasks is not None
    assert controller.job.tasks.repeated == 0
    assert {order.node for order in orders} == {"r"}
    check_invariants(controller.job)


def test_what_a_node_with_time_serves_moves_when_its_last_clock_is_common() -> None:
    """Before that it works on, and all who go would read what they serve from the few who stay."""
    controller, dispatches = some_at_work("r", "s")
    assert takes(controller.handle(NoticeReceived("s", 12.0, 1.0))) == []
    moved = []
    for now_s in (2.0, 3.0, 4.0, 5.0, 6.0):
        orders = [order for dispatch in dispatches for order in controller.handle(done(dispatch, now_s))]
        dispatches = [order for order in orders if isinstance(order, Dispatch)]
        moved.append((takes(orders), {order.node for order in dispatches}))
    assert moved == [([], {"r", "s"})] * 3 + [([("r", 4)], {"r"}), ([], {"r"})]
    check_invariants(controller.job)


def test_in_the_middle_of_its_last_clock_nothing_moves() -> None:
    """All that has come of it would move block by block."""
    controller, (first, last) = some_at_work("r", "s")
    assert takes(controller.handle(DrainRequested(("s",), 100.0, 1.0))) == []
    assert takes(controller.handle(TimerFired(7.1))) == []
    assert takes(controller.handle(done(last, 7.2))) == []
    assert takes(controller.handle(done(first, 7.3))) == [("r", 1)]
    check_invariants(controller.job)


def test_who_waits_for_a_last_clock_that_does_not_end_hands_over_while_there_is_time() -> None:
    controller, (first, last) = some_at_work("r", "s")
    controller.handle(done(last, 5.0))
    again = [order for order in controller.handle(done(first, 5.0)) if isinstance(order, Dispatch)]
    controller.handle(NoticeReceived("s", 20.0, 5.5))
    controller.handle(TimerFired(7.0))
    for order in again:
        if order.node == "s":
            assert takes(controller.handle(done(order, 7.5))) == []
    by_s = 25.5 - FLOOR_S - 5.0
    assert takes(controller.handle(TimerFired(by_s - 0.1))) == []
    assert takes(controller.handle(TimerFired(by_s))) == [("r", 1)]


def test_what_a_node_without_time_serves_moves_at_once() -> None:
    controller, _ = some_at_work("r", "s")
    assert takes(controller.handle(NoticeReceived("s", 0.0, 1.0))) == [("r", 0)]


@pytest.mark.parametrize("seconds_left", [FLOOR_S / 4, FLOOR_S])
def test_what_a_node_with_little_time_serves_moves_at_the_next_tick(seconds_left: float) -> None:
    controller, _ = some_at_work("r", "s")
    assert takes(controller.handle(NoticeReceived("s", seconds_left, 1.0))) == []
    assert takes(controller.handle(TimerFired(1.0 + seconds_left / 10))) == [("r", 0)]


@pytest.mark.parametrize("answered", [True, False])
def test_the_model_is_not_gathered_from_those_who_are_to_go(answered: bool) -> None:
    """A save that fails is tried again, and then they may be gone."""
    controller, dispatches = some_at_work("r", "s")
    controller.job.stopping.target = 1
    controller.handle(NoticeReceived("s", 120.0, 1.0))
    controller.handle(TimerFired(6.1 if answered else 1.1))
    orders = [order for dispatch in dispatches for order in controller.handle(done(dispatch, 7.0 if answered else 1.2))]
    (take,) = (order for order in orders if isinstance(order, TakeShards))
    assert not controller.job.gathering
    controller.handle(ShardsTaken(take.node, take.address, take.shards, take.epoch, 7.5))
    assert controller.job.gathering


def test_the_model_of_a_job_that_is_stopped_while_nobody_works_is_not_gathered_from_them_either() -> None:
    controller, dispatches = some_at_work("r", "s")
    controller.handle(HoldRequested(1, 0.5))
    for dispatch in dispatches:
        controller.handle(done(dispatch, 1.0))
    controller.handle(NoticeReceived("s", 120.0, 2.0))
    assert takes(controller.handle(TimerFired(8.0))) == [], "it serves on as long as there is time for another clock"
    assert takes(controller.handle(StopRequested("enough", 9.0))) == [("r", 1)]
    assert not controller.job.gathering


def test_who_has_no_time_is_given_nothing_before_the_notices_are_answered() -> None:
    controller = Controller()
    for name in ("r", "s"):
        controller.handle(NodeJoined(name, f"tcp://{name}", "reliable", 1, 0.0))
    for load in controller.handle(JobStarted(JobConfig("begins", n_partitions=4, n_shards=1, clocks=9), 0.0)):
        assert isinstance(load, LoadPartitions)
        opens = controller.handle(NodeReady(load.node, load.address, load.request, load.partitions, 0.0))
    (open_,) = (order for order in opens if isinstance(order, OpenShards))
    controller.handle(NoticeReceived("s", FLOOR_S / 4, 1.0))
    orders = controller.handle(ShardsOpened(open_.node, open_.address, open_.shards, open_.epoch, 1.0))
    assert {order.node for order in orders if isinstance(order, Dispatch)} == {"r"}


def test_what_waits_for_the_common_clock_moves_when_time_presses() -> None:
    controller, _ = some_at_work("r", "s")
    controller.handle(NoticeReceived("s", 60.0, 1.0))
    assert takes(controller.handle(TimerFired(61.0 - FLOOR_S))) == [("r", 0)]


def test_what_is_served_moves_where_nothing_runs_and_there_is_no_time_for_more() -> None:
    controller, dispatches = some_at_work("r", "s")
    controller.job.stopping.pause_at(1)
    for dispatch in dispatches:
        controller.handle(done(dispatch, 1.0))
    controller.handle(NoticeReceived("s", 60.0, 1.5))
    assert takes(controller.handle(TimerFired(61.5 - FLOOR_S - 3 * 1.0 - 0.1))) == []
    assert takes(controller.handle(TimerFired(61.5 - FLOOR_S - 3 * 1.0))) == [("r", 1)]


@given(st.floats(0.0, 300.0), st.floats(0.0, 30.0), st.floats(0.0, 30.0))
def test_what_is_left_is_enough_for_a_clock_and_the_hand_over(notice_s: float, clock_s: float, hand_s: float) -> None:
    at_s = work_until_s(notice_s, clock_s, hand_s)
    assert at_s <= hands_over_by_s(notice_s, clock_s, hand_s) <= notice_s - hand_s - FLOOR_S
    assert notice_s - at_s >= clock_s + hand_s + FLOOR_S
    assert work_until_s(notice_s, clock_s + 1.0, hand_s) < at_s > work_until_s(notice_s, clock_s, hand_s + 1.0)


def test_only_the_last_nodes_that_can_hold_shards_may_not_be_drained() -> None:
    controller, _ = some_at_work("r", "s")
    refused = controller.job.departures.refused
    assert refused(["s"]) == []
    assert refused(["r", "s", "unknown"]) == ["r", "s", "unknown"]


def test_the_last_clock_of_a_node_is_the_newest_that_one_of_its_partitions_has_begun() -> None:
    node = SimpleNamespace(name="s", last_clock=None)
    placement = SimpleNamespace(owned_by=lambda name: (0, 1))
    members = SimpleNamespace(in_state=lambda state: [node], placement=placement)
    departures = Departures(cast(Membership, members), Tiers(), TrainingProgress())
    departures.note_last(cast(TaskTable, SimpleNamespace(begun=(3, 2).__getitem__)))
    assert node.last_clock == 3
