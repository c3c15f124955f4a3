"""Benchmark `availability`: the policy `deadline` beside its bound, its speed, and the dollars of nets by it.

On the record of PROTEUS_TRACES, else on a generated one of 13 zones.
"""

import os
from functools import partial
from pathlib import Path

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure, seconds
from proteus_spot.benchmarks.market.net_dollars import figures as net_dollars
from proteus_spot.bidding.backtest.capacity.bounds import elastic_bound
from proteus_spot.bidding.backtest.capacity.elastic import run_elastic
from proteus_spot.bidding.backtest.capacity.job import CapacityJob, JobFigure
from proteus_spot.bidding.backtest.capacity.record import CapacityRecord
from proteus_spot.bidding.market.model import DAY_S
from proteus_spot.infra.market_data.capacity_sets import read_counts

_NAME = "gcp-2025-10-h100"
_JOBS, _ROUNDS, _ZONES, _STEP_S = 1000, 5, 13, 600
#: Seconds in which so many jobs are to be decided on one thread, and the factor above the bound.
_ASKED_S, _ABOVE_BOUND = 60.0, 1.1


def _record() -> tuple[CapacityRecord, str]:
    folder = Path(os.environ.get("PROTEUS_TRACES", "")) / "availability" / _NAME
    if "PROTEUS_TRACES" in os.environ and folder.is_dir():
        return read_counts(folder), f"the record {_NAME}"
    rng = np.random.default_rng(0)
    steps = 7 * DAY_S // _STEP_S
    counts = np.clip(np.cumsum(rng.integers(-1, 2, size=(steps, _ZONES)), axis=0) + 8, 0, 16)
    zones = tuple(f"r{number}-a" for number in range(_ZONES))
    spot = np.linspace(1.9, 2.9, _ZONES)
    record = CapacityRecord(_STEP_S, zones, counts.astype(np.int64), spot, np.full(_ZONES, 10.3))
    return record, "a generated record; PROTEUS_TRACES names no real one"


def run(_scratch: Path, rounds: int = _ROUNDS, jobs: int = _JOBS) -> list[Figure]:
    """Measure."""
    record, note = _record()
    job = CapacityJob(16)
    fit_steps = 3 * DAY_S // record.step_s
    last = len(record.counts) - job.steps(record.step_s)
    starts = np.sort(np.random.default_rng(0).integers(fit_steps, last, size=jobs))
    results = run_elastic(record, job, starts, fit_steps)
    late = int((results[:, JobFigure.FINISHED_S] > job.deadline_s).sum())
    cost, bound = results[:, JobFigure.COST_USD].mean(), elastic_bound(record, job, starts).mean()
    took = [seconds(partial(run_elastic, record, job, starts, fit_steps)) for _ in range(rounds)]
    return [
        figure(
            "availability",
            "24 h on 16 machines, any zone, 36 h to the deadline: cost",
            "$",
            [float(cost)],
            [float(bound)],
            "the bound of machines that know the record",
            f"{note}; {late} of {jobs} deadlines missed",
            valid=late == 0,
            most=_ABOVE_BOUND,
        ),
        figure(
            "availability",
            f"{jobs:,} such jobs decided, one thread",
            "s",
            took,
            [_ASKED_S * jobs / _JOBS],
            "asked",
            note,
            most=1.0,
        ),
        *net_dollars(record),
    ]
