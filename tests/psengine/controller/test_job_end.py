"""How a job ends: stopped, found finished, saved at the first try or a later one, or with something missing."""

import pytest

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.controller.reconciler import MOST_NOT_OPENED, OPEN_S
from proteus_spot.psengine.controller.status import describe
from proteus_spot.psengine.protocol.events import (
    JobFoundFinished,
    JobStarted,
    ModelSaved,
    NodeJoined,
    NodeReady,
    NodesLost,
    SaveFailed,
    ShardsNotOpened,
    ShardsOpened,
    StopRequested,
    TimerFired,
    UpdatesMissing,
)
from proteus_spot.psengine.protocol.instructions import GatherModel, LoadPartitions, OpenShards
from tests.support.controller import done, gathering, started


def test_a_stop_ends_at_the_clock_under_way() -> None:
    controller, dispatch = started(JobConfig("stop", n_partitions=2, n_shards=1, clocks=100))
    assert controller.handle(StopRequested("enough", 1.0)) == []
    (gather,) = controller.handle(done(dispatch, 2.0))
    assert isinstance(gather, GatherModel)
    assert (gather.committed, gather.summary["stopped"]) == (1, "enough")
    controller.handle(ModelSaved({**gather.summary, "lost_micro_tasks": 0}, 3.0))
    assert (controller.job.state, controller.job.reason) == ("stopped", "enough")


@pytest.mark.parametrize("asked", [False, True])
def test_a_stop_before_the_first_clock_leaves_a_result_and_no_model(asked: bool) -> None:
    controller = Controller()
    if asked:
        controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
        controller.handle(JobStarted(JobConfig("early", n_partitions=2, n_shards=1, clocks=1), 0.0))
    assert controller.handle(StopRequested("never mind", 1.0)) == []
    result = describe(controller.job, 0, 1.0)["result"]
    assert (controller.job.state, controller.job.reason) == ("stopped", "never mind")
    assert result["job_id"] == ("early" if asked else None)
    assert (result["clocks"], result["losses"], result["stopped"]) == (0, [], "never mind")
    assert (result["lost_micro_tasks"], result["repeated_micro_tasks"], result["seconds"]) == (0, 0, 0.0)


def test_an_update_that_is_missing_fails_the_job() -> None:
    controller, _ = gathering()
    assert controller.handle(UpdatesMissing(3, 3.0)) == []
    assert (controller.job.state, controller.job.reason) == ("failed", "3 update(s) are missing from the model")
    assert (controller.job.lost_micro_tasks, controller.job.result) == (3, None)


@pytest.mark.parametrize(
    ("stopped", "lost", "state", "reason"),
    [
        (None, 0, "finished", "the model was there already"),
        ("enough", 0, "stopped", "enough"),
        (None, 2, "failed", "2 update(s) are missing from the model"),
    ],
)
def test_a_model_that_is_there_says_how_the_job_ended(stopped: str | None, lost: int, state: str, reason: str) -> None:
    controller = Controller()
    result: dict[str, object] = {"clocks": 2, "stopped": stopped, "lost_micro_tasks": lost}
    controller.handle(JobFoundFinished(JobConfig("found", clocks=2), result, ((1, 2.0), (2, 1.0)), lost, 0.0))
    assert (controller.job.state, controller.job.reason) == (state, reason)
    assert controller.job.result == (None if lost else result)
    assert controller.job.lost_micro_tasks == lost
    assert controller.handle(TimerFired(1.0)) == []


def test_a_model_that_was_not_saved_is_saved_again_ever_more_seldom() -> None:
    controller, gather = gathering(now_s=0.0)
    now_s = 0.0
    for pause_s in (1.0, 4.0, 16.0, 64.0):
        assert controller.handle(SaveFailed("OSError: away", False, now_s)) == []
        assert (controller.job.state, "OSError: away" in controller.job.reason) == ("running", True)
        assert controller.handle(TimerFired(now_s + pause_s - 0.1)) == []
        now_s += pause_s
        assert controller.handle(TimerFired(now_s)) == [gather]
        assert controller.handle(TimerFired(now_s + 100)) == []  # one try at a time
    controller.handle(SaveFailed("OSError: away", False, now_s))
    assert controller.job.state == "failed"
    assert controller.job.reason == "the model could not be saved: OSError: away (try 5)"
    assert controller.handle(TimerFired(1000.0)) == []


def test_a_second_try_that_saves_ends_the_job() -> None:
    controller, gather = gathering()
    controller.handle(SaveFailed("OSError: away", False, 2.0))
    assert controller.handle(TimerFired(3.0)) == [gather]
    controller.handle(ModelSaved({**gather.summary, "lost_micro_tasks": 0}, 4.0))
    assert (controller.job.state, controller.job.lost_micro_tasks) == ("finished", 0)


def test_an_application_that_cannot_evaluate_is_not_asked_again() -> None:
    controller, _ = gathering()
    controller.handle(SaveFailed("ZeroDivisionError: by the user", True, 3.0))
    assert controller.job.reason == "the model could not be saved: ZeroDivisionError: by the user (try 1)"
    assert controller.job.state == "failed"


