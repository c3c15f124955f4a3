"""The steps at which a stopping rule may act while a trial runs, so that a simulation visits the ticks after them."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.bidding.tuning.stopping.asha import rung_steps
from proteus_spot.bidding.tuning.stopping.base import TrialView
from proteus_spot.bidding.tuning.stopping.early_curve_rule import EarlyCurveRule
from proteus_spot.bidding.tuning.stopping.median import comparison_steps
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan


class WatchedSteps(Protocol):
    """Steps of a trial that a rule acts upon."""

    def next_step(self, trial: int, after_step: int) -> int | None:
        """Return the first step after `after_step` that the rule may act at; None: there is none."""
        ...


class FixedSteps:
    """The same steps of every trial, ascending."""

    def __init__(self, steps: Sequence[int]) -> None:
        self._steps = np.array(steps, dtype=np.int64)

    def next_step(self, trial: int, after_step: int) -> int | None:
        """Return the first of the steps after `after_step`."""
        index = int(np.searchsorted(self._steps, after_step, side="right"))
        return int(self._steps[index]) if index < len(self._steps) else None


class PlateauSteps:
    """The steps at which EarlyCurve would finish a trial because its curve is a plateau; found once for each curve."""

    def __init__(self, plan: SweepPlan, record: RecordedTrials) -> None:
        self._plan, self._record, self._rule = plan, record, EarlyCurveRule()
        #: By trial: for each step, the next one with a plateau as far as it was looked for; 0: not looked for.
        self._next = np.zeros((record.trials, record.steps + 1), dtype=np.int64)
        self._numbers = np.arange(1, record.steps + 1, dtype=np.int64)

    def next_step(self, trial: int, after_step: int) -> int | None:
        """Return the first step after `after_step` at which the trial's curve is a plateau."""
        last = self._record.steps
        if after_step >= last:
            return None
        if not self._next[trial, after_step]:
            step = after_step + 1
            while step < last and not self._is_plateau(trial, step):
                step += 1
            self._next[trial, after_step:step] = step
        found = int(self._next[trial, after_step])
        return found if found < last else None

    def _is_plateau(self, trial: int, step: int) -> bool:
        values = self._record.values[trial, :step]
        view = TrialView(trial, self._numbers[:step], values, step, "running")
        return bool(self._rule.decide([view], self._plan))


def watched_steps(plan: SweepPlan, record: RecordedTrials) -> WatchedSteps:
    """Return the steps at which the plan's rule may act while a trial runs."""
    match plan.stop:
        case "earlycurve":
            return PlateauSteps(plan, record)
        case "asha":
            return FixedSteps(rung_steps(plan))
        case "median":
            return FixedSteps(comparison_steps(plan.max_trial_steps))
        case _:
            return FixedSteps(())
