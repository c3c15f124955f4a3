"""Jobs of a gang, which works with all of its machines in one zone or not at all, under the rules of other schedulers.

- `on-demand`: on demand from the start.
- `gang`: managed jobs with failover, as SkyPilot's: spot in the cheapest zone that has room for all, until it is lost;
  else nothing, until the safety net asks for on demand.
- `uniform-progress`: Wu et al., "Can't Be Late" (NSDI 2024), in one zone, the one that the fit finds best: ahead of the
  even pace spot or nothing, behind it on demand, and from on demand back when two restarts ahead.
- `uniform-progress(S)`, `(A)`, `(AP)`: the same over all zones, by the variants of SkyNomad's paper (`probes`).
- `skynomad`: the zone with the highest U = V η - C - E / L (SkyNomad, 2026): value of progress under the pressure of
  the deadline, share of a life that is work, price, cost of moving over the expected life.
"""

from collections.abc import Callable
from types import MappingProxyType

import numpy as np

from proteus_spot.bidding.backtest.capacity.job import CapacityJob, JobFigure
from proteus_spot.bidding.backtest.capacity.probes import (
    OFTEN_S,
    RARELY_S,
    REMEMBERED,
    cheapest,
    most_granted,
    note,
    probe,
)
from proteus_spot.bidding.backtest.capacity.record import CapacityRecord, Floats
from proteus_spot.bidding.jit import entry, inline_jit
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.traces import Int64s

_COST, _FINISHED, _SPOT = int(JobFigure.COST_USD), int(JobFigure.FINISHED_S), int(JobFigure.SPOT_S)
_ON_DEMAND, _LOST, _STARTED = int(JobFigure.ON_DEMAND_S), int(JobFigure.LOST), int(JobFigure.STARTED)
_ALWAYS, _FAILOVER, _EVEN, _SWITCHES, _AVAILABLE, _AVAILABLE_CHEAP, _UTILITY = range(7)
#: {name: code in the compiled loop}.
GANGS = MappingProxyType(
    {
        "on-demand": _ALWAYS,
        "gang": _FAILOVER,
        "uniform-progress": _EVEN,
        "uniform-progress(S)": _SWITCHES,
        "uniform-progress(A)": _AVAILABLE,
        "uniform-progress(AP)": _AVAILABLE_CHEAP,
        "skynomad": _UTILITY,
    }
)


@inline_jit
def _best_by_utility(
    room: Int64s, prices: Floats, machines: int, value: float, restart_s: float, lives_s: Floats, at: int
) -> int:
    best, most = -1, 0.0
    if 0 <= at < len(room):
        best = at  # what works is not let go for nothing
    for zone in range(len(room)):
        if room[zone] < machines:
            continue
        moving_s = 0.0 if zone == at else restart_s
        share = max(lives_s[zone] - moving_s, 0.0) / lives_s[zone]
        utility = value * share - prices[zone] - prices[zone] * moving_s / lives_s[zone]
        if utility > most:
            best, most = zone, utility
    return best


