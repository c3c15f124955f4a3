"""Cost and duration of a scheme over the simulated jobs, and the choice of a scheme."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR, usd
from proteus_spot.bidding.market.traces import Int64s
from proteus_spot.studies.plan.plan_spec import ON_DEMAND
from proteus_spot.studies.plan.planned_job import PlannedJob

Floats = NDArray[np.float64]

#: Share of the starts that must keep the limits for a scheme to keep them.
ENOUGH = 0.9


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of many jobs: its mean, and the tenth, fiftieth and ninetieth percentile."""

    mean: float
    p10: float
    p50: float
    p90: float


@dataclass(frozen=True)
class Outlook:
    """Figures of the jobs of one scheme.

    Attributes
    ----------
    cost_usd, hours : shape (jobs,) each; for a job that was given up, its values at that time.
    finished : shape (jobs,), whether the job was done within the window.
    in_time, in_budget : shares of the jobs that were done by the deadline, and that cost no more than the budget; None
        if there is no such limit.
    keeps : share of the jobs that were done, and within both.
    strain : what nine of ten jobs need of the limit that is hardest to keep, as a share of it; above 1 it is exceeded.
    on_demand_usd : cost of the cluster that does the work on demand.
    evictions, free_share : mean number of evictions of a job; share of the machine time that was refunded.
    """

    scheme: str
    cost_usd: Floats
    hours: Floats
    finished: NDArray[np.bool_]
    in_time: float | None
    in_budget: float | None
    keeps: float
    strain: float
    on_demand_usd: float
    evictions: float
    free_share: float

    @property
    def enough(self) -> bool:
        """Whether the limits are kept often enough."""
        return self.keeps >= ENOUGH

    @property
    def relative_cost(self) -> float:
        """Mean cost as a share of what the work costs on demand."""
        return float(self.cost_usd.mean()) / self.on_demand_usd


def spread(values: Floats) -> Spread:
    """Return the spread of one figure of at least one job."""
    p10, p50, p90 = np.percentile(values, [10, 50, 90])
    return Spread(float(values.mean()), float(p10), float(p50), float(p90))


def outlook(name: str, rows: Int64s, job: PlannedJob) -> Outlook:
    """Return the figures of the jobs of a scheme; `rows` has shape (jobs, len(Outcome))."""
    finished = rows[:, Outcome.FINISHED] == 1
    keeps = finished.copy()
    in_time = in_budget = None
    strain = 0.0
    if job.deadline_s is not None:
        timely = finished & (rows[:, Outcome.RUNTIME_S] <= job.deadline_s)
        in_time, keeps = float(timely.mean()), keeps & timely
        strain = float(np.percentile(rows[:, Outcome.RUNTIME_S], 100 * ENOUGH)) / max(job.deadline_s, 1)
    if job.budget_micros is not None:
        cheap = rows[:, Outcome.COST_MICROS] <= job.budget_micros
        in_budget, keeps = float(cheap.mean()), keeps & cheap
        needed_micros = float(np.percentile(rows[:, Outcome.COST_MICROS], 100 * ENOUGH))
        strain = max(strain, needed_micros / max(job.budget_micros, 1))
    used = {by: int(rows[:, by].sum()) for by in (Outcome.ON_DEMAND_VCPU_S, Outcome.PAID_VCPU_S, Outcome.FREE_VCPU_S)}
    return Outlook(
        scheme=name,
        cost_usd=rows[:, Outcome.COST_MICROS] / MICROS_PER_DOLLAR,
        hours=rows[:, Outcome.RUNTIME_S] / HOUR_S,
        finished=finished,
        in_time=in_time,
        in_budget=in_budget,
        keeps=float(keeps.mean()),
        strain=strain,
        on_demand_usd=job.on_demand_usd,
        evictions=float(rows[:, Outcome.EVICTIONS].mean()),
        free_share=used[Outcome.FREE_VCPU_S] / max(sum(used.values()), 1),
    )


