"""Rule `asha`: asynchronous successive halving."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from proteus_spot.bidding.tuning.stopping.base import (
    StoppingPlan,
    TrialView,
    Verdict,
    VerdictKind,
    in_minimize_order,
    share_of_steps,
)

#: A rung promotes one trial in this number.
ETA = 3


class AshaRule:
    """Promotes a trial to the next rung as soon as it is in the best third of those that have reached its rung.

    Rungs end at ``max_trial_steps / 3^s``, with as many rungs as leave one trial of the sweep for the last. A trial
    that is not promoted waits until more trials have reached the rung. It is stopped when no other trial can.

    Source: Li et al., A System for Massively Parallel Hyperparameter Tuning (MLSys 2020), Algorithm 2.
    Differs: a sweep has a number of trials and ends, so the best trial of a rung is promoted even where the rung has
    fewer than three, once it is complete.
    """

    def first_target(self, plan: StoppingPlan) -> int:
        """Return the step of the lowest rung."""
        return rung_steps(plan)[0]

    def decide(self, trials: Sequence[TrialView], plan: StoppingPlan) -> Mapping[int, Verdict]:
        """Return GO_ON to the next rung for promoted trials, and STOP where a rung is complete."""
        rungs = rung_steps(plan)
        verdicts: dict[int, Verdict] = {}
        gone = {trial.number for trial in trials if trial.has_ended}
        for step, following in itertools.pairwise(rungs):
            order = sorted((_loss_at(trial, step, plan), trial.number) for trial in trials if trial.last_step >= step)
            reached = {number for _, number in order}
            complete = len(trials) >= plan.trials and all(t.number in reached | gone for t in trials)
            promoted = max(len(order) // ETA, int(complete))
            ranks = {number: rank for rank, (_, number) in enumerate(order)}
            for trial in trials:
                rank = ranks.get(trial.number, len(order))
                if trial.number in gone or trial.until_step > step or trial.number not in reached:
                    continue
                text = f"number {rank + 1} of {len(order)} at step {step}"
                if rank < promoted:
                    verdicts[trial.number] = Verdict(VerdictKind.GO_ON, text, following)
                elif complete:
                    verdicts[trial.number] = Verdict(VerdictKind.STOP, f"{text}: the best {promoted} go on")
                    gone.add(trial.number)
        return verdicts


def rung_steps(plan: StoppingPlan) -> list[int]:
    """Return the steps at which rungs end, ascending; the last is the last step of a trial."""
    halvings = int(math.log(max(plan.trials, 1), ETA) + 1e-9)
    return sorted({share_of_steps(ETA**-power, plan.max_trial_steps) for power in range(halvings + 1)})


def _loss_at(trial: TrialView, step: int, plan: StoppingPlan) -> float:
    """Return the newest value at a rung; infinite where that is not a number, or there is none yet."""
    count = int(np.searchsorted(trial.steps, step, side="right"))
    if not count:
        return math.inf
    value = trial.values[count - 1]
    return float(in_minimize_order(value, plan.direction)) if np.isfinite(value) else math.inf
