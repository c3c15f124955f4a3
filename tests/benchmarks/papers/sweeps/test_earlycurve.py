"""What benchmark `earlycurve` counts, on curves whose answer is known, and that every recorded sweep is read."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.benchmarks.papers.sweeps.earlycurve import (
    keeps_best,
    newest_value,
    ranking_at,
    recorded,
    relative_error,
    staged_curve,
)
from proteus_spot.benchmarks.papers.sweeps.simulation.generated_curves import generate_trials
from proteus_spot.benchmarks.papers.sweeps.slaq import predict_final_slaq
from proteus_spot.benchmarks.papers.sweeps.trials import __file__ as trials_file
from proteus_spot.bidding.tuning.curves import predict_final
from proteus_spot.bidding.tuning.curves.curve_stages import stage_starts
from proteus_spot.tasks.sweeps.sweep_spec import read_sweep

STEPS = np.arange(1, 101)


def crossing() -> np.ndarray:
    """Two curves: the second is worse until two thirds of the steps, and better at their end."""
    return np.stack([0.5 + 1 / STEPS, 42 / (STEPS + 8.0)])


def test_a_ranking_by_predictions_sees_a_crossing_that_newest_values_do_not() -> None:
    made = generate_trials(0, trials=2, steps=100)
    trials = replace(made, values=crossing())
    ours, newest = (ranking_at(predict, trials, 0.7) for predict in (predict_final, newest_value))
    assert (ours, newest) == (([1, 0], []), ([0, 1], []))
    assert keeps_best(*ours, trials, 1) == (True, 0.0)
    hit, regret = keeps_best(*newest, trials, 1)
    assert not hit
    assert regret == pytest.approx((crossing()[0, -1] - crossing()[1, -1]) / crossing()[1, -1])
    # What cannot be predicted goes on, and may be the best.
    assert keeps_best([0], [1], trials, 1) == (True, 0.0)


def test_staged_curves_have_two_stages_and_slaq_misses_the_second() -> None:
    rng = np.random.default_rng(0)
    curves = [staged_curve(rng) for _ in range(10)]
    assert all(len(stage_starts(curve)) == 2 for curve in curves)
    ours, slaq = (
        np.median([relative_error(predict, curve, 0.7) for curve in curves])
        for predict in (predict_final, predict_final_slaq)
    )
    assert ours < 0.02 < slaq


def test_each_application_was_recorded_with_the_grid_of_its_sweep() -> None:
    sweeps = {path.stem: read_sweep(path) for path in Path(trials_file).parent.glob("*.yaml")}
    assert {name: record.settings for name, record in recorded().items()} == {
        name: sweep.settings for name, sweep in sweeps.items()
    }
    assert all(record.steps == sweeps[name].max_trial_steps for name, record in recorded().items())
