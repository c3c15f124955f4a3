"""Backtests of jobs with deadlines on records of availability: the figures of schemes next to bounds, and goals."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from proteus_spot.bidding.backtest.capacity.bounds import elastic_bound, gang_bound
from proteus_spot.bidding.backtest.capacity.elastic import run_elastic
from proteus_spot.bidding.backtest.capacity.gang import GANGS, run_gang
from proteus_spot.bidding.backtest.capacity.job import CapacityJob, JobFigure
from proteus_spot.bidding.backtest.capacity.one import RULES, run_one
from proteus_spot.bidding.backtest.capacity.probes import DEAREST
from proteus_spot.bidding.backtest.capacity.record import CapacityRecord, Floats
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, MINUTE_S
from proteus_spot.bidding.market.traces import Int64s
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.capacity_sets import MarketRecord, find_set, has_counts, read_counts, read_markets
from proteus_spot.studies.market_data.trace_files import Report

#: Our scheme of many machines, and the bounds that know the record.
OURS, ELASTIC_BOUND, GANG_BOUND = "deadline", "clairvoyant elastic", "clairvoyant gang"
#: Days of a record that are fitted; no job begins in them.
_FIT_S = 3 * DAY_S
_MACHINES, _SLACKS, _ANY_ZONE_ALONE = (4, 16, 64), (1.25, 1.5, 2.0), 64
_ANY, _REGIONS, _WITH_SPOT = "any zone", "mean of regions", "mean, with spot"
#: One machine: hours of work and to the deadline, seconds of a restart.
_WORK_H, _DEADLINES_H, _RESTARTS_S = 48, (52, 70), (3 * MINUTE_S, 12 * MINUTE_S)
#: The rule that ours are compared with on one machine.
_PEER = "uniform-progress"
#: Price of spot as a share of on demand, by year (us-east-1): EC2's of p2 and p3, and the mean of GPU types.
_SPOT_SHARES = MappingProxyType({2021: 0.3, 2026: 0.4})
#: Factor above the bound of machines that come and go, over any zone.
_ABOVE_BOUND = 1.1
#: Mean of single regions, as a share of the cheapest price on demand.
_OF_REGIONS = 0.42


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure, and what is asked of it.

    Attributes
    ----------
    most : whether the figure must be at most `asked`, else above it.
    """

    what: str
    ours: float
    asked: float
    most: bool = True

    @property
    def holds(self) -> bool:
        """Whether the figure is as asked."""
        return self.ours <= self.asked if self.most else self.ours > self.asked

    def record(self) -> dict[str, object]:
        """Return what ``--json`` writes."""
        return {
            "what": self.what, "ours": self.ours, "asked": self.asked,
            "is": "at most" if self.most else "above", "holds": self.holds,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class AvailabilitySpec:
    """The request.

    Attributes
    ----------
    name : of the set, or its folder.
    restart_s : seconds until a new machine of many works, and until a gang does after a loss.
    """

    name: str
    starts: int = 300
    seed: int = 0
    hours: float = 24.0
    restart_s: float = 6.0 * MINUTE_S


def availability_figures(spec: AvailabilitySpec, report: Report) -> dict[str, Any]:
    """Return what ``proteus backtest --availability-set`` shows and writes.

    Raises
    ------
    InputError
        If the set cannot be used, or is shorter than a job and its fit.
    """
    clock = SystemClock()
    began_s = clock.now_s()
    folder = find_set(spec.name)
    report(0, 1, f"reading {folder}")
    if has_counts(folder):
        rows, goals = _of_many(spec, read_counts(folder), report)
    else:
        rows, goals = _of_one(spec, read_markets(folder), report)
    return {
        "set": folder.name,
        "settings": asdict(spec),
        "runs": rows,
        "goals": [goal.record() for goal in goals],
        "elapsed_s": clock.now_s() - began_s,
    }


def _of_many(spec: AvailabilitySpec, record: CapacityRecord, report: Report) -> tuple[list[dict[str, Any]], list[Goal]]:
    rows: list[dict[str, Any]] = []
    cases = [(machines, slack) for machines in _MACHINES for slack in _SLACKS]
    for done, (machines, slack) in enumerate(cases):
        report(done, len(cases), f"{machines} machines, slack {slack:g}")
        job = CapacityJob(machines, spec.hours, slack, spec.restart_s)
        starts = _starts(spec, record, job)
        rows += _compared(record, job, starts, record.on_demand.min(), _ANY)
        if machines < _ANY_ZONE_ALONE:
            each = [
                _compared(record.of(columns), job, starts, record.on_demand.min(), name)
                for name, columns in record.regions.items()
            ]
            for where, names in ((_REGIONS, list(record.regions)), (_WITH_SPOT, _with_spot(record))):
                kept = [of_region for of_region in each if of_region[0]["where"] in names]
                rows += [_mean_row(where, list(of_scheme)) for of_scheme in zip(*kept, strict=True)]
    report(len(cases), len(cases), "done")
    return rows, _goals(rows)


def _starts(spec: AvailabilitySpec, record: CapacityRecord, job: CapacityJob) -> Int64s:
    first, last = _FIT_S // record.step_s, len(record.counts) - job.steps(record.step_s)
    if last <= first:
        raise InputError(
            f"--availability-set {spec.name}: {len(record.counts) * record.step_s / HOUR_S:.0f} h are too short for a "
            f"fit of {_FIT_S / HOUR_S:.0f} h and a job of {job.deadline_s / HOUR_S:.0f} h; give a longer record"
        )
    rng = np.random.default_rng(spec.seed)
    return np.sort(rng.integers(first, last, size=spec.starts))


def _compared(
    record: CapacityRecord, job: CapacityJob, starts: Int64s, on_demand: float, where: str
) -> list[dict[str, Any]]:
    fit_steps = _FIT_S // record.step_s
    reference = job.work_s / HOUR_S * on_demand
    rows = [_row(name, where, job, run_gang(name, record, job, starts, fit_steps), reference) for name in GANGS]
    rows.append(_row(OURS, where, job, run_elastic(record, job, starts, fit_steps), reference))
    for name, bound in ((GANG_BOUND, gang_bound), (ELASTIC_BOUND, elastic_bound)):
        rows.append(_bound_row(name, where, job, bound(record, job, starts) / reference))
    return rows


def _row(name: str, where: str, job: CapacityJob, results: Floats, reference: float) -> dict[str, Any]:
    return {
        "scheme": name,
        "where": where,
        "machines": job.machines,
        "slack": job.slack,
        "starts": len(results),
        "relative_cost": float(results[:, JobFigure.COST_USD].mean() / reference),
        "in_time": float((results[:, JobFigure.FINISHED_S] <= job.deadline_s).mean()),
        "hours": float(results[:, JobFigure.FINISHED_S].mean() / HOUR_S),
        "on_demand_share": float(results[:, JobFigure.ON_DEMAND_S].mean() / job.work_s),
        "lost": float(results[:, JobFigure.LOST].mean()),
    }


def _bound_row(name: str, where: str, job: CapacityJob, costs: Floats) -> dict[str, Any]:
    return {
        "scheme": name, "where": where, "machines": job.machines, "slack": job.slack, "starts": len(costs),
        "relative_cost": float(costs.mean()), "in_time": 1.0, "hours": None, "on_demand_share": None, "lost": None,
    }  # fmt: skip


def _with_spot(record: CapacityRecord) -> list[str]:
    """Return the regions with a machine or more on average in the fit, at no more than `DEAREST` times the least price.

    All regions, if none is such.
    """
    fitted = record.counts[: _FIT_S // record.step_s].mean(axis=0)
    return [
        name
        for name, columns in record.regions.items()
        if fitted[list(columns)].sum() >= 1 and record.spot[list(columns)].min() <= DEAREST * record.spot.min()
    ] or list(record.regions)


def _mean_row(where: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    means = {
        name: None if rows[0][name] is None else float(np.mean([row[name] for row in rows]))
        for name in ("relative_cost", "in_time", "hours", "on_demand_share", "lost")
    }
    return {**rows[0], "where": where, "regions": {row["where"]: row["relative_cost"] for row in rows}, **means}


def _goals(rows: list[dict[str, Any]]) -> list[Goal]:
    def cost(scheme: str, where: str, slack: float = 1.5) -> float:
        return next(
            float(row["relative_cost"])
            for row in rows
            if (row["scheme"], row["where"], row["machines"], row["slack"]) == (scheme, where, 16, slack)
        )

    ours = [row for row in rows if row["scheme"] == OURS]
    return [
        Goal("16 machines, any zone, slack 1.5: cost", cost(OURS, _ANY), _ABOVE_BOUND * cost(ELASTIC_BOUND, _ANY)),
        Goal("16 machines, mean of single regions, slack 1.5: cost", cost(OURS, _REGIONS), _OF_REGIONS),
        Goal("16 machines, mean of regions with spot, slack 2: cost", cost(OURS, _WITH_SPOT, 2.0), _OF_REGIONS),
        Goal("deadlines missed, all jobs of ours", 1.0 - min(row["in_time"] for row in ours), 0.0),
    ]


def _of_one(
    spec: AvailabilitySpec, markets: Iterable[MarketRecord], report: Report
) -> tuple[list[dict[str, Any]], list[Goal]]:
    by_kind: dict[str, list[MarketRecord]] = {}
    for market in markets:
        by_kind.setdefault(market.name.partition("_")[2] or market.name, []).append(market)
    cases = list(product(_SPOT_SHARES, _DEADLINES_H, _RESTARTS_S))
    rows: list[dict[str, Any]] = []
    goals: list[Goal] = []
    missed = 0
    for done, (year, deadline_h, restart_s) in enumerate(cases):
        report(done, len(cases), f"prices of {year}, deadline {deadline_h} h, restart {restart_s // MINUTE_S} min")
        job = CapacityJob(1, float(_WORK_H), deadline_h / _WORK_H, float(restart_s))
        for kind, records in by_kind.items():
            saved = {}
            for name in RULES:
                each = [_saved(spec, name, record, job, _SPOT_SHARES[year]) for record in records]
                saved[name] = np.concatenate([one for one, _ in each])
                missed += sum(late for _, late in each) if name != _PEER else 0
            for name in RULES:
                gain = saved[name] - saved[_PEER]
                half = float(1.96 * gain.std(ddof=1) / np.sqrt(len(gain)))
                rows.append(
                    {
                        "scheme": name, "where": kind, "prices": year, "deadline_h": deadline_h, "restart_s": restart_s,
                        "starts": len(gain), "saved": float(saved[name].mean()), "gain": float(gain.mean()),
                        "gain_half_width": half,
                    }
                )  # fmt: skip
                if name != _PEER:
                    where = f"{kind}, prices of {year}, {deadline_h} h, {restart_s // MINUTE_S} min"
                    what = f"{name}, {where}: gain, lower end of 95 %"
                    goals.append(Goal(what, float(gain.mean()) - half, 0.0, most=False))
    report(len(cases), len(cases), "done")
    return rows, [*goals, Goal("deadlines missed, all jobs of ours", float(missed), 0.0)]


def _saved(
    spec: AvailabilitySpec, name: str, record: MarketRecord, job: CapacityJob, spot: float
) -> tuple[Floats, int]:
    """Return (on demand - cost) / (on demand - spot) of each job, and how many missed the deadline."""
    last = len(record.there) - int(job.deadline_s // record.step_s)
    if last < 1:
        raise InputError(
            f"--availability-set {spec.name}: {record.name} has {len(record.there) * record.step_s / HOUR_S:.0f} h, "
            f"and a job is given {job.deadline_s / HOUR_S:.0f} h; give longer records"
        )
    starts = np.sort(np.random.default_rng(spec.seed).integers(0, last, size=spec.starts))
    results = run_one(name, record.there, record.step_s, spot, 1.0, job, starts)
    on_demand = job.work_s / HOUR_S
    saved: Floats = (on_demand - results[:, JobFigure.COST_USD]) / (on_demand * (1.0 - spot))
    return saved, int((results[:, JobFigure.FINISHED_S] > job.deadline_s).sum())
