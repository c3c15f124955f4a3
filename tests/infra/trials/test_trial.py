"""A trial in a notebook or a test: steps, reports, saving and restoring."""

import math
from pathlib import Path

import numpy as np
import pytest

from proteus_spot import Trial
from proteus_spot.infra.trials.trial_errors import TrialError


def train(trial: Trial) -> None:
    """Count to the last step by the rate; saves the count."""
    state = trial.restore() or {"total": np.zeros(2)}
    for step in trial.steps():
        state["total"] += trial.params["rate"]
        trial.report(step, loss=1.0 / state["total"].sum())
        trial.save(state)


def test_a_function_trains_to_its_last_step() -> None:
    trial = Trial.local({"rate": 0.5}, max_trial_steps=4)
    train(trial)
    assert [metrics["loss"] for metrics in trial.reported.values()] == [1.0, 0.5, 1 / 3, 0.25]
    assert list(trial.reported) == [1, 2, 3, 4]


def test_the_next_trial_in_a_directory_goes_on_after_the_saved_step(tmp_path: Path) -> None:
    train(Trial.local({"rate": 0.5}, max_trial_steps=2, directory=tmp_path))
    later = Trial.local({"rate": 0.5}, max_trial_steps=4, directory=tmp_path)
    train(later)
    assert list(later.reported) == [3, 4]
    assert later.reported[4]["loss"] == 0.25
    assert len(list(tmp_path.iterdir())) == 1, "older states are removed"


def test_steps_begin_at_1_if_nothing_was_restored(tmp_path: Path) -> None:
    train(Trial.local({"rate": 0.5}, max_trial_steps=2, directory=tmp_path))
    assert next(Trial.local({}, max_trial_steps=2, directory=tmp_path).steps()) == 1


def test_the_report_of_a_repeated_step_replaces_the_first() -> None:
    trial = Trial.local({}, max_trial_steps=3)
    for step in trial.steps():
        trial.report(step, loss=1.0)
    trial.report(2, loss=np.float32(5.0))
    assert [trial.reported[step]["loss"] for step in (1, 2, 3)] == [1.0, 5.0, 1.0]


def test_nan_is_a_value() -> None:
    trial = Trial.local({}, max_trial_steps=1)
    for step in trial.steps():
        trial.report(step, loss=float("nan"))
    assert math.isnan(trial.reported[1]["loss"])


@pytest.mark.parametrize(
    ("step", "metrics", "message"),
    [
        (2, {"loss": 1.0}, "report: step 2 is not among the steps trained, 1 to 1"),
        (0, {"loss": 1.0}, "step 0 is not"),
        (1.0, {"loss": 1.0}, "step 1.0 is not"),
        (True, {"loss": 1.0}, "step True is not"),
        (1, {}, "report: step 1 has no metric"),
        (1, {"loss": "low"}, r"report: loss is a str and no number; give float\(loss\)"),
        (1, {"loss": None}, "loss is a NoneType"),
        (1, {"loss": np.ones(3)}, "loss is a ndarray"),
    ],
)
def test_a_wrong_report_is_one_line(step: object, metrics: dict[str, float], message: str) -> None:
    trial = Trial.local({}, max_trial_steps=3)
    next(trial.steps())
    with pytest.raises(TrialError, match=message) as caught:
        trial.report(step, **metrics)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert trial.reported == {}


def test_parameters_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        Trial.local({"rate": 1}).params["rate"] = 2  # type: ignore[index]
