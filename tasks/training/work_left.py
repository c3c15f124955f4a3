"""The work that a job has left before its deadline, from the observations of its progress.

The rule is in `bidding.economics.deadline`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from proteus_spot.bidding.economics.deadline import SafetyNet, TimeLeft
from proteus_spot.bidding.economics.job_model import size_in
from proteus_spot.bidding.facts.rates import TypeSpeed
from proteus_spot.infra.state.records import ObservationKind
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.event_feed import emit_deadline
from proteus_spot.tasks.market.bookkeeping import stop_s
from proteus_spot.tasks.market.job_opening import boot_s, type_on_sale
from proteus_spot.tasks.task_runtime import current_runtime

Speeds = Mapping[str, TypeSpeed]
#: Where no speed is known.
USUAL: Speeds = MappingProxyType({})


def time_left(spec: JobSpec, speeds: Speeds = USUAL) -> TimeLeft | None:
    """Return what the job still has to do by its deadline; None without one, or before its training began."""
    clocks = spec.training.clocks
    runtime = current_runtime()
    deadline_s = spec.deadline_s(runtime.store.jobs.job(spec.job_id).created_at_s)
    last = runtime.store.jobs.last_observation(spec.job_id, ObservationKind.PROGRESS)
    if deadline_s is None or clocks is None or last is None:
        return None
    done = int(last.payload["clock"])
    vcpu_s = vcpu_seconds(spec, last.at_s, speeds)
    return TimeLeft(
        deadline_s=deadline_s,
        clocks=max(clocks - done, 0),
        clocks_per_vcpu_s=done / vcpu_s if vcpu_s > 0 else 0.0,
        overhead_s=2 * runtime.settings.tick_s + boot_s() + stop_s(spec.job_id),
    )


def report_deadline(spec: JobSpec, left: TimeLeft | None) -> None:
    """Emit an event if only on-demand machines can still finish the job by its deadline."""
    if left is None:
        return
    runtime = current_runtime()
    if SafetyNet().slack_s(left, runtime.now_s(), max(spec.transient.max_vcpus, 1)) <= 0:
        emit_deadline(runtime.store.jobs.job(spec.job_id), left.deadline_s, left.clocks)


def vcpu_seconds(spec: JobSpec, until_s: float, speeds: Speeds = USUAL) -> float:
    """Return the vCPU-seconds (GPU-seconds, by its unit) that the job's machines worked until then, without boots.

    Those of types of which `speeds` are known count by them.
    """
    store, job_id = current_runtime().store, spec.job_id
    ready_s: dict[str, float] = {}
    for point in store.jobs.observations(job_id, ObservationKind.NODES):
        for name, state in point.payload.items():
            if state == "ready":
                ready_s.setdefault(name, point.at_s)
    total = 0.0
    for record in store.purchases.allocations(job_id):
        kind = type_on_sale(record.allocation.market, record.allocation.launched_at_s)
        speed = speeds.get(record.allocation.market.instance_type)
        each = (size_in(spec.transient.unit, kind) if kind else 0) * (1 if speed is None else speed.value)
        for name, life in zip(record.instance_ids, record.machines, strict=False):
            end_s = until_s if life.ended_at_s is None else min(life.ended_at_s, until_s)
            begin_s = max(ready_s.get(name, end_s), record.since_s)  # a machine that was handed over may come back
            total += max(end_s - begin_s, 0.0) * each
    return total
