"""Dollars to one loss: DiLoCo by machines that come and go under `deadline`, beside a synchronous gang that restarts.

A job is 24 hours of synchronous training on all machines. DiLoCo has one worker a machine, takes more samples to the
same loss by the factor of so many workers, and its machines share the workers in whole rounds: 13 of 16 are as fast as
8. What was measured on nodes of one machine is in `benchmarks/nets`: the factor (`samples`), the speed of many nodes
and what a loss repeats (`rates.json`).

The gang is SkyPilot's failover (`gang`). In its favour, communication in its zone and the start of its processes take
no time, and a loss costs it a boot and half of a checkpoint's interval.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.nets import samples
from proteus_spot.bidding.backtest.capacity.elastic import run_elastic
from proteus_spot.bidding.backtest.capacity.gang import run_gang
from proteus_spot.bidding.backtest.capacity.job import CapacityJob, JobFigure
from proteus_spot.bidding.backtest.capacity.record import CapacityRecord
from proteus_spot.bidding.market.model import DAY_S, HOUR_S

MACHINES, SLACKS, _HOURS, _STARTS = (4, 16), (1.25, 1.5, 2.0), 24.0, 300
#: Seconds that a new machine, and a gang with one, boots; seconds of a clock of DiLoCo, which a loss repeats.
_BOOT_S, _CLOCK_S = 360.0, 30.0
#: Share of its time that a job needs beside its work to be done in time: boots, and a loss at the worst moment.
_SPARE = 0.03
#: Share of the gang's dollars that is asked for.
_ASKED = 0.7


@dataclass(frozen=True)
class Rates:
    """What was measured of nets on nodes of one machine.

    Attributes
    ----------
    speed : share of the ideal speed, of so many nodes.
    repeated_clocks : clocks of all machines that a loss repeats.
    gang_repeated_s : seconds of steps that a gang does again: half of a checkpoint's interval of 30 s.
    """

    speed: float
    repeated_clocks: float
    gang_repeated_s: float


def read_rates(machines: int) -> Rates:
    """Return what was measured of so many nodes, or of the most that were."""
    kept: dict[str, Any] = json.loads((Path(samples.__file__).parent / "rates.json").read_text())
    clocks = {int(nodes): seconds for nodes, seconds in kept["seconds_of_a_clock"].items()}
    nodes = min(machines, max(clocks))
    speed = kept["ideal_node_seconds"] / nodes / clocks[nodes]
    return Rates(speed, kept["repeated_clocks"], kept["gang_repeated_s"])


def figures(record: CapacityRecord) -> Iterator[Figure]:
    """Yield the dollars by machines and slack, over any zone and as the mean of single regions."""
    trained = samples.tables()
    regions = [record.of(columns) for columns in record.regions.values()]
    for machines in MACHINES:
        factor, steps = samples.samples_factor(trained, machines)
        rates = read_rates(machines)
        for slack in SLACKS:
            gang = CapacityJob(machines, _HOURS, slack, _BOOT_S + rates.gang_repeated_s)
            same, more = net_job(gang, rates, 1.0), net_job(gang, rates, factor)
            in_time = more.deadline_s <= gang.deadline_s + 1.0
            for where, places in (("any zone", [record]), ("mean of single regions", regions)):
                beside, late_gang = _mean(places, gang, more, elastic=False)
                ours, late = _mean(places, more, more, elastic=True)
                equal, _ = _mean(places, same, more, elastic=True)
                note = (
                    f"{factor:.2f} times the samples, by {steps} steps; with as many {equal / beside:.3f} of the other"
                )
                if not in_time:
                    note += (
                        f"; on demand takes {more.hours:.0f} h: the deadline is {more.deadline_s / HOUR_S:.0f} h here"
                    )
                what = f"to one loss, {machines} machines, {where}, slack {slack:g}"
                yield figure(
                    "availability", what, "$", [ours], [beside], "a synchronous gang that restarts", note,
                    in_time and late + late_gang == 0, _ASKED,
                )  # fmt: skip


def net_job(gang: CapacityJob, rates: Rates, factor: float) -> CapacityJob:
    """Return the job of DiLoCo to the loss of a gang's job; with its deadline, or its slack where that is too soon.

    Parameters
    ----------
    factor : samples to the same loss, in those of synchronous training.
    """
    hours = gang.hours * factor / rates.speed
    slack = gang.deadline_s / HOUR_S / hours
    if slack < 1.0 + _SPARE:
        slack = gang.slack
    repeated_s = rates.repeated_clocks * _CLOCK_S
    return CapacityJob(gang.machines, hours, slack, _BOOT_S, tasks=gang.machines, repeated_s=repeated_s)


def _mean(
    places: Sequence[CapacityRecord], job: CapacityJob, longest: CapacityJob, *, elastic: bool
) -> tuple[float, int]:
    """Return the mean dollars over places and starts, and how many jobs were late."""
    dollars, late = [], 0
    for place in places:
        fit_steps = 3 * DAY_S // place.step_s
        last = len(place.counts) - longest.steps(place.step_s)
        starts = np.sort(np.random.default_rng(0).integers(fit_steps, last, size=_STARTS))
        if elastic:
            results = run_elastic(place, job, starts, fit_steps)
        else:
            results = run_gang("gang", place, job, starts, fit_steps)
        dollars.append(results[:, JobFigure.COST_USD].mean())
        late += int((results[:, JobFigure.FINISHED_S] > job.deadline_s).sum())
    return float(np.mean(dollars)), late
