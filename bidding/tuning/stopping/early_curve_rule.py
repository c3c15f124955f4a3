"""Rule `earlycurve`: at the share theta of the steps, the best trials by predicted metric go on."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from proteus_spot.bidding.tuning.curves import CurvePrediction, predict_final
from proteus_spot.bidding.tuning.curves.cleaning import best_value
from proteus_spot.bidding.tuning.curves.curve_stages import PLATEAU_CHANGE, PLATEAU_POINTS
from proteus_spot.bidding.tuning.stopping.base import (
    StoppingPlan,
    TrialView,
    Verdict,
    VerdictKind,
    share_of_steps,
)


class EarlyCurveRule:
    """Stops all trials but the best `mcnt` by predicted metric, and finishes those whose curve is a plateau.

    All trials run to ``ceil(theta * max_trial_steps)`` first. When the last of them is there, each curve is predicted.
    A trial whose metric cannot be predicted runs all of its steps, beside the best; one that has diverged is stopped.

    Source: SpotTune, Algorithm 1 and III-C.
    """

    def first_target(self, plan: StoppingPlan) -> int:
        """Return ceil(theta * max_trial_steps)."""
        return share_of_steps(plan.theta, plan.max_trial_steps)

    def decide(self, trials: Sequence[TrialView], plan: StoppingPlan) -> Mapping[int, Verdict]:
        """Return FINISH for plateaus, and once all trials are at theta: GO_ON for the best, STOP for the others."""
        target = self.first_target(plan)
        verdicts = {trial.number: plateau for trial in trials if (plateau := _plateau(trial, plan))}
        undecided = [
            trial
            for trial in trials
            if not trial.has_ended and trial.number not in verdicts and trial.until_step <= target
        ]
        if target == plan.max_trial_steps or not undecided or len(trials) < plan.trials:
            return verdicts
        if any(trial.last_step < target for trial in undecided):
            return verdicts
        competing = [trial for trial in trials if trial.state not in ("failed", "stopped_early")]
        return verdicts | _at_theta(undecided, competing, plan)


def _at_theta(undecided: list[TrialView], competing: list[TrialView], plan: StoppingPlan) -> dict[int, Verdict]:
    found = {trial.number: predict_trial(trial, plan) for trial in competing}
    sign = -1.0 if plan.direction == "maximize" else 1.0
    order = sorted((sign * at.value, number) for number, at in found.items() if at.value is not None)
    ranks = {number: rank for rank, (_, number) in enumerate(order, start=1)}
    threshold = sign * order[: plan.mcnt][-1][0] if order else math.nan
    verdicts = {}
    for number in (trial.number for trial in undecided):
        verdicts[number] = _verdict(found[number], ranks.get(number), threshold, plan)
    return verdicts


def _verdict(prediction: CurvePrediction, rank: int | None, threshold: float, plan: StoppingPlan) -> Verdict:
    last = plan.max_trial_steps
    if prediction.diverged:
        return Verdict(VerdictKind.STOP, f"it has diverged: {prediction.why}")
    if prediction.value is None or rank is None:
        return Verdict(VerdictKind.GO_ON, f"it cannot be predicted, so it runs all steps: {prediction.why}", last)
    text = f"{prediction.value:.6g} predicted for step {last}, number {rank}"
    if rank <= plan.mcnt:
        return Verdict(VerdictKind.GO_ON, f"{text} of the best {plan.mcnt}", last, prediction.value, prediction.std)
    why = f"{text}: the best {plan.mcnt} have {threshold:.6g} or better"
    return Verdict(VerdictKind.STOP, why, 0, prediction.value, prediction.std)


def _plateau(trial: TrialView, plan: StoppingPlan) -> Verdict | None:
    """Return the verdict on a trial whose curve is a plateau before its last step; None: it is none."""
    if trial.has_ended or len(trial.values) < PLATEAU_POINTS or trial.last_step >= plan.max_trial_steps:
        return None
    finite = trial.values[np.isfinite(trial.values)]
    # Nearly all curves move, and this is asked after each report.
    best, has_bound = best_value(finite, plan.direction, plan.bound)
    last, first = float(trial.values[-1]), float(trial.values[-PLATEAU_POINTS])
    size = max(abs(last - best), abs(first - best)) if has_bound else float(np.ptp(finite))
    if not abs(last - first) <= 2 * PLATEAU_CHANGE * size:
        return None
    prediction = predict_trial(trial, plan)
    if prediction.plateau_at is None or prediction.value is None:
        return None
    why = f"its curve has been a plateau since step {prediction.plateau_at}"
    return Verdict(VerdictKind.FINISH, why, 0, prediction.value, prediction.std)


def predict_trial(trial: TrialView, plan: StoppingPlan) -> CurvePrediction:
    """Return the metric expected at the last step of a trial."""
    steps, values = trial.steps.astype(np.int64), trial.values.astype(np.float64)
    return _predict(steps.tobytes(), values.tobytes(), plan.max_trial_steps, plan.direction, plan.bound)


@lru_cache(maxsize=512)
def _predict(steps: bytes, values: bytes, final_step: int, direction: str, bound: float | None) -> CurvePrediction:
    """Predict a curve; remembered, since one sweep is simulated from many starts with the same curves."""
    at, metric = np.frombuffer(steps, dtype=np.int64), np.frombuffer(values, dtype=np.float64)
    return predict_final(at, metric, final_step, direction, bound)
