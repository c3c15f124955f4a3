"""What no scheme can go below, because it knows the record: for machines that come and go alone, and for a gang."""

from collections.abc import Callable
from math import gcd

import numpy as np

from proteus_spot.bidding.backtest.capacity.gang import gang_zones
from proteus_spot.bidding.backtest.capacity.job import CapacityJob
from proteus_spot.bidding.backtest.capacity.record import CapacityRecord, Floats
from proteus_spot.bidding.jit import entry
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Int64s


def elastic_bound(record: CapacityRecord, job: CapacityJob, starts: Int64s) -> Floats:
    """Return the least dollars of each job, shape (jobs,), for machines that start, stop and move at no cost.

    Each step offers its cheapest machines, at most as many as help; the job takes the cheapest of all steps.
    """
    order = np.argsort(record.spot, kind="stable")
    counts = record.counts[:, order]
    before = np.cumsum(counts, axis=1) - counts
    offered = np.clip(job.machines - before, 0, counts)
    offered = np.column_stack([offered, job.machines - offered.sum(axis=1)])
    prices = np.append(record.spot[order], record.on_demand.min())
    cheapest = np.argsort(prices, kind="stable")
    passed = np.vstack([np.zeros(len(prices)), np.cumsum(offered[:, cheapest], axis=0)])
    steps = job.steps(record.step_s)
    hours = (passed[starts + steps] - passed[starts]) * record.step_s / HOUR_S
    taken_before = np.cumsum(hours, axis=1) - hours
    taken = np.clip(job.work_s / HOUR_S - taken_before, 0, hours)
    cost: Floats = taken @ prices[cheapest]
    return cost


def _gang_bound(version: int) -> Callable[..., int]:
    def gang_bound(
        counts: Int64s, prices: Floats, on_demand: float, starts: Int64s, machines: int, steps: int,
        units: int, step_units: int, restart_units: int, cost: Floats, out: Floats,
    ) -> int:  # fmt: skip
        # cost[side, place, units left]: from a step on, by the place held before it; the last place is none
        places = cost.shape[1] - 2  # zones, then on demand, then none
        for job in range(len(starts)):
            cost[:] = np.inf
            cost[:, :, 0] = 0.0
            for step in range(steps - 1, -1, -1):
                now, after = cost[step % 2], cost[(step + 1) % 2]
                for left in range(1, units + 1):
                    new = np.inf
                    for place in range(places + 1):
                        open_ = place == places or counts[starts[job] + step, place] >= machines
                        price = on_demand if place == places else prices[starts[job] + step, place]
                        now[place, left] = np.inf
                        if not open_:
                            continue
                        used = min(step_units, left)
                        now[place, left] = price * used + after[place, left - used]
                        used = min(step_units, restart_units + left)
                        works = max(used - restart_units, 0)
                        new = min(new, price * used + after[place, left - works])
                    idle = after[places + 1, left]
                    best = min(new, idle)
                    for place in range(places + 1):
                        now[place, left] = min(now[place, left], best)
                    now[places + 1, left] = best
            out[job] = cost[0, places + 1, units] * machines
        return version

    return gang_bound


_bound = entry(_gang_bound)


def gang_bound(record: CapacityRecord, job: CapacityJob, starts: Int64s) -> Floats:
    """Return the least dollars of each job of a gang, shape (jobs,); a restart takes its seconds, rounded down.

    Raises
    ------
    ValueError
        If the restart takes longer than a step.
    """
    if job.restart_s > record.step_s:
        raise ValueError(f"a restart of {job.restart_s:g} s takes longer than a step of {record.step_s} s")
    unit_s = max(gcd(int(record.step_s), int(job.restart_s) or int(record.step_s)), record.step_s // 5)
    counts, prices = gang_zones(record, job.machines)
    units = int(job.work_s / job.machines // unit_s)
    cost = np.empty((2, counts.shape[1] + 2, units + 1))
    out = np.empty(len(starts))
    _bound(
        counts, prices / HOUR_S * unit_s, float(record.on_demand.min()) / HOUR_S * unit_s, starts, job.machines,
        job.steps(record.step_s), units, int(record.step_s // unit_s), int(job.restart_s // unit_s), cost, out,
    )  # fmt: skip
    return out
