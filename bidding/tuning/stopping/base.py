"""The `TrialStoppingRule` Protocol, its input `TrialView` and `StoppingPlan`, and its output `Verdict`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

#: States in which a trial never runs again.
ENDED_STATES = frozenset({"finished", "stopped_early", "failed"})


class StoppingPlan(Protocol):
    """What a stopping rule reads of a sweep's plan."""

    @property
    def max_trial_steps(self) -> int:
        """The last step of a trial; steps count from 1."""
        ...

    @property
    def direction(self) -> str:
        """``minimize`` or ``maximize``."""
        ...

    @property
    def bound(self) -> float | None:
        """The best value that a maximised metric can have; None: 1."""
        ...

    @property
    def theta(self) -> float:
        """The share of the steps after which the final value is predicted, in (0, 1]."""
        ...

    @property
    def mcnt(self) -> int:
        """The number of trials that go on after the prediction."""
        ...

    @property
    def trials(self) -> int:
        """The number of trials that the sweep will have; a sampler may not have proposed all of them yet."""
        ...


@dataclass(frozen=True, slots=True)
class TrialView:
    """Everything of a trial that a stopping rule may depend on.

    Attributes
    ----------
    number : counts from 0.
    steps : (n,) steps with a reported value, ascending, each once.
    values : (n,) the metric at each of them; NaN or infinite where the trial reported that.
    until_step : the step at which the trial is to pause.
    state : a value of `TrialState`.
    at_step : the step that it has paused at, with or without a value there; 0 while it has not.
    """

    number: int
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    until_step: int
    state: str
    at_step: int = 0

    @property
    def last_step(self) -> int:
        """The newest step with a value, or the one that it has paused at, whichever is later; 0 before the first."""
        return max(int(self.steps[-1]) if len(self.steps) else 0, self.at_step)

    @property
    def has_ended(self) -> bool:
        """Whether the trial never runs again."""
        return self.state in ENDED_STATES


class VerdictKind(StrEnum):
    """What a trial is to do."""

    GO_ON = "go_on"
    STOP = "stop"
    FINISH = "finish"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a trial is to do, and why.

    Attributes
    ----------
    kind : GO_ON to `until_step`; STOP: it ends as `stopped_early`; FINISH: it ends as `finished`, for its curve has
        become a plateau; WAIT: nothing changes, as for a trial that has no verdict.
    until_step : the step at which a trial that goes on is to pause next; 0 for the other kinds.
    predicted, predicted_std : the metric expected at the last step, and its standard deviation; None: not predicted.
    """

    kind: VerdictKind
    why: str
    until_step: int = 0
    predicted: float | None = None
    predicted_std: float | None = None


class TrialStoppingRule(Protocol):
    """Decides which trials go on; the same views get the same verdicts."""

    def first_target(self, plan: StoppingPlan) -> int:
        """Return the step to which every trial runs first, in [1, max_trial_steps]."""
        ...

    def decide(self, trials: Sequence[TrialView], plan: StoppingPlan) -> Mapping[int, Verdict]:
        """Return verdicts by trial number, for the trials that something changes for.

        It may be called after every report. `trials` has every trial that was proposed, in the order of their numbers.
        Trials that have ended get no verdict.
        """
        ...


def never_proposed(number: int) -> TrialView:
    """Return the view of a trial that its sampler could not propose: it has failed before its first step."""
    return TrialView(number, np.zeros(0, np.int64), np.zeros(0), 0, "failed")


def share_of_steps(share: float, max_trial_steps: int) -> int:
    """Return the step that ends a share of the steps: ceil(share * max_trial_steps), at least 1."""
    # 0.7 * 10 is 7.000000000000001 or less by the last bit: a step more would be none that the user asked for.
    return min(max(math.ceil(share * max_trial_steps - 1e-9), 1), max_trial_steps)


def in_minimize_order(values: NDArray[Any], direction: str) -> NDArray[np.float64]:
    """Return values of which the smallest is the best."""
    array = np.asarray(values, dtype=float)
    return -array if direction == "maximize" else array
