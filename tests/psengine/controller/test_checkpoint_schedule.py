"""When a checkpoint is due again."""

import pytest

from proteus_spot.psengine.controller.checkpoint_schedule import AGAIN_S, CheckpointSchedule


@pytest.mark.parametrize(("every_s", "again_s"), [(60.0, AGAIN_S), (2.0, 2.0)])
def test_a_checkpoint_that_failed_is_tried_again_soon(every_s: float, again_s: float) -> None:
    schedule = CheckpointSchedule(every_s)
    schedule.begin(0.0)
    assert schedule.take(1, every_s)
    schedule.failed(every_s)
    assert not schedule.take(1, every_s + again_s - 0.5)
    assert schedule.take(1, every_s + again_s)
