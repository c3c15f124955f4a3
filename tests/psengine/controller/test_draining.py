"""Eviction notices as the status tells them: the first one of each process, in order."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psengine.config import JobConfig
from psengine.controller.controller import Controller
from psengine.controller.draining import FLOOR_S, hands_over_by_s, work_until_s
from psengine.controller.status import describe
from psengine.protocol.events import (
    DrainRequested,
    HoldRequested,
    JobStarted,
    NodeJoined,
    NodeReady,
    NodesLost,
    NoticeReceived,
    ShardsOpened,
    ShardsTaken,
    StopRequested,
    TimerFired,
)
from psengine.protocol.instructions import Dispatch, Instruction, LoadPartitions, OpenShards, TakeShards
from psengine.telemetry.event_log import LayoutChanged
from tests.support.controller import done, started


def test_a_notice_is_told_once_and_that_of_the_next_process_anew() -> None:
    controller, _ = started(JobConfig("noticed", n_partitions=2, n_shards=1, clocks=9))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0))
    controller.handle(NoticeReceived("t", 120.0, 1.0, {"allocation_id": "a"}))
    controller.handle(NoticeReceived("t", 115.0, 6.0, {"allocation_id": "a"}))
    controller.handle(NoticeReceived("nobody", 120.0, 6.0))
    told = {"node": "t", "seconds_left": 120.0, "seq": 1, "about": {"allocation_id": "a"}}
    assert describe(controller, 0, 7.0)["notices"] == [told]
    assert controller.members.nodes["t"].state == "drained", "it ran nothing"

    controller.handle(NodesLost({"tcp://t": "taken"}, 8.0))
    controller.handle(NodeJoined("t", "tcp://t-again", "transient", 1, 9.0))
    orders = controller.handle(TimerFired(9.5))
    assert [order.node for order in orders if isinstance(order, LoadPartitions)] == ["t"]
    controller.handle(NoticeReceived("t", 60.0, 10.0))
    assert [notice["seq"] for notice in describe(controller, 0, 11.0)["notices"]] == [1, 2]
    controller.validate()


def test_a_notice_of_a_node_that_is_gone_is_not_told() -> None:
    controller, _ = started(JobConfig("late", n_partitions=2, n_shards=1, clocks=9))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0))
    controller.handle(NodesLost({"tcp://t": "taken"}, 1.0))
    assert controller.handle(NoticeReceived("t", 120.0, 1.5)) == []
    assert describe(controller, 0, 2.0)["notices"] == []


def test_an_earlier_deadline_counts() -> None:
    """A drain in a minute, then a notice of ten seconds: what runs is given up after ten."""
    controller, _ = started(JobConfig("soon", n_partitions=2, n_shards=1, clocks=9))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0))
    for seconds_left in (60.0, 10.0, 30.0):
        controller.handle(NoticeReceived("t", seconds_left, 1.0))
    assert controller.members.nodes["t"].until_s == 11.0


def test_a_node_with_time_works_on_and_ends_before_its_time_is_over() -> None:
    """Its partitions are loaded elsewhere meanwhile; nothing is done twice."""
    controller, dispatch = started(JobConfig("noticed", n_partitions=2, n_shards=1, clocks=99))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, -0.5))
    (load,) = (order for order in controller.handle(TimerFired(0.0)) if isinstance(order, LoadPartitions))
    controller.handle(NodeReady("t", "tcp://t", load.request, load.partitions, 0.0))
    orders = controller.handle(done(dispatch, 1.0))
    assert {order.node for order in orders if isinstance(order, Dispatch)} == {"r", "t"}
    controller.handle(NoticeReceived("t", 10.0, 1.0))
    now_s, state = 1.0, controller.members.nodes["t"]
    while state.state == "leaving":
        assert now_s < 11.0, "to the very end, and beyond"
        now_s += 0.5
        for order in [order for order in orders if isinstance(order, Dispatch)]:
            orders = [*orders[1:], *controller.handle(done(order, now_s))]
        orders = [order for order in orders if isinstance(order, Dispatch)]
    assert 11.0 - FLOOR_S - 3 * 1.0 - 0.5 <= now_s <= 11.0 - FLOOR_S, "as long as a clock fits in three times"
    assert state.state == "drained"
    assert controller.book is not None
    assert controller.book.repeated == 0
    assert {order.node for order in orders} == {"r"}
    controller.validate()


def two_at_work() -> tuple[Controller, list[Dispatch]]:
    return some_at_work("r", "s")


def some_at_work(*names: str, n_partitions: int = 8, staleness: int = 0) -> tuple[Controller, list[Dispatch]]:
    """Return a controller with nodes that serve a shard each, and the orders of their first clock."""
    controller, orders = Controller(), list[Instruction]()
    for name in names:
        controller.handle(NodeJoined(name, f"tcp://{name}", "reliable", 1, 0.0))
    job = JobConfig(
        "moved",
        n_partitions=n_partitions,
        n_shards=len(names),
        clocks=99,
        n_reliable=len(names),
        staleness=staleness,
    )
    for load in controller.handle(JobStarted(job, 0.0)):
        assert isinstance(load, LoadPartitions)
        controller.handle(NodeReady(load.node, load.address, load.request, load.partitions, 0.0))
    for name, shard in zip(names, range(len(names)), strict=True):
        orders = controller.handle(ShardsOpened(name, f"tcp://{name}", (shard,), 1, 0.0))
    return controller, [order for order in orders if isinstance(order, Dispatch)]


def takes(orders: list[Instruction]) -> list[tuple[str, int]]:
    return [(order.node, order.committed) for order in orders if isinstance(order, TakeShards)]


def test_what_a_node_with_time_serves_moves_when_its_last_clock_is_common() -> None:
    """Before that it works on, and all who go would read what they serve from the few who stay."""
    controller, dispatches = two_at_work()
    assert takes(controller.handle(NoticeReceived("s", 12.0, 1.0))) == []
    moved = []
    for now_s in (2.0, 3.0, 4.0, 5.0, 6.0):
        orders = [order for dispatch in dispatches for order in controller.handle(done(dispatch, now_s))]
        dispatches = [order for order in orders if isinstance(order, Dispatch)]
        moved.append((takes(orders), {order.node for order in dispatches}))
    assert moved == [([], {"r", "s"})] * 3 + [([("r", 4)], {"r"}), ([], {"r"})]
    controller.validate()


def test_in_the_middle_of_its_last_clock_nothing_moves() -> None:
    """All that has come of it would move block by block."""
    controller, (first, last) = two_at_work()
    assert takes(controller.handle(DrainRequested(("s",), 100.0, 1.0))) == []
    assert takes(controller.handle(TimerFired(7.1))) == []
    assert takes(controller.handle(done(last, 7.2))) == []
    assert takes(controller.handle(done(first, 7.3))) == [("r", 1)]
    controller.validate()


def test_who_waits_for_a_last_clock_that_does_not_end_hands_over_while_there_is_time() -> None:
    controller, (first, last) = two_at_work()
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
    controller, _ = two_at_work()
    assert takes(controller.handle(NoticeReceived("s", 0.0, 1.0))) == [("r", 0)]


@pytest.mark.parametrize("seconds_left", [FLOOR_S / 4, FLOOR_S])
def test_what_a_node_with_little_time_serves_moves_at_the_next_tick(seconds_left: float) -> None:
    controller, _ = two_at_work()
    assert takes(controller.handle(NoticeReceived("s", seconds_left, 1.0))) == []
    assert takes(controller.handle(TimerFired(1.0 + seconds_left / 10))) == [("r", 0)]


@pytest.mark.parametrize("seconds_left", [1.0, 120.0])
def test_notices_that_come_one_after_the_other_are_one_plan(seconds_left: float) -> None:
    """None of what they serve goes to one of them, and the others are told once what to load."""
    controller, dispatches = some_at_work("r", "s", "t", "u")
    orders = list[Instruction]()
    for name, now_s in (("s", 1.0), ("t", 1.01), ("u", 1.02)):
        orders += controller.handle(NoticeReceived(name, seconds_left, now_s))
    assert orders == []
    assert {controller.members.nodes[name].state for name in ("s", "t", "u")} == {"leaving"}
    orders = controller.handle(TimerFired(1.0 + seconds_left / 10))
    state = "draining" if seconds_left < FLOOR_S else "leaving"
    assert {controller.members.nodes[name].state for name in ("s", "t", "u")} == {state}
    for dispatch in dispatches:
        orders += controller.handle(done(dispatch, 110.0))
    assert takes(orders) == [("r", 0 if seconds_left < FLOOR_S else 1)] * 3
    assert len(controller.history.log.of(LayoutChanged)) == 2, "how it was, and one plan for all"
    assert [order.node for order in orders if isinstance(order, LoadPartitions)] == ["r"]
    controller.validate()


@pytest.mark.parametrize("staleness", [0, 1])
def test_what_those_own_who_leave_at_once_goes_to_those_who_stay_in_runs(staleness: int) -> None:
    """In pieces, a node has a sum of every piece to send, each as large as the table."""
    stay, go = ("r", "s", "u", "v"), tuple(f"t{i}" for i in range(12))
    names = (*stay, *go)
    controller, dispatches = some_at_work(*names, n_partitions=64, staleness=staleness)
    for dispatch in dispatches:
        controller.handle(done(dispatch, 60.0))
    for number, name in enumerate(go):
        controller.handle(NoticeReceived(name, 120.0, 61.0 + number / 10))
        assert controller.members.nodes[name].state == "leaving", "the others are told next"
    orders = controller.handle(TimerFired(67.0))
    assert {controller.members.nodes[name].state for name in go} == {"draining"}, "a clock of a minute"
    loads = {order.node: order.partitions for order in orders if isinstance(order, LoadPartitions)}
    assert set(loads) == set(stay)
    for low, name in zip(range(0, 64, 16), stay, strict=True):
        assert set(loads[name]) >= set(range(low, low + 16))
    for load in [order for order in orders if isinstance(order, LoadPartitions)]:
        controller.handle(NodeReady(load.node, load.address, load.request, load.partitions, 68.0))
    for low, name in zip(range(0, 64, 16), stay, strict=True):
        assert controller.members.placement.owned_by(name) == tuple(range(low, low + 16))
    controller.validate()


def test_who_stays_works_on_no_more_than_its_share_while_others_work_on() -> None:
    """Its runs are of what other nodes work on that stay, too: those would have nothing left to do."""
    stay, go = ("r", "s", "u", "v"), tuple(f"t{i}" for i in range(12))
    controller, dispatches = some_at_work(*stay, *go, n_partitions=64)
    for name in go:
        controller.handle(NoticeReceived(name, 120.0, 1.0))
    for load in controller.handle(TimerFired(6.0)):
        if isinstance(load, LoadPartitions):
            controller.handle(NodeReady(load.node, load.address, load.request, load.partitions, 6.5))

    def owned(name: str) -> tuple[int, ...]:
        return controller.members.placement.owned_by(name)

    assert {len(owned(name)) for name in (*stay, *go)} == {4}
    orders = [order for dispatch in dispatches for order in controller.handle(done(dispatch, 7.0))]
    last = [order for order in orders if isinstance(order, Dispatch)]
    assert sorted(order.node for order in last) == sorted((*stay, *go))
    controller.handle(TimerFired(121.0 - FLOOR_S - 3 * 7.0))
    for order in last:
        controller.handle(done(order, 100.0))
    assert [owned(name) for name in stay] == [tuple(range(low, low + 16)) for low in range(0, 64, 16)]
    controller.validate()


def test_many_with_no_time_for_a_clock_are_one_plan_too() -> None:
    """Ended one by one, what the first of them owned would go to those who are told next."""
    stay, go = ("r", "s", "u", "v"), tuple(f"t{i}" for i in range(12))
    controller, dispatches = some_at_work(*stay, *go, n_partitions=64)
    for dispatch in dispatches:
        controller.handle(done(dispatch, 60.0))
    orders = list[Instruction]()
    for number, name in enumerate(go):
        orders += controller.handle(NoticeReceived(name, 30.0, 61.0 + number / 100))
    assert orders == []
    controller.handle(TimerFired(62.5))
    assert {controller.members.nodes[name].state for name in go} == {"draining"}
    assert [controller.members.placement.owned_by(name)[4:] for name in stay] == [
        tuple(part for part in range(low, low + 16) if part >= 16) for low in range(0, 64, 16)
    ]
    controller.validate()


def test_who_has_little_left_is_not_kept_from_handing_over_by_who_is_told_next() -> None:
    controller, dispatches = some_at_work("r", "s", "t", n_partitions=3)
    controller.handle(NoticeReceived("s", 120.0, 0.0))
    controller.handle(TimerFired(6.0))
    orders, now_s = list[Instruction](), 6.0
    under_way = list(dispatches)
    while now_s < 117.5:
        now_s += 0.5
        orders = [order for dispatch in under_way for order in controller.handle(done(dispatch, now_s))]
        if now_s == 115.5:
            controller.handle(NoticeReceived("t", 120.0, now_s))
        controller.handle(TimerFired(now_s + 0.3))
        if takes(orders):
            break
        under_way = [order for order in orders if isinstance(order, Dispatch)]
    assert controller.shards.moving
    assert controller.shards.final[1] == "r"


@pytest.mark.parametrize("answered", [True, False])
def test_the_model_is_not_gathered_from_those_who_are_to_go(answered: bool) -> None:
    """A save that fails is tried again, and then they may be gone."""
    controller, dispatches = two_at_work()
    controller.stopping.target = 1
    controller.handle(NoticeReceived("s", 120.0, 1.0))
    controller.handle(TimerFired(6.1 if answered else 1.1))
    orders = [order for dispatch in dispatches for order in controller.handle(done(dispatch, 7.0 if answered else 1.2))]
    (take,) = (order for order in orders if isinstance(order, TakeShards))
    assert not controller.gathering
    controller.handle(ShardsTaken(take.node, take.address, take.shards, take.epoch, 7.5))
    assert controller.gathering


def test_the_model_of_a_job_that_is_stopped_while_nobody_works_is_not_gathered_from_them_either() -> None:
    controller, dispatches = two_at_work()
    controller.handle(HoldRequested(1, 0.5))
    for dispatch in dispatches:
        controller.handle(done(dispatch, 1.0))
    controller.handle(NoticeReceived("s", 120.0, 2.0))
    assert takes(controller.handle(TimerFired(8.0))) == [], "it serves on as long as there is time for another clock"
    assert takes(controller.handle(StopRequested("enough", 9.0))) == [("r", 1)]
    assert not controller.gathering


def test_who_has_less_time_than_those_who_were_told_before_hands_over_in_time() -> None:
    controller, _ = some_at_work("r", "s", "t")
    controller.handle(NoticeReceived("s", 120.0, 1.0))
    assert takes(controller.handle(DrainRequested(("t",), FLOOR_S, 1.5))) == [], "others may be told next"
    assert takes(controller.handle(TimerFired(1.7))) == [("r", 0)]


def test_nobody_is_told_to_load_what_is_about_to_be_planned_anew() -> None:
    controller, _ = some_at_work("r", "s", "t")
    controller.handle(NodeJoined("x", "tcp://x", "transient", 1, 0.1))
    (load,) = (order for order in controller.handle(TimerFired(0.9)) if isinstance(order, LoadPartitions))
    controller.handle(NoticeReceived("s", 120.0, 1.0))
    orders = controller.handle(NodeReady("x", "tcp://x", load.request, load.partitions, 2.0))
    assert not any(isinstance(order, LoadPartitions) for order in orders)
    assert controller.members.placement.owned_by("x") == (2,), "what it was to load already; 5 its owner works on"
    orders = controller.handle(TimerFired(6.1))
    assert any(isinstance(order, LoadPartitions) for order in orders)
    controller.validate()


def test_who_has_no_time_left_ends_while_further_notices_are_waited_for() -> None:
    controller, _ = some_at_work("r", "s", "t")
    controller.handle(NoticeReceived("s", 10.0, 1.0))
    controller.handle(TimerFired(2.0))
    controller.handle(NoticeReceived("t", 100.0, 10.9 - FLOOR_S))
    controller.handle(TimerFired(11.1 - FLOOR_S))
    states = controller.members.nodes
    assert (states["s"].state, states["t"].state) == ("draining", "leaving")


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


def test_those_who_leave_together_end_with_the_same_clock() -> None:
    """Whoever is a clock behind does it too: else it would fall to those who stay, on top of their own."""
    controller, dispatches = some_at_work("r", "s", "t", staleness=1)
    under_way: dict[str, list[Dispatch]] = {"r": [], "s": [], "t": []}

    def sent(orders: Iterable[Instruction]) -> None:
        for order in orders:
            if isinstance(order, Dispatch):
                under_way[order.node].append(order)

    def report(node: str, now_s: float) -> None:
        sent(controller.handle(done(under_way[node].pop(0), now_s)))

    def clocks() -> dict[str, list[int]]:
        return {node: [order.clock for order in orders] for node, orders in under_way.items()}

    sent(dispatches)
    for name in ("s", "t"):
        controller.handle(NoticeReceived(name, 14.0, 1.0))
    for node in ("r", "s", "t", "s"):
        report(node, 3.0)
    assert clocks() == {"r": [2, 3], "s": [3], "t": [2]}, "those who leave are sent nothing early"
    states = controller.members.nodes
    controller.handle(TimerFired(15.0 - FLOOR_S - 3 * 3.0))
    assert (states["s"].state, states["t"].state) == ("draining", "leaving")
    report("t", 4.5)
    report("r", 4.5)
    assert clocks() == {"r": [3], "s": [3], "t": [3]}, "nor those who are about to take over"
    report("s", 5.5)
    assert states["t"].state == "draining"
    report("t", 5.5)
    assert not controller.shards.moving, "their last clock is not common yet"
    report("r", 6.0)
    assert {node: [(order.clock, len(order.tasks)) for order in orders] for node, orders in under_way.items()} == {
        "r": [(4, 8), (5, 8)],
        "s": [],
        "t": [],
    }
    assert controller.shards.final == ("r",) * 3
    controller.validate()


def test_who_is_a_clock_behind_and_has_no_time_for_it_ends_at_once() -> None:
    controller, dispatches = some_at_work("r", "s", "t", staleness=1)
    orders = list[Instruction]()
    for name in ("s", "t"):
        controller.handle(NoticeReceived(name, 30.0, 1.0))
    for order in dispatches:
        orders += controller.handle(done(order, 3.0))
    (ahead,) = (order for order in orders if isinstance(order, Dispatch) and order.node == "s")
    controller.handle(done(ahead, 4.0))
    states = controller.members.nodes
    controller.handle(TimerFired(31.0 - FLOOR_S - 3 * 2.0))
    assert (states["s"].state, states["t"].state) == ("draining", "leaving")
    controller.handle(TimerFired(31.0 - FLOOR_S - 2.0))
    assert states["t"].state == "draining"


def test_what_waits_for_the_common_clock_moves_when_time_presses() -> None:
    controller, _ = two_at_work()
    controller.handle(NoticeReceived("s", 60.0, 1.0))
    assert takes(controller.handle(TimerFired(61.0 - FLOOR_S))) == [("r", 0)]


def test_what_is_served_moves_where_nothing_runs_and_there_is_no_time_for_more() -> None:
    controller, dispatches = two_at_work()
    controller.stopping.pause_at(1)
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
