"""Several nodes leave at once: their notices are one plan, and they end with the same clock."""

from collections.abc import Iterable

import pytest

from proteus_spot.psengine.controller.draining import FLOOR_S
from proteus_spot.psengine.protocol.events import (
    DrainRequested,
    NodeJoined,
    NodeReady,
    NoticeReceived,
    TimerFired,
)
from proteus_spot.psengine.protocol.instructions import Dispatch, Instruction, LoadPartitions
from proteus_spot.psengine.telemetry.event_log import LayoutChanged
from tests.support.controller import done, some_at_work, takes
from tests.support.controller_invariants import check_invariants


@pytest.mark.parametrize("seconds_left", [1.0, 120.0])
def test_notices_that_come_one_after_the_other_are_one_plan(seconds_left: float) -> None:
    """None of what they serve goes to one of them, and the others receive one instruction to load."""
    controller, dispatches = some_at_work("r", "s", "t", "u")
    orders = list[Instruction]()
    for name, now_s in (("s", 1.0), ("t", 1.01), ("u", 1.02)):
        orders += controller.handle(NoticeReceived(name, seconds_left, now_s))
    assert orders == []
    assert {controller.job.members.nodes[name].state for name in ("s", "t", "u")} == {"leaving"}
    orders = controller.handle(TimerFired(1.0 + seconds_left / 10))
    state = "draining" if seconds_left < FLOOR_S else "leaving"
    assert {controller.job.members.nodes[name].state for name in ("s", "t", "u")} == {state}
    for dispatch in dispatches:
        orders += controller.handle(done(dispatch, 110.0))
    assert takes(orders) == [("r", 0 if seconds_left < FLOOR_S else 1)] * 3
    assert len(controller.job.history.log.of(LayoutChanged)) == 2, "how it was, and one plan for all"
    assert [order.node for order in orders if isinstance(order, LoadPartitions)] == ["r"]
    check_invariants(controller.job)


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
        assert controller.job.members.nodes[name].state == "leaving", "the others are drained next"
    orders = controller.handle(TimerFired(67.0))
    assert {controller.job.members.nodes[name].state for name in go} == {"draining"}, "a clock of a minute"
    loads = {order.node: order.partitions for order in orders if isinstance(order, LoadPartitions)}
    assert set(loads) == set(stay)
    for low, name in zip(range(0, 64, 16), stay, strict=True):
        assert set(loads[name]) >= set(range(low, low + 16))
    for load in [order for order in orders if isinstance(order, LoadPartitions)]:
        controller.handle(NodeReady(load.node, load.address, load.request, load.partitions, 68.0))
    for low, name in zip(range(0, 64, 16), stay, strict=True):
        assert controller.job.members.placement.owned_by(name) == tuple(range(low, low + 16))
    check_invariants(controller.job)


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
        return controller.job.members.placement.owned_by(name)

    assert {len(owned(name)) for name in (*stay, *go)} == {4}
    orders = [order for dispatch in dispatches for order in controller.handle(done(dispatch, 7.0))]
    last = [order for order in orders if isinstance(order, Dispatch)]
    assert sorted(order.node for order in last) == sorted((*stay, *go))
    controller.handle(TimerFired(121.0 - FLOOR_S - 3 * 7.0))
    for order in last:
        controller.handle(done(order, 100.0))
    assert [owned(name) for name in stay] == [tuple(range(low, low + 16)) for low in range(0, 64, 16)]
    check_invariants(controller.job)


