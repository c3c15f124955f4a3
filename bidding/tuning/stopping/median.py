"""Rule `median`: a trial stops whose best value is worse than the median of the others' averages."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.tuning.stopping.base import StoppingPlan, TrialView, Verdict, VerdictKind, in_minimize_order

#: Number of equal shares of the steps at whose ends trials are compared.
COMPARISONS = 20
#: No trial stops before this share of its steps.
GRACE = 0.1
#: A median of fewer other trials says nothing.
MIN_OTHERS = 3


class MedianRule:
    """Stops a trial whose best value until a step is worse than the median of the others' averages until that step.

    The others are those that have reached the step. Trials are compared at fixed steps, so that verdicts do not depend
    on how often reports are read.

    Source: Golovin et al., Google Vizier (KDD 2017), 3.2.2.
    Differs: the others need not be complete: the trials of a sweep run at the same time.
    """

    def first_target(self, plan: StoppingPlan) -> int:
        """Return the last step."""
        return plan.max_trial_steps

    def decide(self, trials: Sequence[TrialView], plan: StoppingPlan) -> Mapping[int, Verdict]:
        """Return STOP for trials that are worse than the median."""
        verdicts: dict[int, Verdict] = {}
        averages: dict[int, dict[int, float]] = {}
        for trial in trials:
            step = _comparison_step(trial.last_step, plan.max_trial_steps)
            if trial.has_ended or not step or not len(_losses(trial, step, plan)):
                continue
            if step not in averages:
                averages[step] = {
                    other.number: float(np.mean(_losses(other, step, plan)))
                    for other in trials
                    if other.last_step >= step and len(_losses(other, step, plan))
                }
            others = [average for number, average in averages[step].items() if number != trial.number]
            if len(others) < MIN_OTHERS:
                continue
            best, median = float(np.min(_losses(trial, step, plan))), float(np.median(others))
            if best > median:
                sign = -1.0 if plan.direction == "maximize" else 1.0
                why = f"its best until step {step}, {sign * best:.6g}, is worse than the median of {len(others)} others"
                verdicts[trial.number] = Verdict(VerdictKind.STOP, f"{why}, {sign * median:.6g}")
        return verdicts


def comparison_steps(max_trial_steps: int) -> list[int]:
    """Return the steps at which trials are compared, ascending."""
    every = _every(max_trial_steps)
    return [step for step in range(every, max_trial_steps, every) if step >= GRACE * max_trial_steps]


def _comparison_step(last_step: int, max_trial_steps: int) -> int:
    """Return the newest step at which a trial is compared; 0: none yet, or it has made all of its steps."""
    every = _every(max_trial_steps)
    step = last_step // every * every
    return step if GRACE * max_trial_steps <= step < max_trial_steps else 0


def _every(max_trial_steps: int) -> int:
    return max(math.ceil(max_trial_steps / COMPARISONS), 1)


def _losses(trial: TrialView, step: int, plan: StoppingPlan) -> NDArray[np.float64]:
    """Return the values until a step, the smallest the best; infinite where they are no numbers."""
    losses = in_minimize_order(trial.values[: np.searchsorted(trial.steps, step, side="right")], plan.direction)
    return np.where(np.isfinite(losses), losses, np.inf)
