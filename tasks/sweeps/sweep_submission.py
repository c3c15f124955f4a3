"""Submission of a sweep to a Prefect server."""

from typing import Any

from proteus_spot.infra.state.records import JobKind
from proteus_spot.tasks.sweeps.running.sweep_opening import sweep_spec
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.task_runtime import current_runtime
from proteus_spot.tasks.training.submission import new_run, run_addresses

_SWEEP = "sweep/sweep"


def submit_sweep(spec: SweepSpec) -> dict[str, Any]:
    """Have the Prefect server run `sweep`; return the sweep's id, and the run's id, name and address.

    Raises
    ------
    ProteusError
        If no server answers, or the deployment is not registered there.
    """
    # an id of the run's own is its name when it begins
    run = new_run(_SWEEP, "sweep", spec.job_id, spec.model_dump(mode="json"))
    return {"sweep_id": spec.for_run(str(run.id)).job_id, **run_addresses(run)}


def resume_sweeps() -> list[str]:
    """Have the worker run `sweep` again for the sweeps that an earlier `proteus up` left open; return their ids."""
    jobs = current_runtime().store.jobs.list_jobs()
    sweeps = [job.job_id for job in jobs if job.kind is JobKind.SWEEP and not job.state.terminal]
    for sweep_id in sweeps:
        submit_sweep(sweep_spec(sweep_id))
    return sweeps
