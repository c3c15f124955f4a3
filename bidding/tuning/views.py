"""The state of a sweep for its result, its pages and its tables."""

from collections.abc import Mapping
from dataclasses import dataclass

from proteus_spot.bidding.tuning.sweep_record import SweepRecord
from proteus_spot.bidding.tuning.trials import SweepState, TrialRecord, TrialState


@dataclass(frozen=True, slots=True)
class TrialResult:
    """A trial as a reader sees it.

    Attributes
    ----------
    number, params : the setting.
    state, why : its state, and the reason where it needs one.
    steps, until_step : where it stands, and where it pauses next.
    repeated_steps : steps that were trained again after a loss.
    value : the metric where it stands; None where it is not a finite number.
    predicted, predicted_std : the metric expected at the last step, and its standard deviation; None: not predicted.
    evictions : machines that the market took while it was on them.
    deployments : order ids of its machines, in sequence; charges and refunds are booked under them.
    """

    number: int
    params: Mapping[str, object]
    state: TrialState
    why: str
    steps: int
    until_step: int
    repeated_steps: int
    value: float | None
    predicted: float | None
    predicted_std: float | None
    evictions: int
    deployments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepResult:
    """A sweep as a reader sees it; `best` is the number of the best trial, None where none has a value."""

    sweep_id: str | None
    state: SweepState
    why: str
    trials: tuple[TrialResult, ...]
    best: int | None
    evictions: int


def result_view(sweep: SweepRecord) -> SweepResult:
    """Return the result of a sweep as it stands; trials in the order of their numbers."""
    trials = tuple(trial_result(trial) for _, trial in sorted(sweep.trials.items()))
    outcome = sweep.outcome
    return SweepResult(
        sweep_id=sweep.holdings.job_id,
        state=sweep.state,
        why=sweep.stopping if outcome is None else outcome.why,
        trials=trials,
        best=best_trial(sweep),
        evictions=sum(trial.evictions for trial in trials),
    )


def trial_result(trial: TrialRecord) -> TrialResult:
    """Return what a reader sees of a trial."""
    return TrialResult(
        number=trial.number,
        params=trial.params,
        state=trial.state,
        why=trial.why,
        steps=trial.steps,
        until_step=trial.until_step,
        repeated_steps=trial.repeated_steps,
        value=trial.value,
        predicted=trial.predicted,
        predicted_std=trial.predicted_std,
        evictions=trial.evictions,
        deployments=tuple(deployment.order_id for deployment in trial.deployments),
    )


def best_trial(sweep: SweepRecord) -> int | None:
    """Return the number of the trial with the best value; of equal ones that with more steps, then the first.

    A trial that failed counts only if no other has a value: the state that the value belongs to may be lost.
    """
    if sweep.holdings.job_id is None:
        return None
    sign = 1.0 if sweep.plan.minimizes else -1.0
    ranks = [
        (trial.state is TrialState.FAILED, sign * value, -trial.steps, trial.number)
        for trial in sweep.trials.values()
        if (value := trial.value) is not None
    ]
    return min(ranks)[-1] if ranks else None