def _gang(version: int) -> Callable[..., int]:
    def gang(
        rule: int, counts: Int64s, step_s: float, prices: Floats, on_demand: float, home: int, regions: Int64s,
        lives_s: Floats, answers: Int64s, starts: Int64s, machines: int, work_s: float, deadline_s: float,
        restart_s: float, out: Floats,
    ) -> int:  # fmt: skip
        dear = len(lives_s)  # the place of the machines on demand, after all zones
        probes, forgets = rule in (_AVAILABLE, _AVAILABLE_CHEAP), rule == _AVAILABLE
        grants, asked, due_s = np.zeros(dear, np.int64), np.zeros(dear, np.int64), np.zeros(dear)
        for job in range(len(starts)):
            row = out[job]
            row[:] = 0.0
            row[_FINISHED] = np.inf
            at, last, done_s, restart_left_s = -1, -1, 0.0, 0.0
            answers[:] = 0
            grants[:] = 0
            asked[:] = 0
            due_s[:] = 0.0
            for step in range(len(counts) - starts[job]):
                room, price = counts[starts[job] + step], prices[starts[job] + step]
                elapsed_s = step * step_s
                if 0 <= at < dear:
                    last = at
                    there = room[at] >= machines
                    if probes and (not there or elapsed_s >= due_s[at]):
                        note(at, int(there), forgets, answers, grants, asked)
                        due_s[at] = elapsed_s + (RARELY_S if forgets else OFTEN_S)
                    if not there:
                        row[_LOST] += machines
                        at = -1
                left_s, time_left_s = work_s - done_s, deadline_s - elapsed_s
                to = dear
                if rule != _ALWAYS and left_s + 2.0 * restart_s + step_s <= time_left_s:
                    if rule == _FAILOVER:
                        to = at if 0 <= at < dear else cheapest(room, price, machines, regions, -1)
                    elif rule == _UTILITY:
                        value = on_demand * left_s / time_left_s
                        to = _best_by_utility(room, price, machines, value, restart_s, lives_s, at)
                    elif at != dear or done_s >= (elapsed_s + 2.0 * restart_s) * work_s / deadline_s:
                        if rule == _EVEN:
                            spot = home if room[home] >= machines else -1
                        elif probes:
                            spot = most_granted(room, price, machines, at, forgets, answers, grants, asked)
                        else:
                            spot = at if 0 <= at < dear else cheapest(room, price, machines, regions, last)
                        if spot >= 0 or at == dear or done_s >= elapsed_s * work_s / deadline_s:
                            to = spot
                    if probes:
                        if 0 <= to < dear and to != at:
                            due_s[to] = elapsed_s + (RARELY_S if forgets else OFTEN_S)
                        probe(room, machines, to, elapsed_s, forgets, due_s, answers, grants, asked)
                if to != at:
                    restart_left_s = restart_s
                    if 0 <= to < dear:
                        row[_STARTED] += machines
                at = to
                if at < 0:
                    continue
                used_s = min(step_s, restart_left_s + left_s)
                done_s += max(used_s - restart_left_s, 0.0)
                restart_left_s = max(restart_left_s - used_s, 0.0)
                row[_COST] += (on_demand if at == dear else price[at]) * used_s * machines
                row[_ON_DEMAND if at == dear else _SPOT] += used_s * machines
                if done_s >= work_s - 1e-6:
                    row[_FINISHED] = elapsed_s + used_s
                    break
        return version

    return gang


_run = entry(_gang)


def run_gang(name: str, record: CapacityRecord, job: CapacityJob, starts: Int64s, fit_steps: int) -> Floats:
    """Return the results of jobs that begin at the steps `starts`, shape (jobs, len(JobFigure)).

    Raises
    ------
    KeyError
        If no gang has that name; see `GANGS`.
    """
    counts, prices = gang_zones(record, job.machines)
    full = counts[:fit_steps] >= job.machines
    lost = (full[:-1] & ~full[1:]).sum(axis=0)
    lives_s = (full.sum(axis=0) + 1.0) * record.step_s / (lost + 0.5)
    home = int(np.argmax(full.mean(axis=0) * (record.on_demand.min() - prices[0])))
    regions = np.zeros(counts.shape[1], np.int64)
    if len(regions) == len(record.zones):
        for number, columns in enumerate(record.regions.values()):
            regions[list(columns)] = number
    out = np.zeros((len(starts), len(JobFigure)))
    _run(
        GANGS[name], counts, float(record.step_s), prices / HOUR_S, float(record.on_demand.min()) / HOUR_S, home,
        regions, lives_s, np.zeros((len(regions), REMEMBERED), np.int64), starts, job.machines,
        job.work_s / job.machines, job.deadline_s, job.restart_s, out,
    )  # fmt: skip
    return out


def gang_zones(record: CapacityRecord, machines: int) -> tuple[Int64s, Floats]:
    """Return the counts and prices in which a gang finds room, shape (steps, zones) each.

    A gang that no zone of the record can ever hold is spread over all of them, the cheapest first; to move between them
    then costs it nothing.
    """
    prices = np.broadcast_to(record.spot, record.counts.shape)
    if record.counts.max() >= machines or len(record.zones) == 1:
        return record.counts, np.ascontiguousarray(prices)
    order = np.argsort(record.spot, kind="stable")
    sorted_counts = record.counts[:, order]
    before = np.cumsum(sorted_counts, axis=1) - sorted_counts
    taken = np.clip(machines - before, 0, sorted_counts)
    total = record.counts.sum(axis=1)
    mean = (taken * record.spot[order]).sum(axis=1) / np.maximum(taken.sum(axis=1), 1)
    return total[:, None], mean[:, None]
