"""Sweeps whose settings a sampler chooses among recorded ones, as trials end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from proteus_spot.benchmarks.papers.sweeps.simulation.offers import TableProbabilities
from proteus_spot.benchmarks.papers.sweeps.simulation.outcome import SweepOutcome
from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.benchmarks.papers.sweeps.simulation.simulate import SweepSimulator
from proteus_spot.benchmarks.papers.sweeps.sweep_field import SweepField
from proteus_spot.benchmarks.papers.sweeps.sweep_runs import MCNT
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from proteus_spot.bidding.tuning.sweep_record import SweepRecord
from proteus_spot.tasks.sweeps.samplers import is_adaptive, propose, sampled_trials
from proteus_spot.tasks.sweeps.sweep_spec import GRID, SweepSpec

#: Machines at a time: a sampler that learns must see trials end before it proposes others.
PARALLEL = 4


class RecordedSampler:
    """A sampler of `tasks.sweeps.samplers` over the settings of a record, each parameter a choice of what was recorded.

    Parameters
    ----------
    seed : of the sampler.
    """

    def __init__(self, record: RecordedTrials, sampler: str, seed: int) -> None:
        names = list(record.settings[0])
        choices = {name: list(dict.fromkeys(setting[name] for setting in record.settings)) for name in names}
        self.spec = SweepSpec.model_validate(
            {
                "sweep": "recorded",
                "trial": "recorded:train",
                "code": "recorded.py",
                "space": {name: {"choice": values} for name, values in choices.items()},
                "sampler": sampler,
                "trials": None if sampler == GRID else record.trials,
                "metric": {"name": record.metric, "direction": str(record.direction)},
                "max_trial_steps": record.steps,
                "seed": seed,
            }
        )
        self._rows = {_key(setting): row for row, setting in enumerate(record.settings)}
        if len(self._rows) != int(np.prod([len(values) for values in choices.values()])):
            raise ValueError(f"{record.application}: its settings are no grid, so a sampler has not all of them")

    def propose(self, sweep: SweepRecord, count: int) -> Sequence[int]:
        """Return the rows of the next trials; see `SettingSource`."""
        return [self._rows[_key(params)] for _, params in propose(self.spec, sampled_trials(sweep), count)]


@dataclass(frozen=True)
class SampledSweeps:
    """Sweeps by a sampler: dollars, hours, and whether the best of all settings is the sweep's best.

    Each is of shape (applications, starts).
    """

    usd: np.ndarray
    hours: np.ndarray
    found: np.ndarray


def run_sampled(
    field: SweepField, records: Sequence[RecordedTrials], starts: Sequence[int], sampler: str
) -> SampledSweeps:
    """Return sweeps of as many trials as were recorded, by θ 0.7; the seed is the number of the start."""
    chances = TableProbabilities(field.table, field.prices.markets)
    rows = [
        [_sampled(field, record, sampler, chances, at_s, seed) for seed, at_s in enumerate(starts)]
        for record in records
    ]
    return SampledSweeps(
        np.array([[outcome.micros / 1e6 for outcome in row] for row in rows]),
        np.array([[outcome.completion_s / 3600 for outcome in row] for row in rows]),
        np.array(
            [[_found_best(record, outcome) for outcome in row] for record, row in zip(records, rows, strict=True)]
        ),
    )


def _sampled(
    field: SweepField, record: RecordedTrials, sampler: str, chances: TableProbabilities, at_s: int, seed: int
) -> SweepOutcome:
    source = RecordedSampler(record, sampler, seed)
    plan = SweepPlan(
        record.trials, record.steps, theta=0.7, mcnt=MCNT, parallel=PARALLEL, adaptive=is_adaptive(source.spec)
    )
    return SweepSimulator(record, plan, field.prices, chances, source=source).run(at_s, seed)


def _found_best(record: RecordedTrials, outcome: SweepOutcome) -> bool:
    assert outcome.best_trial is not None
    best = outcome.trials[outcome.best_trial].params
    return dict(best) == dict(record.settings[int(record.ranking()[0])])


def _key(setting: Mapping[str, Any]) -> str:
    return repr(sorted(setting.items()))
