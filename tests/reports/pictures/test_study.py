"""Optuna's plots of a sweep: which there are, and that they leave nothing behind."""

from dataclasses import replace

import numpy as np
import pytest

from proteus_spot.bidding.tuning.space import parse_parameter
from proteus_spot.reports.pictures.study import LEAST_TRIALS, study_svgs
from proteus_spot.reports.sweep_view import SweepView, TrialLine
from tests.support.sweep_views import empty_view, small_view


def view_of(count: int, **space: dict[str, object]) -> SweepView:
    parameters = {name: parse_parameter(record) for name, record in space.items()}
    rng = np.random.default_rng(0)
    lines = []
    for number in range(count):
        params = {name: parameter.draw(rng) for name, parameter in parameters.items()}
        first = next(iter(params.values()))
        value = float(first) if isinstance(first, int | float) else float(number)
        lines.append(TrialLine(number, params, "finished", steps=9, value=value))
    return replace(small_view(), trials=tuple(lines), space=parameters, trial_count=count)


ALPHA = {"log": [1e-5, 1e-1]}
#: Values that are texts of one another.
KIND = {"choice": [True, 1, "1", None, "None", "l1", 1.0]}


def test_importance_parallel_coordinates_and_contours_are_drawn() -> None:
    view = view_of(12, alpha=ALPHA, depth={"int": [1, 9]}, kind=KIND)
    drawn = study_svgs(view)
    assert list(drawn) == ["importance", "parallel", "contour"]
    assert all(b"<svg" in picture for picture in drawn.values())
    assert b"alpha" in drawn["importance"] or len(drawn["importance"]) > 1000

    import matplotlib.pyplot as plt

    assert not plt.get_fignums()


@pytest.mark.parametrize(
    ("view", "keys"),
    [
        (empty_view(), []),
        (small_view(), []),
        (view_of(LEAST_TRIALS - 1, alpha=ALPHA), []),
        (view_of(8, alpha=ALPHA), ["importance", "parallel"]),
        (view_of(8, one={"choice": [1]}), []),
    ],
)
def test_what_there_are_no_values_for_is_left_out(view: SweepView, keys: list[str]) -> None:
    assert list(study_svgs(view)) == keys


def test_equal_values_fail_no_report() -> None:
    view = view_of(8, alpha=ALPHA, kind=KIND)
    equal = replace(view, trials=tuple(replace(trial, value=1.0) for trial in view.trials))
    assert set(study_svgs(equal)) <= {"importance", "parallel", "contour"}
