"""LightGBM and XGBoost: a boosting round is a step, and the metrics are those of the validation set.

The sweep's metric has the library's name for it, as in ``metric: {name: binary_logloss}``.
"""

from collections.abc import Mapping
from typing import Any

from proteus_spot.infra.trials.trial import Trial


def train_lightgbm(trial: Trial, options: Mapping[str, Any], train_set: Any, valid_set: Any) -> Any:
    """Train a booster of LightGBM round by round, and return it.

    Parameters
    ----------
    options : parameters of LightGBM.
    train_set, valid_set : `lightgbm.Dataset`; the second gives the metrics.
    """
    import lightgbm

    saved, steps = trial.restore(), trial.steps()
    step = next(steps, None)
    if step is None:
        return saved

    def after_round(round_: Any) -> None:
        nonlocal step
        assert step is not None
        trial.report(step, **{name: value for _, name, value, *_ in round_.evaluation_result_list})
        trial.save(round_.model)
        step = next(steps, None)
        if step is None:
            raise lightgbm.callback.EarlyStopException(round_.iteration, round_.evaluation_result_list)

    return lightgbm.train(
        dict(options),
        train_set,
        num_boost_round=trial.max_trial_steps,  # the trial ends it before
        init_model=saved,
        valid_sets=[valid_set],
        callbacks=[after_round],
    )


def train_xgboost(trial: Trial, options: Mapping[str, Any], train_set: Any, valid_set: Any) -> Any:
    """Train a booster of XGBoost round by round, and return it.

    Parameters
    ----------
    options : parameters of XGBoost.
    train_set, valid_set : `xgboost.DMatrix`; the second gives the metrics.
    """
    import xgboost

    saved, steps = trial.restore(), trial.steps()
    first = next(steps, None)
    if first is None:
        return saved

    class AfterRound(xgboost.callback.TrainingCallback):  # type: ignore[misc]
        step: int | None = first

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            del epoch
            assert self.step is not None
            trial.report(self.step, **{name: values[-1] for name, values in evals_log["valid"].items()})
            trial.save(model)
            self.step = next(steps, None)
            return self.step is None

    return xgboost.train(
        dict(options),
        train_set,
        num_boost_round=trial.max_trial_steps,
        xgb_model=saved,
        evals=[(valid_set, "valid")],
        callbacks=[AfterRound()],
        verbose_eval=False,
    )
