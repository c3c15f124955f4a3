"""The planned job for the simulator: its work, its cluster, its reliable machines, its window."""

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from proteus_spot.bidding.backtest.parameters import PPM
from proteus_spot.bidding.backtest.reference_cluster import Reference
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.backtest.schemes.scheme_registry import Scheme, scheme, schemes
from proteus_spot.bidding.economics.elasticity import AgileML, Checkpointing
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR, Micros, to_micros
from proteus_spot.bidding.market.traces import Int64s
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs
from proteus_spot.studies.plan.plan_spec import PlanSpec, reliable_machines
from proteus_spot.studies.times import minute

#: vCPUs of the paper's cluster and cap: the defaults, or their proportion.
_CLUSTER_VCPUS, _CAP_VCPUS = 512, 756
#: Default reliable machines: vCPUs of one, their maximum number (the paper's), vCPUs of the cluster served by one.
_RELIABLE_VCPUS, _MOST_RELIABLE, _SERVED_VCPUS = 4, 3, 128


@dataclass(frozen=True)
class PlannedJob:
    """A job and its limits.

    Attributes
    ----------
    work_vcpu_s : the work, in seconds of one vCPU.
    scaling_efficiency : φ, the share of a cluster's vCPU-seconds that become work.
    machines, reference : the cluster that would do it on demand.
    max_spot_vcpus : most spot vCPUs held at once; 0: it buys no spot machine.
    reliable_count, reliable_name, reliable_vcpus, reliable_micros : machines held on demand with the spot ones, and the
        vCPUs and hourly price of one.
    deadline_s, budget_micros : None if there is no such limit.
    window_s : seconds after which an unfinished job is given up.
    """

    work_vcpu_s: int
    scaling_efficiency: float
    machines: int
    reference: Reference
    max_spot_vcpus: int
    reliable_count: int
    reliable_name: str
    reliable_vcpus: int
    reliable_micros: Micros
    deadline_s: int | None
    budget_micros: Micros | None
    window_s: int

    @property
    def on_demand_usd(self) -> float:
        """Cost of the work on demand, on any number of machines of the cluster's type."""
        kind = self.reference.instance_type
        each_s = kind.on_demand_micros / (kind.vcpu * HOUR_S * MICROS_PER_DOLLAR)
        return self.work_vcpu_s / self.scaling_efficiency * each_s


