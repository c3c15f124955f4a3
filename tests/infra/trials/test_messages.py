"""Durations of steps, as a trial's process measures them."""

import pytest

from infra.trials.messages import Message, StepDurations, parse_message


def test_mean_and_variation_leave_out_the_first_step_which_compiles() -> None:
    durations = StepDurations()
    for seconds in (90.0, 1.0, 3.0):
        durations = durations.add(seconds)
    assert durations.mean_s == 2.0
    assert durations.cov == pytest.approx(0.5)  # 1 and 3: a deviation of 1 about 2
    assert StepDurations().add(90.0).add(1.0).cov is None
    assert StepDurations().add(0.0).add(0.0).add(0.0).cov is None
    message = Message("step", 3, times=durations)
    assert parse_message(message.to_line(), 10) == message
