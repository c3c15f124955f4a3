"""The plan of a job by what is known of its markets now: its futures instead of a price history."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from proteus_spot.bidding.economics.job_model import size_in
from proteus_spot.bidding.facts.futures import FutureJob, Futures, draw_futures
from proteus_spot.bidding.facts.known import MarketKnown
from proteus_spot.bidding.facts.rates import TypeSpeed
from proteus_spot.bidding.market.model import HOUR_S, InstanceType
from proteus_spot.bidding.market.money import to_dollars
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.studies.plan.outlook import Spread, spread
from proteus_spot.studies.plan.plan_spec import hours_to_deadline


@dataclass(frozen=True)
class LivePlan:
    """What a job would cost and when it would end.

    Attributes
    ----------
    in_time, in_budget : shares of the futures that keep the deadline and the budget; None without such a limit.
    finished, on_demand : shares that were done within two weeks, and that on-demand machines had to finish.
    losses : mean number of machines taken.
    known : what is known of each market.
    speeds : how fast its types work, where its application was measured.
    """

    job_id: str
    starts: int
    cost_usd: Spread
    hours: Spread
    in_time: float | None
    in_budget: float | None
    finished: float
    on_demand: float
    losses: float
    known: tuple[MarketKnown, ...]
    speeds: dict[str, TypeSpeed]

    def to_record(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {**asdict(self), "known": [each.to_record() for each in self.known]}


def live_plan(
    job: JobSpec,
    file: str,
    known: tuple[MarketKnown, ...],
    types: dict[str, InstanceType],
    speeds: dict[str, TypeSpeed],
    *,
    vcpu_hours: float | None,
    starts: int,
    seed: int,
) -> LivePlan:
    """Return the plan of a job in the markets of `known`.

    Parameters
    ----------
    file : name of the description, for messages.
    types, speeds : the types of its markets and of its reliable tier, and how fast they work where that is known.
    vcpu_hours : the work, in hours of the job's unit; None: all vCPUs (or GPUs) that the job may hold, in its hours.

    Raises
    ------
    InputError
        If the work is not given, the job buys no spot machine, or no market has a price yet.
    """
    tier, hours = job.transient, job.training.hours
    if not tier.max_vcpus:
        raise InputError(f"{file}: transient.max_vcpus is 0, so there is nothing to plan; give it some")
    if vcpu_hours is None and hours is None:
        raise InputError(f"{file}: counts its work in clocks; say what they take by --vcpu-hours W")
    work = vcpu_hours if vcpu_hours is not None else (hours or 0.0) * tier.max_vcpus * tier.scaling_efficiency
    deadline_s = None
    if job.deadline is not None:
        deadline_s = round(hours_to_deadline(f"{file}: deadline", job.deadline) * HOUR_S)
    reliable = types[job.reliable.instance_type]
    future = FutureJob(
        work_vcpu_s=work * HOUR_S,
        max_vcpus=tier.max_vcpus,
        efficiency=tier.scaling_efficiency,
        eviction_s=tier.eviction_overhead_s,
        resize_s=tier.resize_overhead_s,
        reliable_usd_per_h=job.reliable.count * to_dollars(reliable.on_demand_micros),
        vcpus={name: size_in(tier.unit, kind) for name, kind in types.items()},
        deadline_s=deadline_s,
        speeds={name: each.value for name, each in speeds.items()},
    )
    try:
        drawn = draw_futures(future, {each.market: each for each in known}, starts, np.random.default_rng(seed))
    except ValueError as error:
        raise InputError(f"{file}: {error}; run a job there first, or give --prices instead of --live") from None
    return _plan(job, drawn, known, speeds, deadline_s)


def _plan(
    job: JobSpec,
    drawn: Futures,
    known: tuple[MarketKnown, ...],
    speeds: dict[str, TypeSpeed],
    deadline_s: int | None,
) -> LivePlan:
    budget = None if job.budget_usd is None else float(job.budget_usd)
    in_time = None if deadline_s is None else float(np.mean(drawn.finished & (drawn.hours * HOUR_S <= deadline_s)))
    return LivePlan(
        job_id=job.job_id,
        starts=len(drawn.hours),
        cost_usd=spread(drawn.cost_usd),
        hours=spread(drawn.hours),
        in_time=in_time,
        in_budget=None if budget is None else float(np.mean(drawn.cost_usd <= budget)),
        finished=float(drawn.finished.mean()),
        on_demand=float(drawn.on_demand.mean()),
        losses=float(drawn.losses.mean()),
        known=known,
        speeds=speeds,
    )