@pytest.mark.parametrize("saved", [True, False])
def test_shards_that_go_while_the_model_is_saved_count_when_it_is_not(saved: bool) -> None:
    controller, gather = gathering()
    controller.handle(NodesLost({"tcp://r": "killed"}, 3.0))
    assert controller.job.state == "running"
    if saved:
        controller.handle(ModelSaved({**gather.summary, "lost_micro_tasks": 0}, 4.0))
        assert controller.job.state == "finished"
    else:
        controller.handle(SaveFailed("OSError: away", False, 4.0))
        assert controller.job.state == "waiting"
        assert controller.job.reason.startswith(
            "node r was lost with the shards it served: killed; rolled back to the be"
        )
        assert controller.job.tasks is not None
        assert controller.job.tasks.common == 0


def test_shards_that_go_between_two_tries_at_saving_are_made_anew() -> None:
    controller, _ = gathering()
    controller.handle(SaveFailed("OSError: away", False, 3.0))
    controller.handle(NodesLost({"tcp://r": "killed"}, 3.5))
    assert controller.job.state == "waiting"
    assert controller.job.tasks is not None
    assert controller.job.tasks.common == 0


@pytest.mark.parametrize("saved", [True, False])
def test_a_stop_while_the_model_is_saved_counts_if_that_comes_to_nothing(saved: bool) -> None:
    """Else all that was to be stopped would be done once more."""
    controller, gather = gathering()
    assert controller.handle(StopRequested("enough", 2.5)) == []
    controller.handle(NodesLost({"tcp://r": "killed"}, 3.0))
    if saved:
        controller.handle(ModelSaved({**gather.summary, "lost_micro_tasks": 0}, 4.0))
        assert controller.job.state == "finished"
    else:
        controller.handle(SaveFailed("OSError: away", False, 4.0))
        assert (controller.job.state, controller.job.reason) == ("stopped", "enough")


def test_shards_that_cannot_be_opened_are_tried_again_and_not_for_ever() -> None:
    controller = Controller()
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
    controller.handle(JobStarted(JobConfig("open", n_partitions=2, n_shards=1, clocks=3), 0.0))
    orders = controller.handle(NodeReady("r", "tcp://r", 1, (0, 1), 0.0))
    now_s, pauses_s = 0.0, []
    for _ in range(MOST_NOT_OPENED):
        failed_s = now_s
        while not orders:
            now_s += 0.25
            orders = controller.handle(TimerFired(now_s))
        pauses_s.append(now_s - failed_s)
        (opening,) = [order for order in orders if isinstance(order, OpenShards)]
        assert controller.job.state != "failed"
        orders = controller.handle(ShardsNotOpened("r", "tcp://r", (0,), opening.epoch, "no such blob", now_s))
    assert pauses_s[1:] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, *[60.0] * (MOST_NOT_OPENED - 8)], (
        "the store may be away"
    )
    assert controller.job.state == "failed"
    assert controller.job.reason == f"shards (0,) could not be opened {MOST_NOT_OPENED} times: no such blob"


def test_failures_to_open_shards_count_from_the_last_time_they_were_open() -> None:
    controller, now_s = Controller(), 0.0
    controller.handle(JobStarted(JobConfig("open", n_partitions=2, n_shards=1, clocks=3), now_s))
    for node in ("first", "second"):
        address = f"tcp://{node}"
        (load,) = controller.handle(NodeJoined(node, address, "reliable", 1, now_s))
        assert isinstance(load, LoadPartitions)
        orders = controller.handle(NodeReady(node, address, load.request, (0, 1), now_s))
        for _ in range(MOST_NOT_OPENED - 1):
            (opening,) = [order for order in orders if isinstance(order, OpenShards)]
            orders = controller.handle(ShardsNotOpened(node, address, (0,), opening.epoch, "away", now_s))
            while not orders:
                now_s += 0.25
                orders = controller.handle(TimerFired(now_s))
        (opening,) = [order for order in orders if isinstance(order, OpenShards)]
        controller.handle(ShardsOpened(node, address, (0,), opening.epoch, now_s))
        assert controller.job.state == "running"
        controller.handle(NodesLost({address: "killed"}, now_s))


def test_shards_that_a_stuck_node_does_not_open_are_opened_anew() -> None:
    controller = Controller()
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
    controller.handle(JobStarted(JobConfig("open", n_partitions=2, n_shards=1, clocks=3), 0.0))
    (opening,) = controller.handle(NodeReady("r", "tcp://r", 1, (0, 1), 0.0))
    assert isinstance(opening, OpenShards)
    for now_s in range(0, int(OPEN_S), 10):
        assert controller.handle(TimerFired(float(now_s))) == []
    assert controller.handle(TimerFired(OPEN_S)) == []
    assert controller.job.rollbacks[-1][1].startswith(
        "shards (0,) could not be opened: node r has not reported in 1800 s;"
    )
    (again,) = controller.handle(TimerFired(OPEN_S + 1.0))
    assert isinstance(again, OpenShards)
    assert again.epoch > opening.epoch
    controller.handle(ShardsOpened("r", "tcp://r", (0,), opening.epoch, OPEN_S + 2.0))
    assert controller.job.shards.opening, "it opened them too late"
    controller.handle(ShardsOpened("r", "tcp://r", (0,), again.epoch, OPEN_S + 2.0))
    assert controller.job.state == "running"
