"""Sweeps of each application from each start, under each rule, and on single machines; as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from proteus_spot.benchmarks.papers.sweeps.simulation.evictions import Evictions
from proteus_spot.benchmarks.papers.sweeps.simulation.offers import Probabilities, TableProbabilities
from proteus_spot.benchmarks.papers.sweeps.simulation.outcome import SweepOutcome
from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.benchmarks.papers.sweeps.simulation.simulate import SweepSimulator
from proteus_spot.benchmarks.papers.sweeps.simulation.single_spot import SingleChoice, run_single
from proteus_spot.benchmarks.papers.sweeps.sweep_field import SweepField
from proteus_spot.bidding.billing import BillingModel, PerSecondFirstHourFree
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from proteus_spot.bidding.tuning.trials import SweepState

#: Trials that go on after the prediction, as the paper's.
MCNT = 3
#: All trials of a sweep run at a time, as the paper's.
PARALLEL = 16


@dataclass(frozen=True)
class SweepFigures:
    """Cost, completion time and free share of sweeps.

    Attributes
    ----------
    usd, hours, free : shape (applications, starts)
        Dollars of a sweep, its completion time, and the share of its steps that were free.
    top1, top3 : shape (applications,)
        Whether the best trial by prediction is the best of all; whether that is among the best three by prediction.
    steps : shape (applications, starts)
        Share of all steps of all trials that were trained.
    """

    name: str
    usd: np.ndarray
    hours: np.ndarray
    free: np.ndarray
    top1: np.ndarray
    top3: np.ndarray
    steps: np.ndarray

    @property
    def rates(self) -> np.ndarray:
        """Performance-cost rate with C = 1, shape (applications, starts).

        Source: SpotTune, section IV-B1: C / (JCT x cost).
        """
        return np.asarray(1 / (self.usd * self.hours))


def run_sweeps(
    name: str,
    field: SweepField,
    records: Sequence[RecordedTrials],
    starts: Sequence[int],
    *,
    stop: str = "earlycurve",
    theta: float = 1.0,
    billing: BillingModel | None = None,
    billing_name: str = "per-second-first-hour-free",
    evictions: Evictions | None = None,
    probabilities: Probabilities | None = None,
    deadlines_s: Sequence[int | None] | None = None,
) -> SweepFigures:
    """Return the sweeps of each application from each start; the seed of a sweep is the number of its start.

    Parameters
    ----------
    deadlines_s : by application, seconds after a start; None: no deadline.

    Raises
    ------
    RuntimeError
        If a sweep has not finished when the prices end.
    """
    chances = probabilities or TableProbabilities(field.table, field.prices.markets)
    plan = SweepPlan(1, 1, stop=stop, theta=theta, mcnt=MCNT, parallel=PARALLEL, billing=billing_name)
    rows: list[list[SweepOutcome]] = []
    for record, deadline_s in zip(records, deadlines_s or [None] * len(records), strict=True):
        simulator = SweepSimulator(
            record, plan, field.prices, chances, billing=billing, evictions=evictions, deadline_s=deadline_s
        )
        rows.append([simulator.run(start_s, seed) for seed, start_s in enumerate(starts)])
        unfinished = [outcome for outcome in rows[-1] if outcome.state is not SweepState.FINISHED]
        if unfinished:
            raise RuntimeError(f"{name}, {record.application}: a sweep is {unfinished[0].state}: {unfinished[0].why}")
    ranks = [_ranks(record, row) for record, row in zip(records, rows, strict=True)]
    return SweepFigures(
        name,
        np.array([[outcome.micros / 1e6 for outcome in row] for row in rows]),
        np.array([[outcome.completion_s / 3600 for outcome in row] for row in rows]),
        np.array([[outcome.free_share for outcome in row] for row in rows]),
        np.array([rank < 1 for rank in ranks]),
        np.array([rank < MCNT for rank in ranks]),
        np.array(
            [
                [sum(trial.steps for trial in outcome.trials) / record.trials / record.steps for outcome in row]
                for record, row in zip(records, rows, strict=True)
            ]
        ),
    )


def _ranks(record: RecordedTrials, outcomes: Sequence[SweepOutcome]) -> float:
    """Return the place of the truly best trial in the order of the sweep: by prediction, else by its values.

    It is the mean over the starts, for a rule may decide otherwise with other machines.
    """
    best = int(record.ranking()[0])
    sign = 1 if record.direction == "minimize" else -1
    places = []
    for outcome in outcomes:
        worth = [trial.value if trial.predicted is None else trial.predicted for trial in outcome.trials]
        order = sorted((float("inf") if value is None else sign * value, number) for number, value in enumerate(worth))
        places.append([number for _, number in order].index(best))
    return float(np.mean(places))


def run_singles(
    name: str,
    field: SweepField,
    records: Sequence[RecordedTrials],
    starts: Sequence[int],
    choice: SingleChoice,
    *,
    in_series: bool,
    billing: BillingModel | None = None,
) -> SweepFigures:
    """Return all trials on the machine of a choice: one after another, or each on its own."""
    model = billing or PerSecondFirstHourFree()
    found = [
        [run_single(record, field.prices, model, at_s, choice, in_series=in_series) for at_s in starts]
        for record in records
    ]
    usd = np.array([[one.micros / 1e6 for one in row] for row in found])
    hours = np.array([[one.completion_s / 3600 for one in row] for row in found])
    sure = np.ones(len(records))
    return SweepFigures(name, usd, hours, np.zeros_like(usd), sure, sure, np.ones_like(usd))
