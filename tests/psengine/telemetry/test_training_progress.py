"""The figures of a job, and that a checkpoint asked for in the middle of a clock makes none of them count twice."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.membership.node_record import NodeRecord
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.protocol.events import (
    BatchDone,
    CheckpointRequested,
    CheckpointSaved,
    JobStarted,
    NodeJoined,
    NodeReady,
    ShardsOpened,
    TaskStats,
)
from proteus_spot.psengine.protocol.instructions import Dispatch, GatherModel, SaveCheckpoint
from proteus_spot.psengine.telemetry.training_progress import MOST_CLOCKS, TrainingProgress
from tests.support.controller import done, started_early

R, T = NodeRecord("r", "tcp://r", "reliable", 2), NodeRecord("t", "tcp://t", "transient", 1)
PARTITIONS = 4


def summary(progress: TrainingProgress) -> dict[str, object]:
    """What a checkpoint takes of it."""
    return {
        "seconds": 5.0,
        "kernel_seconds": progress.kernel_seconds,
        "losses": [list(pair) for pair in progress.losses],
        "seconds_by_clock": list(progress.clock_seconds),
        "stage_by_clock": list(progress.clock_stages),
        "micro_tasks_done": dict(progress.done_by_tier),
        "examples_done": progress.examples,
    }


def complete(progress: TrainingProgress, clock: int, partitions: Iterable[int]) -> None:
    """Have the even partitions done on the reliable node, the others on the transient one."""
    for p in partitions:
        progress.add((R, T)[p % 2], clock, [TaskStats(p, 1, 2.0 * (p + 1), 2, 0.5)])


def test_a_clock_that_became_common_is_in_all_the_figures() -> None:
    progress = TrainingProgress()
    progress.begin(10.0)
    complete(progress, 1, range(PARTITIONS))
    assert progress.done_by_tier == {"reliable": 0, "transient": 0}
    progress.close(1, 1, 12.5, 1)
    assert progress.losses == [(1, 2.0 * (1 + 2 + 3 + 4) / 8)]
    assert (progress.clock_seconds, progress.clock_stages) == ([2.5], [1])
    assert progress.kernel_seconds == 1.0, "of the node that had the most: two of half a second on one thread"
    assert progress.done_by_tier == {"reliable": 2, "transient": 2}
    assert progress.seconds(13.0) == 3.0


@given(st.integers(0, 3), st.sets(st.integers(0, PARTITIONS - 1)), st.sets(st.integers(0, PARTITIONS - 1)))
def test_what_is_done_again_after_a_checkpoint_in_mid_clock_counts_once(
    clocks: int, ahead: set[int], further: set[int]
) -> None:
    """Some partitions are one clock ahead of the common one when the checkpoint is taken, and some of those two."""
    before = TrainingProgress()
    before.begin(0.0)
    for clock in range(1, clocks + 1):
        complete(before, clock, range(PARTITIONS))
        before.close(clock, clock, float(clock), 1)
    if len(ahead) < PARTITIONS:  # else the clock were common
        complete(before, clocks + 1, ahead)
        complete(before, clocks + 2, ahead & further)

    after = TrainingProgress()
    after.go_on(summary(before), clocks)
    after.begin(100.0)
    for clock in (clocks + 1, clocks + 2):
        complete(after, clock, range(PARTITIONS))
        after.close(clock, clock, 100.0 + clock, 1)

    each = (clocks + 2) * PARTITIONS // 2
    assert after.done_by_tier == {"reliable": each, "transient": each}
    assert [clock for clock, _ in after.losses] == list(range(1, clocks + 3))
    assert len(after.clock_seconds) == len(after.clock_stages) == clocks + 2
    assert after.seconds(101.0) == 6.0, "five seconds before it, and one since"


def test_a_checkpoint_of_a_long_job_holds_a_bounded_number_of_clocks() -> None:
    progress = TrainingProgress()
    progress.begin(0.0)
    clocks = 0
    for _ in range(5):  # a checkpoint after each
        for clock in range(clocks + 1, clocks + MOST_CLOCKS + 1):
            complete(progress, clock, range(PARTITIONS))
            progress.close(clock, clock, float(clock), 1)
        clocks += MOST_CLOCKS
        progress.thin(clocks - 10)
    figures = progress.figures(clocks, float(clocks))
    assert len(figures["losses"]) <= MOST_CLOCKS + 10
    assert len(figures["seconds_by_clock"]) == len(figures["stage_by_clock"]) == MOST_CLOCKS + 10
    assert figures["clocks_left_out"] == figures["seconds_left_out"] == 4 * MOST_CLOCKS - 10
    assert figures["losses"][0][0] < MOST_CLOCKS < figures["losses"][-1][0] == clocks
    assert figures["micro_tasks_done"] == dict.fromkeys(("reliable", "transient"), clocks * PARTITIONS // 2)

    progress.roll_back(clocks - 10)
    assert progress.figures(clocks - 10, 0.0)["micro_tasks_done"]["reliable"] == (clocks - 10) * PARTITIONS // 2
    assert [clock for clock, _ in progress.losses[-2:]] == [clocks - 11, clocks - 10]

    after = TrainingProgress()
    after.go_on(figures, clocks)
    after.begin(0.0)
    assert after.figures(clocks, float(clocks)) == figures | {"seconds": 2.0 * clocks}


def test_what_a_job_may_roll_back_to_is_never_thinned() -> None:
    progress = TrainingProgress()
    progress.begin(0.0)
    for clock in range(1, 5):
        complete(progress, clock, range(PARTITIONS))
        progress.close(clock, clock, float(clock), 1)
    progress.thin(2)
    progress.roll_back(2)
    assert (progress.losses[-1][0], len(progress.clock_seconds)) == (2, 2)
    assert progress.done_by_tier == {"reliable": PARTITIONS, "transient": PARTITIONS}


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_job_that_goes_on_from_a_checkpoint_in_mid_clock_counts_each_task_once(staleness: int) -> None:
    config = JobConfig("middle", n_partitions=PARTITIONS, n_shards=1, clocks=3, staleness=staleness)
    controller, (dispatch, *early) = started_early(config)
    orders = [*early, *controller.handle(done(dispatch, 1.0))]
    (second,) = [order for order in orders if isinstance(order, Dispatch) and order.group == 2]
    half = [TaskStats(task.partition, task.attempt, 1.0, 1, 0.0) for task in second.tasks[:2]]
    controller.handle(BatchDone("r", "tcp://r", 2, tuple(half), 1.5))
    (keeping,) = controller.handle(CheckpointRequested(1.6))
    assert isinstance(keeping, SaveCheckpoint)
    assert keeping.committed == 1
    assert keeping.summary["micro_tasks_done"] == {"reliable": PARTITIONS, "transient": 0}
    controller.handle(CheckpointSaved(Checkpoint(1, "clock-1", {}), 1.7))

    again = Controller()
    again.handle(NodeJoined("r", "tcp://again", "reliable", 1, 0.0))
    again.handle(JobStarted(config, 0.0, Checkpoint(1, "clock-1", keeping.summary)))
    again.handle(NodeReady("r", "tcp://again", 1, tuple(range(PARTITIONS)), 0.0))
    orders = again.handle(ShardsOpened("r", "tcp://again", (0,), 1, 0.0))
    while not isinstance(orders[0], GatherModel):
        (dispatch, *early) = [order for order in orders if isinstance(order, Dispatch)]
        orders = [*early, *again.handle(done(dispatch, 1.0))]
    assert orders[0].summary["micro_tasks_done"] == {"reliable": 3 * PARTITIONS, "transient": 0}


def test_a_clock_of_several_groups_has_their_work_and_the_loss_of_the_last_that_saw_examples() -> None:
    progress = TrainingProgress()
    progress.clocks_are_groups = False
    progress.begin(0.0)
    for group, clock in ((1, None), (2, None), (3, 1), (4, None), (5, 2)):
        complete(progress, group, range(PARTITIONS))
        progress.close(group, clock, float(group), 1)
    assert [clock for clock, _ in progress.losses] == [1, 2]
    assert progress.clock_seconds == [3.0, 2.0]
    assert sum(progress.done_by_tier.values()) == 5 * PARTITIONS
    assert [progress.clock_at(group) for group in range(7)] == [0, 0, 0, 1, 1, 2, 2]
    assert [progress.complete_at(group) for group in range(1, 6)] == [
        (0, False),
        (0, False),
        (1, True),
        (1, False),
        (2, True),
    ]
    assert progress.last_complete == (2, 5)
    progress.roll_back(4)
    assert progress.last_complete == (1, 3)
    complete(progress, 5, range(PARTITIONS))
    progress.close(5, 2, 7.0, 1)
    assert progress.clock_seconds == [3.0, 4.0], "with the seconds that were lost"
    assert sum(progress.done_by_tier.values()) == 5 * PARTITIONS, "group 4 counts, and group 5 once"


def test_the_work_of_a_node_leaves_out_its_first_report_and_keeps_what_is_rolled_back() -> None:
    progress = TrainingProgress()
    assert progress.work_by_node == {}
    complete(progress, 1, range(PARTITIONS))
    assert progress.work_by_node == {"r": (1, 2, 0.5), "t": (1, 2, 0.5)}, "two reports of a task each"
    progress.roll_back(0)
    complete(progress, 1, range(PARTITIONS))
    assert progress.work_by_node == {"r": (3, 6, 1.5), "t": (3, 6, 1.5)}
