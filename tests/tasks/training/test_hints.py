"""A training that has learnt little says what may help."""

from typing import Any

import pytest

from proteus_spot.studies.job_spec import Training
from proteus_spot.tasks.training.hints import loss_hint

HIGH = [[1, 1.0], [2, None], [3, 0.9]]


def training(app: str = "mlr", **params: Any) -> Training:
    return Training(app=app, app_params=params, clocks=3)


def test_a_loss_that_stays_high_is_told_with_what_may_help() -> None:
    hint = loss_hint(training(standardize=False), HIGH)
    assert hint.startswith("the loss is still 90% of that of the first clock; ")
    assert "leave out standardize=false" in hint
    assert "\n" not in hint
    worse = loss_hint(training(standardize=False, step=0.5), [[1, 1.0], [60, 9.84]])
    assert worse.startswith("the loss is still 9.8 times that of the first clock")


def test_a_loss_on_what_is_held_out_that_is_worse_than_a_guess_is_told() -> None:
    losses = [[1, 1.1], [60, 0.3]]
    says = "the loss on what is held out is 4.14, and that of a guess 1.1; "
    assert loss_hint(training(standardize=False), losses, {"loss": 4.14}).startswith(
        f"{says}inputs of different scales"
    )
    assert loss_hint(training(step=2.0), losses, {"loss": 4.14}).startswith(
        f"{says}try shorter steps (--param step=0.2)"
    )
    assert not loss_hint(training(), losses, {"loss": 0.4})
    assert not loss_hint(training(), losses, {"loss": None})


@pytest.mark.parametrize(
    ("asked", "losses"),
    [
        (training(), [[1, 1.0], [2, 0.4]]),
        (training(), [[1, 1.0]]),
        (training(), [[1, None], [2, None]]),
        (training(), [[1, 0.0], [2, 0.0]]),
        (training(), []),
        (training(standardize=True), HIGH),
        (training(), HIGH),
        (training(features=64), HIGH),
        (training("mf"), HIGH),
        (training("mine:App"), HIGH),
    ],
)
def test_there_is_no_hint_where_it_would_not_help(asked: Training, losses: list[list[float | None]]) -> None:
    assert loss_hint(asked, losses) == ""
