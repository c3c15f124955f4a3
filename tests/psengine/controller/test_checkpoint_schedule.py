"""When a checkpoint is due again."""

import pytest

from proteus_spot.psengine.controller.checkpoint_schedule import AGAIN_S, CheckpointSchedule
from proteus_spot.psengine.protocol.checkpoint import Checkpoint


@pytest.mark.parametrize(("every_s", "again_s"), [(60.0, AGAIN_S), (2.0, 2.0)])
def test_a_checkpoint_that_failed_is_tried_again_soon(every_s: float, again_s: float) -> None:
    schedule = CheckpointSchedule(every_s)
    schedule.begin(0.0)
    assert schedule.take(1, every_s)
    schedule.failed(every_s)
    assert not schedule.take(1, every_s + again_s - 0.5)
    assert schedule.take(1, every_s + again_s)


def test_a_job_that_rolls_back_again_and_again_is_saved_when_it_is_due() -> None:
    schedule = CheckpointSchedule(60.0)
    for resumes_s in (0.0, 25.0, 50.0):
        schedule.begin(resumes_s)
    assert not schedule.take(1, 59.5)
    assert schedule.take(1, 60.0)


def test_a_request_ends_with_the_checkpoint_that_failed() -> None:
    schedule = CheckpointSchedule(None)
    schedule.begin(0.0)
    schedule.request()
    assert schedule.take(1, 1.0)
    schedule.failed(2.0)
    assert not schedule.take(2, 1000.0), "its client was given the error"


def test_a_request_ends_with_the_checkpoint_that_was_saved() -> None:
    schedule = CheckpointSchedule(60.0)
    schedule.begin(0.0)
    schedule.request()
    assert schedule.take(1, 1.0)
    schedule.saved(Checkpoint(1, "clock-1", {}), 2.0)
    assert not schedule.take(2, 61.5)
    assert schedule.take(2, 62.0)


def test_a_request_is_met_by_a_checkpoint_of_the_same_state() -> None:
    schedule = CheckpointSchedule(None, [Checkpoint(1, "clock-1", {})])
    schedule.request()
    assert not schedule.take(1, 1.0)
    assert not schedule.take(2, 1.0)
