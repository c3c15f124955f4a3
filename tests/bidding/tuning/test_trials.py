"""The curve of a trial, and what a reader sees of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.tuning.trials import MetricCurve, TrialRecord, TrialState
from proteus_spot.bidding.tuning.views import best_trial, result_view
from tests.support.markets import PROPERTY
from tests.support.sweeps import SweepWorld, plan_of

REPORTS = st.lists(
    st.lists(st.tuples(st.integers(1, 200), st.none() | st.floats(-5, 5)), max_size=80).map(
        lambda pairs: sorted({step: (step, value) for step, value in pairs}.values(), key=lambda pair: pair[0])
    ),
    max_size=6,
)


@PROPERTY
@given(REPORTS)
def test_a_curve_holds_the_last_report_of_each_step(reports: list[list[tuple[int, float | None]]]) -> None:
    curve, model = MetricCurve(), dict[int, float | None]()
    for report in reports:
        replaced = curve.extend([step for step, _ in report], [value for _, value in report])
        assert replaced == sum(step in model for step, _ in report)
        model |= dict(report)
    steps = sorted(model)
    assert curve.steps.tolist() == steps
    assert [None if np.isnan(value) else value for value in curve.values] == [model[step] for step in steps]
    assert curve.last_step == max(steps, default=0)
    for step in (0, 1, 100, 200):
        assert curve.has(step) == (step in model)
        assert curve.value_at(step) == next((model[at] for at in reversed(steps) if at <= step), None)


def test_the_best_is_the_best_value_so_far() -> None:
    world = SweepWorld(plan_of(trials=4, parallel=4), lambda trial, step: [3.0, 2.0, None, 2.0][trial])
    assert best_trial(world.engine.sweep) is None
    world.tick()
    world.tick()
    assert best_trial(world.engine.sweep) == 1
    world.engine.sweep.trials[1].state = TrialState.FAILED
    assert best_trial(world.engine.sweep) == 3
    with pytest.raises(AttributeError):
        result_view(world.engine.sweep).best = 0  # type: ignore[misc]


def test_the_best_of_a_maximized_metric_is_the_largest() -> None:
    from proteus_spot.bidding.tuning.sweep_plan import Direction

    world = SweepWorld(plan_of(direction=Direction.MAXIMIZE), lambda trial, step: float(trial))
    world.run()
    assert result_view(world.engine.sweep).best == 3


def test_a_new_trial_has_nothing() -> None:
    trial = TrialRecord(0, {"alpha": 1}, 10)
    assert (trial.steps, trial.value, trial.evictions, trial.present) == (0, None, 0, None)
    view = trial.view()
    assert (view.last_step, view.until_step, view.state) == (0, 10, "waiting")
