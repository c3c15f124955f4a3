"""What is told of a job: changes of its nodes, times in which it was held, what it looked like, bytes, evaluations."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller import evaluation_schedule
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.controller.evaluation_schedule import MOST_UNDER_WAY, Evaluating
from proteus_spot.psengine.controller.status import describe, summary
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.protocol.events import (
    DrainRequested,
    Evaluated,
    Event,
    HoldRequested,
    JobStarted,
    NodeJoined,
    NodeReady,
    NodesLost,
    NoticeReceived,
    ShardsOpened,
    TimerFired,
    UsageMeasured,
)
from proteus_spot.psengine.protocol.instructions import Dispatch, Evaluate, GatherModel, LoadPartitions
from proteus_spot.psengine.telemetry.byte_counts import CONTROLLER, KINDS, Traffic, link
from proteus_spot.psengine.telemetry.event_log import MOST, EventLog, Held, NodeChanged, NodeReleased, StateChanged
from proteus_spot.psengine.telemetry.timeline import View, replay
from tests.support.controller import done, started

CONFIG = JobConfig("job", n_partitions=2, n_shards=2, clocks=20, stage=1)


def run_clock(controller: Controller, orders: list[Dispatch], now_s: float) -> list[Dispatch]:
    """Have all that was dispatched done; return what is dispatched by that."""
    out = [o for order in orders for o in controller.handle(done(order, now_s))]
    return [o for o in out if isinstance(o, Dispatch)]


def told(controller: Controller) -> list[tuple[str, str, float, float | None]]:
    return [(c["event"], c["node"], c["second"], c["until"]) for c in controller.job.history.changes]


def feed(controller: Controller, *given: Event) -> list[Any]:
    return [order for event in given for order in controller.handle(event)]


def join(controller: Controller, name: str, now_s: float) -> list[Any]:
    """Have a transient node join and load what it is told to."""
    orders = feed(controller, NodeJoined(name, f"tcp://{name}", "transient", 1, now_s), TimerFired(now_s + 0.5))
    (load,) = [o for o in orders if isinstance(o, LoadPartitions)]
    return feed(controller, NodeReady(name, f"tcp://{name}", load.request, load.partitions, now_s + 0.5))


def test_a_node_joins_gets_its_notice_and_is_taken() -> None:
    controller, dispatch = started(CONFIG)
    assert told(controller) == [], "those who are there at the beginning do not join"
    orders = [dispatch]
    orders = run_clock(controller, orders, 1.0)
    join(controller, "t", 1.25)
    assert told(controller) == [("join", "t", 1.25, 1.75)]
    orders = run_clock(controller, orders, 2.0)
    assert {order.node for order in orders} == {"r", "t"}
    feed(controller, NoticeReceived("t", 5.0, 2.25))
    assert told(controller)[1:] == [("notice", "t", 2.25, None)], "it runs something yet"
    orders = run_clock(controller, orders, 3.0)
    assert told(controller)[1:] == [("notice", "t", 2.25, 3.0)]
    assert controller.job.history.log.of(NodeReleased) == [NodeReleased("t", "notice", 2.25, 0.75)]
    feed(controller, NodesLost({"tcp://t": "taken"}, 3.25))
    orders = run_clock(controller, orders, 4.0)
    assert told(controller)[2:] == [("eviction", "t", 3.25, 4.0)]


def test_a_node_that_drains_between_two_clocks_is_released_then() -> None:
    controller, dispatch = started(CONFIG)
    orders = run_clock(controller, [dispatch], 1.0)
    join(controller, "t", 1.25)
    orders = run_clock(controller, orders, 2.0)
    feed(controller, DrainRequested(("t",), 60.0, 2.25))
    for name, now_s in (("t", 2.5), ("r", 4.0)):
        feed(controller, *(done(order, now_s) for order in orders if order.node == name))
    assert controller.job.history.log.of(NodeReleased) == [NodeReleased("t", "drain", 2.25, 0.25)]
    released = [{"node": "t", "event": "drain", "second": 2.25, "seconds": 0.25}]
    assert summary(controller.job, 5.0)["releases"] == describe(controller.job, 0, 5.0)["releases"] == released


def test_a_node_that_joins_is_told_who_has_its_partitions_unless_these_are_to_leave() -> None:
    controller, _ = started(CONFIG)
    feed(controller, NodeJoined("t", "tcp://t", "transient", 1, 1.0))
    (load,) = [o for o in feed(controller, TimerFired(1.5)) if isinstance(o, LoadPartitions)]
    assert load.sources == tuple((partition, "tcp://r") for partition in load.partitions)
    controller, _ = started(CONFIG)
    feed(controller, NoticeReceived("r", 60.0, 0.5))
    orders = feed(controller, NodeJoined("t", "tcp://t", "transient", 1, 1.0), TimerFired(9.0))
    loads = [o for o in orders if isinstance(o, LoadPartitions)]
    assert loads
    assert all(load.partitions and load.sources == () for load in loads)


def test_a_loss_is_over_when_what_was_under_way_is_done_again() -> None:
    controller, dispatch = started(CONFIG)
    orders = run_clock(controller, [dispatch], 1.0)
    join(controller, "t", 1.25)
    orders = run_clock(controller, orders, 2.0)
    again = feed(controller, NodesLost({"tcp://t": "killed"}, 2.5))
    left = [order for order in orders if order.node == "r"] + [o for o in again if isinstance(o, Dispatch)]
    run_clock(controller, left, 4.0)
    assert told(controller)[1:] == [("loss", "t", 2.5, 4.0)]
    figures = summary(controller.job, 5.0)
    assert figures["changes"] == controller.job.history.changes
    assert summary(controller.job, 5.0, 1)["changes"] == [], "by then nobody had come or gone"


def test_the_time_in_which_a_job_is_held_is_told() -> None:
    controller, dispatch = started(CONFIG)
    feed(controller, HoldRequested(0, 0.5))  # the clock under way is let end: until then it is no hold
    assert run_clock(controller, [dispatch], 1.0) == []
    assert controller.job.history.log.of(Held) == []
    orders = [o for o in feed(controller, HoldRequested(None, 3.0)) if isinstance(o, Dispatch)]
    assert controller.job.history.log.of(Held) == [Held(1.0, 3.0)]
    run_clock(controller, orders, 4.0)
    assert summary(controller.job, 4.0)["held"] == [[1.0, 3.0]]


def test_the_last_clock_is_no_hold() -> None:
    controller, dispatch = started(JobConfig("job", n_partitions=2, n_shards=2, clocks=1))
    assert any(isinstance(o, GatherModel) for o in controller.handle(done(dispatch, 1.0)))
    feed(controller, HoldRequested(5, 2.0))
    assert controller.job.history.log.of(Held) == []


def test_what_the_job_looked_like_is_told_where_it_changed() -> None:
    controller, dispatch = started(CONFIG)
    orders = run_clock(controller, [dispatch], 1.0)
    join(controller, "t", 1.25)
    run_clock(controller, orders, 2.0)
    entries = summary(controller.job, 2.0)["timeline"]
    assert sum("shards" in entry for entry in entries) == 1, "who serves did not change"
    seen = list(replay(entries))
    assert seen[-1] == (
        1.75,
        View(1, {"r": ("reliable", "ready"), "t": ("transient", "ready")}, (("r", None), ("r", None))),
    )
    assert [(e["second"], e["nodes"]) for e in entries if "t" in e.get("nodes", {})] == [
        (1.25, {"t": ["transient", "joining"]}),
        (1.75, {"t": ["transient", "ready"]}),
    ]


views = st.builds(
    View,
    st.integers(1, 3),
    st.fixed_dictionaries({"r": st.just(("reliable", "ready"))}, optional={"t": st.just(("transient", "gone"))}),
    st.tuples(*[st.tuples(st.sampled_from(["r", "t"]), st.sampled_from([None, "r"]))] * 2),
)


@given(st.lists(views, min_size=1, max_size=12))
def test_a_replay_shows_what_was_seen(seen: list[View]) -> None:
    log, known, shards = EventLog(), dict[str, tuple[str, str]](), dict[str, list[str | None]]()
    for number, view in enumerate(seen):
        known |= view.nodes  # a node that is there stays in the books
        shards = {str(shard): list(pair) for shard, pair in enumerate(view.shards)}
        log.append(StateChanged(float(number), number, view.stage, {n: list(v) for n, v in view.nodes.items()}, shards))
    records = [event.record() for event in log.of(StateChanged)]
    assert list(replay(records))[-1][1] == View(seen[-1].stage, known, seen[-1].shards)
    after = EventLog()
    after.read({"timeline": records})
    assert after.of(StateChanged) == log.of(StateChanged)


def test_a_long_timeline_is_thinned_and_never_falls_silent() -> None:
    log = EventLog()
    for number in range(3 * MOST):
        stage = 1 + number % 3 if number % 2 else 0
        log.append(
            StateChanged(float(number), number, stage, {f"n{number}": ["transient", "ready"]}, {"0": ["r", None]})
        )
    records = [event.record() for event in log.of(StateChanged)]
    assert MOST // 2 <= len(records) <= MOST
    (second, last) = list(replay(records))[-1]
    assert (second, len(last.nodes), last.shards) == (3 * MOST - 1, 3 * MOST, (("r", None),))
    assert last.stage == 1 + (3 * MOST - 1) % 3
    seconds = [record["second"] for record in records]
    assert seconds == sorted(seconds)
    assert seconds[0] < MOST < seconds[len(seconds) // 2], "what is older is coarser"


def test_new_events_are_found_however_many_there_were() -> None:
    log = EventLog()
    for number in range(3 * MOST):
        before = log.n_events
        log.append(NodeReleased(f"n{number}", "drain", float(number), 1.0))
        assert [event.node for _, event in log.since(before, NodeReleased)] == [f"n{number}"]


def test_changes_are_recorded_however_many_there_were() -> None:
    controller, dispatch = started(CONFIG)
    run_clock(controller, [dispatch], 1.0)
    for n in range(MOST):
        controller.job.history.log.append(NodeChanged("join", f"n{n}", 0.5, 0.75))
    join(controller, "t", 1.25)
    feed(controller, NodeJoined("slow", "tcp://slow", "transient", 1, 2.0))
    changes = controller.job.history.changes
    assert MOST // 2 < len(changes) < MOST
    assert changes[-2:] == [
        {"event": "join", "node": "t", "second": 1.25, "until": 1.75},
        {"event": "join", "node": "slow", "second": 2.0, "until": None},
    ]


def test_the_memory_of_a_repeated_clock_is_that_of_its_last_time() -> None:
    controller, _ = started(CONFIG)
    for clock, tables in ((1, 10), (2, 20), (3, 30), (2, 25)):
        controller.job.history.note_memory(clock, {"tables": tables, "states": 1, "input": 2}, 4)
    assert controller.job.history.figures(2, 9.0)["memory_by_clock"] == [[1, 10, 1, 2, 4], [2, 25, 1, 2, 4]]
    assert describe(controller.job, 0, 9.0)["memory"] == [[2, 25, 1, 2, 4]]


# -- bytes ----------------------------------------------------------------------------------------------------------


def test_what_pairs_of_nodes_exchange_is_counted_whichever_end_counts_it() -> None:
    traffic = Traffic()
    traffic.names |= {"tcp://a": "i-a", "tcp://b": "i-b"}
    traffic.note("tcp://a", {"read": 10, link("tcp://b"): 10})
    traffic.note("tcp://b", {"copy": 5, link("tcp://a"): 5, link("tcp://gone"): 2})
    traffic.note(CONTROLLER, {"model": 3, link("tcp://b"): 3})
    traffic.note("tcp://a", {link("tcp://b"): 7})  # late
    assert traffic.links() == [["", "i-b", 3], ["i-a", "i-b", 15], ["i-b", "tcp://gone", 2]]
    assert traffic.figures()["bytes_moved"]["read"] == 10
    after = Traffic()
    after.go_on({**traffic.figures(), "bytes_by_link": traffic.links()})
    after.note(CONTROLLER, {link("tcp://b"): 4})
    assert ["i-a", "i-b", 15] in after.links()


def test_bytes_are_summed_over_processes_and_a_late_report_takes_nothing_back() -> None:
    traffic = Traffic()
    traffic.note("a", {"read": 10, "own": 7})
    traffic.note("b", {"push": 5})
    traffic.note("a", {"read": 30, "push": 1, "own": 7})
    traffic.note("a", {"read": 20})
    figures = traffic.figures()
    assert figures["bytes_moved"] == {**dict.fromkeys(KINDS, 0), "read": 30, "push": 6}
    assert figures["bytes_not_read"] == 7
    after = Traffic()
    after.go_on(figures)
    after.note("a", {"read": 1})
    assert after.figures()["bytes_moved"]["read"] == 31, "a node that comes back counts from 0"


def test_the_controller_tells_what_nodes_said_they_moved() -> None:
    controller, _ = started(CONFIG)
    assert controller.handle(UsageMeasured("tcp://r", {"input": 64}, {}, 1.0)) == []
    assert describe(controller.job, 0, 1.0)["bytes_moved"]["input"] == 64
    assert summary(controller.job, 1.0)["bytes_moved"]["input"] == 64  # type: ignore[index]


# -- evaluations ----------------------------------------------------------------------------------------------------


def evaluated(order: Evaluate, value: float) -> Evaluated:
    return Evaluated(order.group, order.generation, {"loss": value}, 9.0)


def test_every_second_clock_is_evaluated_but_the_last_one() -> None:
    controller, dispatch = started(JobConfig("job", n_partitions=2, n_shards=2, clocks=6, evaluate_every=2))
    orders, wanted = [dispatch], []
    for clock in range(1, 7):
        out = [o for order in orders for o in controller.handle(done(order, float(clock)))]
        orders = [o for o in out if isinstance(o, Dispatch)]
        for order in [o for o in out if isinstance(o, Evaluate)]:
            wanted.append(order.group)
            controller.handle(evaluated(order, 1.0 / order.group))
    assert wanted == [2, 4], "the last clock is evaluated with the model"
    assert summary(controller.job, 9.0)["metrics_by_clock"] == [[2, {"loss": 0.5}], [4, {"loss": 0.25}]]
    assert summary(controller.job, 9.0, 3)["metrics_by_clock"] == [[2, {"loss": 0.5}]]
    assert describe(controller.job, 0, 9.0)["metrics"] == [[4, {"loss": 0.25}]]


def test_an_evaluation_from_before_all_went_back_counts_for_nothing() -> None:
    controller, dispatch = started(JobConfig("job", n_partitions=2, n_shards=2, clocks=9, evaluate_every=1))
    out = controller.handle(done(dispatch, 1.0))
    (order,) = [o for o in out if isinstance(o, Evaluate)]
    controller.handle(evaluated(order, 0.25))
    (second,) = [o for o in out if isinstance(o, Dispatch)]
    (order,) = [o for o in controller.handle(done(second, 1.25)) if isinstance(o, Evaluate)]
    assert controller.job.history.evaluating.series() == [[1, {"loss": 0.25}]]
    feed(controller, NodesLost({"tcp://r": "killed"}, 1.5))
    assert controller.job.tasks is not None
    assert controller.job.tasks.common == 0
    controller.handle(evaluated(order, 0.5))
    assert controller.job.history.evaluating.series() == []


def test_one_that_takes_too_long_has_later_ones_left_out() -> None:
    evaluating, config = Evaluating(), JobConfig("job", clocks=99, evaluate_every=1)
    orders = [
        order for clock in range(1, 6) for order in evaluating.instructions(config, {clock: (clock, True)}, 99, (), 1)
    ]
    assert [order.group for order in orders] == list(range(1, MOST_UNDER_WAY + 1))
    evaluating.take(2, 1, {"loss": 2.0}, 2)
    evaluating.take(1, 1, None, 1)
    assert evaluating.series() == [[2, {"loss": 2.0}]]
    assert [order.group for order in evaluating.instructions(config, {6: (6, True)}, 99, (), 1)] == [6]


def test_the_figures_of_a_long_job_are_thinned_and_never_fall_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation_schedule, "MOST", 8)
    evaluating, config = Evaluating(), JobConfig("job", clocks=99, evaluate_every=1)
    for clock in range(1, 31):
        evaluating.instructions(config, {clock: (clock, True)}, 99, (), 1)
        evaluating.take(clock, 1, {"loss": 1.0}, clock)
    clocks = [clock for clock, _ in evaluating.series()]
    assert 4 <= len(clocks) <= 8
    assert clocks[-4:] == [27, 28, 29, 30]
    assert clocks == sorted(clocks)


def test_one_that_is_under_way_when_all_go_back_counts_if_it_is_of_what_stays() -> None:
    evaluating, config = Evaluating(), JobConfig("job", clocks=99, evaluate_every=1)
    assert len(evaluating.instructions(config, {1: (1, True), 2: (2, True)}, 99, (), 1)) == MOST_UNDER_WAY
    evaluating.roll_back(1, 1)
    evaluating.take(2, 1, {"loss": 2.0}, 2)
    assert evaluating.series() == []
    evaluating.take(1, 1, {"loss": 1.0}, 1)
    assert [order.group for order in evaluating.instructions(config, {2: (2, True), 3: (3, True)}, 99, (), 2)] == [
        2,
        3,
    ], "neither is in the way"
    evaluating.take(2, 1, {"loss": 8.0}, 2)
    evaluating.take(2, 2, {"loss": 0.5}, 2)
    assert evaluating.series() == [[1, {"loss": 1.0}], [2, {"loss": 0.5}]]


# -- a job that goes on ---------------------------------------------------------------------------------------------


def test_a_job_that_goes_on_from_a_checkpoint_keeps_its_history() -> None:
    before, dispatch = started(CONFIG)
    orders = run_clock(before, [dispatch], 1.0)
    feed(before, NodeJoined("t", "tcp://t", "transient", 1, 1.25), UsageMeasured("tcp://r", {"read": 8}, {}, 1.5))
    run_clock(before, orders, 2.0)
    kept = summary(before.job, 2.0, 2)
    assert kept["changes"] == [{"event": "join", "node": "t", "second": 1.25, "until": None}]

    after = Controller()
    feed(after, NodeJoined("r", "tcp://r2", "reliable", 1, 50.0), JobStarted(CONFIG, 50.0, Checkpoint(2, "c", kept)))
    feed(after, NodeReady("r", "tcp://r2", 1, (0, 1), 50.0))
    (order,) = [o for o in feed(after, ShardsOpened("r", "tcp://r2", (0, 1), 1, 60.0)) if isinstance(o, Dispatch)]
    after.handle(done(order, 61.0))
    figures = summary(after.job, 61.0)
    assert figures["changes"] == [{"event": "join", "node": "t", "second": 1.25, "until": 2.0}]
    assert figures["bytes_moved"]["read"] == 8  # type: ignore[index]
    assert figures["seconds_by_clock"] == [1.0, 1.0, 1.0]
    assert list(replay(figures["timeline"]))[-1][1].shards == (("r", None), ("r", None))  # type: ignore[arg-type]