def planned_job(spec: PlanSpec, field: BacktestInputs) -> PlannedJob:
    """Return the job of `spec` on the history of `field`, with defaults filled in.

    Raises
    ------
    InputError
        If a type is not on sale, no machine fits in the cap, or the history is too short to try the job.
    """
    kind, cap = field.reference.instance_type, spec.max_spot_vcpus
    machines = spec.machines or max((_CLUSTER_VCPUS if cap is None else cap) // kind.vcpu, 1)
    cluster = Reference(kind, machines * kind.vcpu)
    if cap is None:
        cap = cluster.vcpus * _CAP_VCPUS // _CLUSTER_VCPUS
    smallest = min(field.types[market.instance_type].vcpu for market in field.markets)
    if 0 < cap < smallest:
        raise InputError(f"--max-vcpus {cap}: the smallest machine on sale has {smallest} vCPUs; give at least that")
    if spec.vcpu_hours is not None:
        vcpu_hours, option = spec.vcpu_hours, f"--vcpu-hours {spec.vcpu_hours:g}"
    else:
        assert spec.hours is not None, "PlanSpec takes one of the two"
        vcpu_hours, option = spec.hours * cluster.vcpus * spec.scaling_efficiency, f"--hours {spec.hours:g}"
    work_vcpu_s = max(round(vcpu_hours * HOUR_S), 1)
    busy_s = work_vcpu_s / (min(cluster.vcpus, cap or cluster.vcpus) * spec.scaling_efficiency)
    deadline_s = None if spec.deadline_h is None else round(spec.deadline_h * HOUR_S)
    count, name, vcpus, micros = _reliable(spec, field, cluster)
    return PlannedJob(
        work_vcpu_s=work_vcpu_s,
        scaling_efficiency=spec.scaling_efficiency,
        machines=machines,
        reference=cluster,
        max_spot_vcpus=cap,
        reliable_count=count,
        reliable_name=name,
        reliable_vcpus=vcpus,
        reliable_micros=micros,
        deadline_s=deadline_s,
        budget_micros=None if spec.budget_usd is None else to_micros(spec.budget_usd),
        window_s=_window_s(field, option, busy_s, deadline_s),
    )


def _reliable(spec: PlanSpec, field: BacktestInputs, cluster: Reference) -> tuple[int, str, int, Micros]:
    if spec.reliable is None:
        count = min(max(cluster.vcpus // _SERVED_VCPUS, 1), _MOST_RELIABLE)
        return count, f"{_RELIABLE_VCPUS} vCPUs", _RELIABLE_VCPUS, cluster.micros(_RELIABLE_VCPUS)
    count, name = reliable_machines(spec.reliable)
    if not count:
        return 0, "none", _RELIABLE_VCPUS, 0
    if name not in field.types:
        raise InputError(
            f"--reliable {spec.reliable}: {name} is not on sale on {minute(field.windows.evaluation.from_s)[:10]}; "
            "name another type, or give a --catalog that has it"
        )
    kind = field.types[name]
    return count, name, kind.vcpu, kind.on_demand_micros


def _window_s(field: BacktestInputs, option: str, busy_s: float, deadline_s: int | None) -> int:
    """Return the seconds that a job is given: 3.5 times what it takes undisturbed plus 2 h, or its deadline if later.

    A far deadline counts up to half of the evaluation, because the starts need the rest.
    """
    window = field.windows.evaluation
    span_s = window.until_s - window.from_s
    needed_s = ceil(3.5 * busy_s) + 2 * HOUR_S
    if needed_s > span_s:
        raise InputError(
            f"{option}: takes {busy_s / HOUR_S:,.1f} h undisturbed and is tried for {needed_s / HOUR_S:,.0f}, "
            f"but the history has {span_s / HOUR_S:,.0f} h from {minute(window.from_s)} on; "
            "give less work, more --machines or --max-vcpus, an earlier --from, or a longer file"
        )
    return max(needed_s, min(deadline_s or 0, span_s // 2))


def draw_starts(rng: np.random.Generator, job: PlannedJob, field: BacktestInputs, count: int) -> Int64s:
    """Return `count` starts in time order, uniform over the seconds of the evaluation that leave a job its window."""
    window = field.windows.evaluation
    return np.sort(rng.integers(window.from_s, window.until_s - job.window_s, size=count, endpoint=True))


def scheme_of(name: str, spec: PlanSpec, job: PlannedJob) -> tuple[Scheme, dict[str, Any]]:
    """Return the scheme of that name, and the fields of `Setting` that the job changes in it.

    Notes
    -----
    Checkpointing keeps its own overheads and needs no reliable machines. The scheme that buys nothing is the cluster
    itself, on demand; φ slows it as it slows the others. The standard strategy never buys more than the cap.
    """
    agileml = AgileML(
        eviction_overhead_s=float(spec.eviction_overhead_s),
        resize_overhead_s=float(spec.resize_overhead_s),
        reliable_count=job.reliable_count,
        reliable_vcpus=job.reliable_vcpus,
    )
    found = scheme(name, schemes(agileml, Checkpointing()))
    if found.rule is SchemeId.STANDARD:
        found = replace(found, parameters=(float(min(job.reference.vcpus, job.max_spot_vcpus)),))
    changes: dict[str, Any] = {
        "work_vcpu_s": job.work_vcpu_s,
        "window_s": job.window_s,
        "efficiency_ppm": max(round(found.settings.get("efficiency_ppm", PPM) * spec.scaling_efficiency), 1),
    }
    if found.rule is not SchemeId.NONE:
        changes |= {
            "max_spot_vcpus": job.max_spot_vcpus,
            "reliable_micros": job.reliable_micros,
            "ceiling": int(spec.ceiling),
        }
        if "allocation_vcpus" not in found.settings:
            changes["allocation_vcpus"] = spec.allocation_vcpus
    return found, changes
