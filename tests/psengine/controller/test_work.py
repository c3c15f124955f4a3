"""What runs, what is told of it, and what happens to work that failed."""

from typing import Literal

import pytest

from proteus_spot.infra.nodes.controller_client import NO_LOSSES
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.controller.job_events import MOST_FAILED
from proteus_spot.psengine.controller.state import Due
from proteus_spot.psengine.controller.status import describe
from proteus_spot.psengine.membership.failure_detector import SILENCE_S
from proteus_spot.psengine.protocol.events import (
    BatchDone,
    BatchFailed,
    NodeJoined,
    NodeReady,
    NoticeReceived,
    StatesTaken,
    TaskStats,
    TimerFired,
)
from proteus_spot.psengine.protocol.instructions import Dispatch, LoadPartitions, SaveCheckpoint
from proteus_spot.psengine.protocol.moved_state import StateRef
from tests.support.controller import done, some_at_work, started


def test_a_status_can_be_asked_for_without_losses() -> None:
    controller, dispatch = started(JobConfig("quiet", n_partitions=2, n_shards=1, clocks=9))
    for clock in (1, 2, 3):
        (dispatch,) = controller.handle(done(dispatch, float(clock)))
    assert [c for c, _ in describe(controller.job, 0, 4.0)["losses"]] == [1, 2, 3]
    assert [c for c, _ in describe(controller.job, 2, 4.0)["losses"]] == [3]
    told = describe(controller.job, NO_LOSSES, 4.0)
    assert (told["losses"], told["clock"]) == ([], 3)


def test_work_that_failed_waits_for_the_next_tick() -> None:
    controller, _ = started(JobConfig("again", n_partitions=2, n_shards=1, clocks=1))
    assert controller.handle(BatchFailed("r", "tcp://r", 1, ((1, 1),), "away", False, 0.1)) == []
    assert controller.handle(NoticeReceived("nobody", 1.0, 0.1)) == []
    stats = TaskStats(0, 1, 1.0, 1, 0.0)
    assert controller.handle(BatchDone("r", "tcp://r", 1, (stats,), 0.2)) == []
    (again,) = controller.handle(TimerFired(0.25))
    assert isinstance(again, Dispatch)
    assert [(t.partition, t.attempt) for t in again.tasks] == [(1, 2)]
    controller.handle(BatchFailed("r", "tcp://r", 1, ((1, 2),), "ValueError: labels", True, 0.3))
    assert (controller.job.state, controller.job.reason) == (
        "failed",
        "partition 1, clock 1, on node r: ValueError: labels",
    )


def test_a_clock_that_does_not_end_says_why() -> None:
    controller, dispatch = started(JobConfig("stuck", n_partitions=2, n_shards=1, clocks=9))
    (dispatch,) = controller.handle(done(dispatch, 0.1))
    for tries in (1, 2, 3):
        assert controller.job.reason == "", "what passes is not spoken of"
        tasks = tuple((task.partition, task.attempt) for task in dispatch.tasks)
        controller.handle(BatchFailed("r", "tcp://r", 2, tasks, "tcp://s did not answer", False, 0.1 + tries))
        (dispatch,) = controller.handle(TimerFired(0.4 + tries))
    assert controller.job.state == "running"
    assert describe(controller.job, 0, 4.0)["reason"] == (
        "clock 2 does not end: 3 batches have failed on r: tcp://s did not answer"
    )
    controller.handle(done(dispatch, 5.0))
    assert controller.job.reason == ""


def test_a_clock_that_does_not_end_is_tried_again_ever_more_rarely_and_not_for_ever() -> None:
    controller, dispatch = started(JobConfig("stuck", n_partitions=2, n_shards=1, clocks=9))
    (order,) = controller.handle(done(dispatch, 0.25))
    now_s, pauses_s = 0.25, list[float]()
    while controller.job.state == "running":
        assert len(pauses_s) < MOST_FAILED
        assert isinstance(order, Dispatch)
        tasks = tuple((task.partition, task.attempt) for task in order.tasks)
        assert controller.handle(BatchFailed("r", "tcp://r", 2, tasks, "tcp://s did not answer", False, now_s)) == []
        failed_s, sent = now_s, []
        while controller.job.state == "running" and not sent:
            now_s += 0.25
            sent = controller.handle(TimerFired(now_s))
        if sent:
            (order,) = sent
            pauses_s.append(now_s - failed_s)
    assert pauses_s[:6] == [0.25, 0.25, 0.25, 0.5, 1.0, 2.0]
    assert pauses_s == sorted(pauses_s)
    assert pauses_s[-1] == 60.0
    assert (controller.job.state, controller.job.reason) == (
        "failed",
        f"clock 2 does not end: {MOST_FAILED} batches have failed on r: tcp://s did not answer",
    )


