"""Loops of libraries as trials: interrupted and continued they end as undisturbed ones do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot import Trial
from proteus_spot.infra.trials.adapters.boosting import train_lightgbm, train_xgboost
from proteus_spot.infra.trials.adapters.estimators import train_estimator
from proteus_spot.infra.trials.trial_errors import TrialError

RNG = np.random.default_rng(7)
X = RNG.normal(size=(120, 4))
Y = (X[:, 0] + 0.3 * RNG.normal(size=120) > 0).astype(int)


def _estimator(trial: Trial) -> Any:
    from sklearn.linear_model import SGDClassifier

    return train_estimator(
        trial,
        SGDClassifier(alpha=trial.params["alpha"], random_state=trial.seed),
        lambda step: [(X[:60], Y[:60]), (X[60:], Y[60:])],
        lambda model: {"accuracy": model.score(X, Y)},
        classes=[0, 1],
    )


def _lightgbm(trial: Trial) -> Any:
    import lightgbm

    options = {"objective": "binary", "verbose": -1, "num_threads": 1, "num_leaves": 4, "seed": trial.seed}
    train_set = lightgbm.Dataset(X[:80], Y[:80], free_raw_data=False)
    valid_set = lightgbm.Dataset(X[80:], Y[80:], reference=train_set, free_raw_data=False)
    return train_lightgbm(trial, options, train_set, valid_set)


def _xgboost(trial: Trial) -> Any:
    xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed: its boosters are not tried")
    options = {"objective": "binary:logistic", "max_depth": 2, "nthread": 1, "seed": trial.seed}
    return train_xgboost(trial, options, xgboost.DMatrix(X[:80], Y[:80]), xgboost.DMatrix(X[80:], Y[80:]))


@pytest.mark.parametrize("train", [_estimator, _lightgbm, _xgboost])
def test_a_loop_goes_on_from_its_state_as_if_it_had_not_stopped(train: Callable[[Trial], Any], tmp_path: Path) -> None:
    whole = Trial.local({"alpha": 0.01}, max_trial_steps=6)
    train(whole)
    parts = [Trial.local({"alpha": 0.01}, max_trial_steps=last, directory=tmp_path) for last in (2, 6)]
    for part in parts:
        train(part)
    assert [list(part.reported) for part in parts] == [[1, 2], [3, 4, 5, 6]]
    for part in parts:
        for step, metrics in part.reported.items():
            assert metrics == pytest.approx(whole.reported[step], rel=1e-6), (step, metrics)
    assert len({tuple(metrics.values()) for metrics in whole.reported.values()}) > 1, "it learns"
    assert train(parts[1].again()) is not None, "a trial that is at its end trains nothing"


def test_an_estimator_without_partial_fit_is_refused() -> None:
    from sklearn.svm import SVC

    with pytest.raises(TrialError, match="SVC has no partial_fit"):
        train_estimator(Trial.local({}), SVC(), lambda step: [], lambda model: {})
