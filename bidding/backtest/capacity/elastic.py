"""Jobs under the policy `deadline`, many machines of many zones, step by step."""

from collections.abc import Callable

import numpy as np

from proteus_spot.bidding.backtest.capacity.job import CapacityJob, JobFigure
from proteus_spot.bidding.backtest.capacity.record import CapacityRecord, Floats
from proteus_spot.bidding.jit import entry, inline_jit
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Int64s
from proteus_spot.bidding.policies.deadline.fleet import choose, least_on_demand, work_price

_COST, _FINISHED, _SPOT = int(JobFigure.COST_USD), int(JobFigure.FINISHED_S), int(JobFigure.SPOT_S)
_ON_DEMAND, _LOST, _STARTED = int(JobFigure.ON_DEMAND_S), int(JobFigure.LOST), int(JobFigure.STARTED)
#: Seconds after which what was seen of a zone counts as much as what was fitted.
_FORGETS_S = 12.0 * HOUR_S


@inline_jit
def _speed(count: float, tasks: int) -> float:
    """Return how many machines work as fast as `count` that share the tasks, as `JobModel.useful_vcpus`; 0: any."""
    if tasks == 0 or count < 1.0:
        return count
    return tasks / float(np.ceil(tasks / count))


@inline_jit
def _in_rounds(on_demand: int, net: int, tasks: int, prices: Floats, wanted: Floats) -> int:
    """Let the machines go that would not make a clock shorter, dear ones first; return those on demand."""
    while net > 0 and tasks % net > 0:  # what the net counts on has to work at its full speed
        net += 1
    on_demand = max(on_demand, net)
    total = on_demand + wanted.sum()
    surplus = total
    if total > 0.0:
        surplus -= np.ceil(tasks / np.ceil(tasks / min(total, float(tasks))))
    while surplus > 0.0 and wanted.sum() > 0.0:
        dearest = -1
        for zone in range(len(wanted)):
            if wanted[zone] > 0.0 and (dearest < 0 or prices[zone] > prices[dearest]):
                dearest = zone
        wanted[dearest] -= 1.0
        surplus -= 1.0
    return max(on_demand - int(surplus), net)


def _elastic(version: int) -> Callable[..., int]:
    def elastic(
        counts: Int64s, step_s: float, prices: Floats, on_demand: float, fitted: Floats, losses: Floats,
        starts: Int64s, machines: int, work_s: float, deadline_s: float, boot_s: float, tasks: int,
        repeated_s: float, out: Floats,
    ) -> int:  # fmt: skip
        # what a loss, and machines that boot while the others work in rounds, may cost until the next decision
        unsure_s = machines * (repeated_s + (boot_s if tasks > 0 else 0.0))
        zones = len(prices)
        held, seen, wanted = np.zeros(zones), np.zeros(zones), np.zeros(zones)
        fresh, usual, booting = np.zeros(zones), np.zeros(zones), np.zeros(zones)
        sizes = np.ones(zones)
        for job in range(len(starts)):
            held[:] = 0.0
            usual[:] = fitted
            row = out[job]
            row[:] = 0.0
            row[_FINISHED] = np.inf
            left_s, dear = work_s, 0
            for step in range(len(counts) - starts[job]):
                time_left_s = deadline_s - step * step_s
                before, lost = dear + held.sum(), row[_LOST]
                for zone in range(zones):
                    seen[zone] = min(float(counts[starts[job] + step, zone]), float(machines))
                    if held[zone] > seen[zone]:
                        row[_LOST] += held[zone] - seen[zone]
                        held[zone] = seen[zone]
                    usual[zone] += (seen[zone] - usual[zone]) * (step_s / _FORGETS_S)
                    fresh[zone] = work_price(prices[zone], 0.0, losses[zone], boot_s, left_s / machines)
                if row[_LOST] > lost:
                    left_s += repeated_s * _speed(before, tasks)
                asked, _ = choose(
                    left_s, left_s + unsure_s, time_left_s, step_s, machines, dear, boot_s, on_demand, 0.0, 0.0,
                    float(machines), prices, fresh, sizes, held, seen, usual, wanted,
                )  # fmt: skip
                if tasks > 0:
                    net = least_on_demand(left_s + unsure_s, time_left_s, step_s, boot_s, machines, dear)
                    asked = _in_rounds(asked, net, tasks, prices, wanted)
                # what the step does, if the job lasts so long
                old, new = float(min(asked, dear)), float(max(asked - dear, 0))
                pay = asked * on_demand
                for zone in range(zones):
                    booting[zone] = max(wanted[zone] - held[zone], 0.0)
                    new += booting[zone]
                    old += wanted[zone] - booting[zone]
                    row[_STARTED] += booting[zone]
                    pay += wanted[zone] * prices[zone]
                    held[zone] = wanted[zone]
                used_s = step_s
                late_s = min(boot_s, step_s)
                slow, fast = _speed(old, tasks), _speed(old + new, tasks)
                done_s = slow * late_s + fast * (step_s - late_s)
                if done_s >= left_s:
                    used_s = left_s / slow if slow * late_s >= left_s else late_s + (left_s - slow * late_s) / fast
                spot = 0.0
                for zone in range(zones):
                    spot += held[zone]
                row[_COST] += pay * used_s
                row[_SPOT] += spot * used_s
                row[_ON_DEMAND] += asked * used_s
                dear = asked
                left_s -= done_s
                if left_s <= 1e-6:
                    row[_FINISHED] = step * step_s + used_s
                    break
        return version

    return elastic


_run = entry(_elastic)


def run_elastic(record: CapacityRecord, job: CapacityJob, starts: Int64s, fit_steps: int) -> Floats:
    """Return the results of jobs that begin at the steps `starts`, shape (jobs, len(JobFigure)).

    Parameters
    ----------
    fit_steps : the record's first steps, from which the zones' usual counts and rates of loss are fitted.
    """
    fitted = np.minimum(record.counts[:fit_steps], job.machines)
    falls = np.maximum(-np.diff(fitted, axis=0), 0).sum(axis=0)
    losses = (falls + 0.5) / ((fitted.sum(axis=0) + 1.0) * record.step_s)
    out = np.zeros((len(starts), len(JobFigure)))
    _run(
        record.counts, float(record.step_s), record.spot / HOUR_S, float(record.on_demand.min()) / HOUR_S,
        fitted.mean(axis=0), losses, starts, job.machines, job.work_s, job.deadline_s, job.restart_s,
        job.tasks, job.repeated_s, out,
    )  # fmt: skip
    return out