def test_who_loads_may_be_silent_for_longer() -> None:
    """Code of an application that prepares a partition may keep its process from everything else."""
    controller, dispatch = started(JobConfig("slow", n_partitions=2, n_shards=1, clocks=9))
    controller.handle(done(dispatch, 0.1))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 1.0))
    assert controller.silence_timeout_s("tcp://t") == SILENCE_S
    (load,) = [o for o in controller.handle(TimerFired(5.0)) if isinstance(o, LoadPartitions)]
    assert controller.silence_timeout_s("tcp://t") == 3 * SILENCE_S
    controller.handle(NodeReady("t", "tcp://t", load.request, load.partitions, 6.0))
    assert controller.silence_timeout_s("tcp://t") == SILENCE_S
    assert controller.silence_timeout_s("tcp://nobody") == SILENCE_S


@pytest.mark.parametrize(("clock_s", "patience_s"), [(1.0, SILENCE_S), (33.0, 33.0), (600.0, 60.0)])
def test_who_serves_may_be_silent_for_a_clock_as_its_link_may_be_full(clock_s: float, patience_s: float) -> None:
    controller, dispatch = started(JobConfig("full", n_partitions=2, n_shards=1, clocks=9))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0))
    (dispatch,) = (order for order in controller.handle(done(dispatch, clock_s)) if isinstance(order, Dispatch))
    controller.handle(done(dispatch, 2 * clock_s))
    assert controller.silence_timeout_s("tcp://r") == patience_s
    assert controller.silence_timeout_s("tcp://t") >= SILENCE_S


@pytest.mark.parametrize("nan", ["fail", "allow"])
def test_finite_losses_with_an_infinite_sum_fail_the_job_unless_it_allows_them(nan: Literal["fail", "allow"]) -> None:
    config = JobConfig("sum", n_partitions=2, n_shards=1, clocks=9, nan=nan)
    controller, dispatch = started(config)
    stats = tuple(TaskStats(task.partition, task.attempt, 1e308, 1, 0.0) for task in dispatch.tasks)
    controller.handle(BatchDone(dispatch.node, dispatch.address, dispatch.group, stats, 1.0))
    if nan == "fail":
        assert controller.job.state == "failed"
        assert controller.job.reason.startswith("the loss of clock 1 is inf: want finite numbers")
    else:
        assert controller.job.state == "running"


def test_a_checkpoint_that_is_due_is_begun_with_a_common_clock_and_before_the_next_clock() -> None:
    controller, dispatch = started(JobConfig("kept", n_partitions=2, n_shards=1, clocks=9, checkpoint_s=5.0))
    (dispatch,) = controller.handle(done(dispatch, 1.0))
    save, following = controller.handle(done(dispatch, 6.0))
    assert isinstance(save, SaveCheckpoint)
    assert save.committed == 2
    assert isinstance(following, Dispatch), "the servers fold the next clock in"


def test_what_is_due_stays_due_when_less_becomes_due() -> None:
    controller = Controller()
    for due, of_all in ((Due.SHARDS, Due.SHARDS), (Due.NODES, Due.NODES), (Due.TASKS, Due.NODES)):
        controller.job.mark_due(due)
        assert controller.job.due is of_all


def test_states_count_as_taken_for_the_present_attempt_of_the_node_that_runs_it() -> None:
    """A node may have dropped since what it took for an earlier one; the node that had the state would leave."""
    controller, orders = some_at_work("r", "s", n_partitions=2)
    tasks = controller.job.tasks
    assert tasks is not None
    for order in orders:
        stats = tuple(TaskStats(t.partition, t.attempt, 1.0, 1, 0.0, has_state=True) for t in order.tasks)
        controller.handle(BatchDone(order.node, order.address, order.group, stats, 1.0))
    (partition,) = (partition for partition, running in tasks.running.items() if running.node == "s")
    state = StateRef(partition, 1, 1, "tcp://r")
    tasks.states.taken([state], "tcp://r")  # as if the partition had moved from r to s
    assert tasks.states.held_at("tcp://r") == 2
    controller.handle(BatchFailed("s", "tcp://s", 2, ((partition, 1),), "away", False, 1.5))
    controller.handle(TimerFired(2.0))
    assert tasks.running[partition].attempt == 2
    controller.handle(StatesTaken("s", "tcp://s", (state,), (1,), 2.1))
    assert tasks.states.current(partition) == state, "of an earlier attempt"
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 2.1))
    controller.handle(StatesTaken("t", "tcp://t", (state,), (2,), 2.1))
    assert tasks.states.current(partition) == state, "another node runs it"
    controller.handle(StatesTaken("s", "tcp://s", (state,), (2,), 2.2))
    assert tasks.states.held_at("tcp://s") == 1