def rank(each: Outlook) -> tuple[bool, float, float, float]:
    """Return a key that sorts the better first.

    Those that keep the limits often enough come first, by cost; the others by how often they do, then by strain.
    """
    cost = float(each.cost_usd.mean())
    return (False, 0.0, 0.0, cost) if each.enough else (True, -each.keeps, each.strain, cost)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The scheme to take, whether it keeps the limits often enough, and one sentence for a reader.

    `scheme` is None if the job can run under none of those compared. `cheaper` says which would do better, but cannot
    be run by the job as it is; it may be empty.
    """

    scheme: str | None
    enough: bool
    text: str
    cheaper: str = ""


def recommend(
    outlooks: Sequence[Outlook], job: PlannedJob, why_not: Mapping[str, str] = MappingProxyType({})
) -> Recommendation:
    """Return the cheapest scheme that is done, in time and in budget, in nine of ten starts; else the nearest to it.

    Parameters
    ----------
    why_not : by scheme, why the job cannot run under it; empty: it can. The others are only compared.
    """
    compared = [each for each in outlooks if why_not.get(each.scheme)]
    possible = [each for each in outlooks if not why_not.get(each.scheme)]
    if not possible:
        text = f"this job can run under none of the schemes that were compared: {_reasons(why_not)}."
        return Recommendation(None, False, text)
    chosen = min(possible, key=rank)
    limits = _limits(job)
    cost, hours = spread(chosen.cost_usd), spread(chosen.hours)
    better = sorted((each for each in compared if rank(each) < rank(chosen)), key=rank)
    cheaper = " ".join([*(_better(each, why_not[each.scheme]) for each in better), *_aside(better, chosen, job)])
    if chosen.enough:
        text = (
            f"{chosen.scheme} costs ${cost.mean:,.2f} on average (${cost.p90:,.2f} at most in nine of ten starts) and "
            f"takes {hours.mean:,.1f} h ({hours.p90:,.1f} h at most), {_against(chosen.relative_cost)}"
        )
        if limits:
            text += f"; it keeps {limits} in {percent(chosen.keeps)} of the starts"
        return Recommendation(chosen.scheme, True, text + ".", cheaper)
    what = f"keeps {limits}" if limits else "is done"
    none = "no scheme that this job can run under" if compared else "no scheme"
    text = (
        f"{none} {what} in {ENOUGH:.0%} of the starts; the nearest is {chosen.scheme}, "
        f"in {percent(chosen.keeps) if chosen.keeps else 'none'}, for ${cost.mean:,.2f} and {hours.mean:,.1f} h on "
        f"average.{_larger_cluster(chosen, job)}"
    )
    return Recommendation(chosen.scheme, False, text, cheaper)


def _reasons(why_not: Mapping[str, str]) -> str:
    return "; ".join(f"{name} ({why})" for name, why in why_not.items() if why)


def _better(each: Outlook, why: str) -> str:
    """Return a sentence on a scheme that does better than the chosen one, but cannot be run by the job as it is."""
    cost, hours = float(each.cost_usd.mean()), float(each.hours.mean())
    named = each.scheme[0].upper() + each.scheme[1:]
    return f"{named} would cost ${cost:,.2f} and take {hours:,.1f} h, but cannot be run by this job: {why}."


def _aside(better: Sequence[Outlook], chosen: Outlook, job: PlannedJob) -> Iterator[str]:
    """Yield what makes a small job dear: one machine on demand would do, and how much its reliable tier costs."""
    kind = job.reference.instance_type
    alone_s = job.work_vcpu_s / (job.scaling_efficiency * kind.vcpu)
    in_time = job.deadline_s is None or alone_s <= job.deadline_s
    if any(each.scheme == ON_DEMAND for each in better) and job.machines > 1 and in_time:
        yield f"One {kind.name} on demand does it for the same money in {alone_s / HOUR_S:,.1f} h."
    tier_usd = float(chosen.hours.mean()) * job.reliable_count * job.reliable_micros / MICROS_PER_DOLLAR
    if better and chosen.scheme != ON_DEMAND and tier_usd:
        yield f"The reliable tier is ${tier_usd:,.2f} of the ${float(chosen.cost_usd.mean()):,.2f} of {chosen.scheme}."


def on_demand_fallback(job: PlannedJob) -> str:
    """Return a sentence on the machines on demand that keep a job's deadline; empty without a deadline and a budget.

    They finish the job when its slack is gone; all of the work on demand is the most that they do.
    """
    if job.deadline_s is None or job.budget_micros is None or not job.max_spot_vcpus:
        return ""  # no machine is bought beyond max_vcpus, whatever the tier
    hours = job.work_vcpu_s / (job.scaling_efficiency * job.max_spot_vcpus * HOUR_S)
    most_micros = round(job.on_demand_usd * MICROS_PER_DOLLAR + hours * job.reliable_count * job.reliable_micros)
    if hours * HOUR_S > job.deadline_s:
        return (
            f"Even on demand from the start, {job.max_spot_vcpus:,} vCPUs take {hours:,.1f} h: only a larger "
            "--max-vcpus keeps the deadline."
        )
    if most_micros > job.budget_micros:
        return (
            "If the market gives too little, on-demand machines would keep the deadline for up to "
            f"{usd(most_micros, 2)}, and the budget of {usd(job.budget_micros, 2)} forbids that: the budget wins, and "
            "the job stops undone."
        )
    return (
        f"If the market gives too little, on-demand machines keep the deadline for up to {usd(most_micros, 2)}, "
        "within the budget."
    )


def _limits(job: PlannedJob) -> str:
    limits = []
    if job.deadline_s is not None:
        limits.append(f"the deadline of {job.deadline_s / HOUR_S:,.4g} h")
    if job.budget_micros is not None:
        limits.append(f"the budget of {usd(job.budget_micros, 2)}")
    return " and ".join(limits)


def _against(relative: float) -> str:
    if abs(relative - 1) < 0.005:
        return "as much as on demand"
    return f"{abs(1 - relative):.0%} {'less' if relative < 1 else 'more'} than on demand"


def _larger_cluster(chosen: Outlook, job: PlannedJob) -> str:
    """Return a sentence on the on-demand cluster that keeps the deadline within the budget: same cost in less time."""
    if job.deadline_s is None or chosen.in_time is None or chosen.in_time >= ENOUGH:
        return ""
    if job.budget_micros is not None and chosen.on_demand_usd * MICROS_PER_DOLLAR > job.budget_micros:
        return ""
    kind = job.reference.instance_type
    machines = ceil(job.work_vcpu_s / (job.scaling_efficiency * max(job.deadline_s, 1) * kind.vcpu))
    return f" On demand, {machines:,} x {kind.name} would keep the deadline, for ${chosen.on_demand_usd:,.2f}."


def percent(share: float) -> str:
    """Return a share in percent; only exact shares of 0 and 1 are shown as 0% and 100%."""
    if 0 < share < 0.005:
        return "under 1%"
    return f"{share:.0%}" if share == 1 or share < 0.995 else "over 99%"


def as_json(each: Outlook) -> dict[str, Any]:
    """Return the figures of a scheme, JSON-able; chances are shares of the starts, None without that limit."""
    cost, hours = spread(each.cost_usd), spread(each.hours)
    return {
        "cost_usd": {name: round(getattr(cost, name), 6) for name in Spread.__slots__},
        "hours": {name: round(getattr(hours, name), 6) for name in Spread.__slots__},
        "relative_cost": each.relative_cost,
        "misses_deadline": None if each.in_time is None else 1 - each.in_time,
        "exceeds_budget": None if each.in_budget is None else 1 - each.in_budget,
        "unfinished": 1 - float(each.finished.mean()),
        "keeps": each.keeps,
        "evictions_per_job": each.evictions,
        "free_share": each.free_share,
    }
