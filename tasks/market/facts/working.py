"""The rates of work of instance types: what the nodes of jobs have done, recorded at ticks, and what follows."""

from collections.abc import Mapping
from typing import Any

from proteus_spot.bidding.facts.learning import REMEMBERED_S
from proteus_spot.bidding.facts.rates import NodeWork, TypeSpeed, TypeWork, application_name, speeds_by_application
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.task_runtime import current_runtime


def note_work(spec: JobSpec, status: Mapping[str, Any]) -> None:
    """Record what the nodes of a job have done, by the status of its controller.

    Where market time runs faster than real time, all machines share this one, and their kernels say nothing of types.
    """
    runtime, job_id = current_runtime(), spec.job_id
    done = status.get("work") or {}
    if runtime.clock.scale != 1 or not done:
        return
    by_type: dict[str, dict[str, NodeWork]] = {}
    for record in runtime.store.purchases.allocations(job_id):
        for name in record.instance_ids:
            if name in done:
                of_type = by_type.setdefault(record.allocation.market.instance_type, {})
                of_type[name] = NodeWork(*done[name])
    app, unit = spec.training.app, spec.transient.unit
    for kind, nodes in by_type.items():
        runtime.store.markets.record_work(TypeWork(runtime.now_s(), job_id, app, unit, kind, nodes))


def speeds_to_decide_on(spec: JobSpec) -> dict[str, TypeSpeed]:
    """Return the speeds of the types of a job, as its application was measured in all jobs; those that are known."""
    runtime = current_runtime()
    works = runtime.store.markets.works(runtime.now_s() - REMEMBERED_S)
    known = speeds_by_application(works).get(application_name(spec.training.app, spec.transient.unit), {})
    types = {text.partition("/")[0] for text in spec.transient.markets} | {spec.reliable.instance_type}
    return {name: speed for name, speed in known.items() if name in types}