def test_many_with_no_time_for_a_clock_are_one_plan_too() -> None:
    """Ended one by one, the first of them would leave its partitions to nodes that are drained next."""
    stay, go = ("r", "s", "u", "v"), tuple(f"t{i}" for i in range(12))
    controller, dispatches = some_at_work(*stay, *go, n_partitions=64)
    for dispatch in dispatches:
        controller.handle(done(dispatch, 60.0))
    orders = list[Instruction]()
    for number, name in enumerate(go):
        orders += controller.handle(NoticeReceived(name, 30.0, 61.0 + number / 100))
    assert orders == []
    controller.handle(TimerFired(62.5))
    assert {controller.job.members.nodes[name].state for name in go} == {"draining"}
    assert [controller.job.members.placement.owned_by(name)[4:] for name in stay] == [
        tuple(part for part in range(low, low + 16) if part >= 16) for low in range(0, 64, 16)
    ]
    check_invariants(controller.job)


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
    assert controller.job.shards.moving
    assert controller.job.shards.final[1] == "r"


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
    assert controller.job.members.placement.owned_by("x") == (2,), "what it was to load already; 5 its owner works on"
    orders = controller.handle(TimerFired(6.1))
    assert any(isinstance(order, LoadPartitions) for order in orders)
    check_invariants(controller.job)


def test_who_has_no_time_left_ends_while_further_notices_are_waited_for() -> None:
    controller, _ = some_at_work("r", "s", "t")
    controller.handle(NoticeReceived("s", 10.0, 1.0))
    controller.handle(TimerFired(2.0))
    controller.handle(NoticeReceived("t", 100.0, 10.9 - FLOOR_S))
    controller.handle(TimerFired(11.1 - FLOOR_S))
    states = controller.job.members.nodes
    assert (states["s"].state, states["t"].state) == ("draining", "leaving")


def test_those_who_leave_together_end_with_the_same_clock() -> None:
    """They work on as before, each sent its next clock early, until there is no time for more than they have."""
    controller, dispatches = some_at_work("r", "s", "t", staleness=1)
    under_way: dict[str, list[Dispatch]] = {"r": [], "s": [], "t": []}

    def sent(orders: Iterable[Instruction]) -> None:
        for order in orders:
            if isinstance(order, Dispatch):
                under_way[order.node].append(order)

    def report(node: str, now_s: float) -> None:
        sent(controller.handle(done(under_way[node].pop(0), now_s)))

    def clocks() -> dict[str, list[int]]:
        return {node: [order.group for order in orders] for node, orders in under_way.items()}

    sent(dispatches)
    for name in ("s", "t"):
        controller.handle(NoticeReceived(name, 14.0, 1.0))
    for node in ("r", "s", "t", "s"):
        report(node, 3.0)
    assert clocks() == {"r": [2, 3], "s": [3], "t": [2, 3]}
    states = controller.job.members.nodes
    controller.handle(TimerFired(15.0 - FLOOR_S - 3 * 3.0))
    assert (states["s"].state, states["t"].state) == ("draining", "draining"), "both have clock 3 as their last one"
    report("t", 4.5)
    report("r", 4.5)
    assert clocks() == {"r": [3, 4], "s": [3], "t": [3]}, "those who stay begin with what they have"
    report("s", 5.5)
    report("t", 5.5)
    assert not controller.job.shards.moving, "their last clock is not common yet"
    report("r", 6.0)
    assert {node: [(order.group, len(order.tasks)) for order in orders] for node, orders in under_way.items()} == {
        "r": [(4, 3), (4, 5), (5, 8)],
        "s": [],
        "t": [],
    }
    assert controller.job.shards.final == ("r",) * 3
    check_invariants(controller.job)


def test_who_is_a_clock_behind_completes_it_unless_there_is_no_time() -> None:
    """Else the nodes that stay would have that clock of it, in addition to their own."""
    controller, _ = some_at_work("r", "s", "t", staleness=1)
    for name in ("s", "t"):
        controller.handle(NoticeReceived(name, 30.0, 1.0))
    members = controller.job.members
    begun = {part: 2 if owner == "t" else 3 for part, owner in enumerate(members.placement.owner)}.__getitem__
    members.end_work(lambda node: True, lambda node: False, begun)
    assert (members.nodes["s"].state, members.nodes["t"].state) == ("draining", "leaving")
    members.end_work(lambda node: True, lambda node: True, begun)
    assert members.nodes["t"].state == "draining"
