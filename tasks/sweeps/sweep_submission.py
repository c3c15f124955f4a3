"""Submission of a sweep to a Prefect server."""

from typing import Any, cast

from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.utilities.urls import url_for

from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.state.records import JobKind
from proteus_spot.tasks.sweeps.running.sweep_opening import sweep_spec
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.task_runtime import current_runtime

_SWEEP = "sweep/sweep"


def submit_sweep(spec: SweepSpec) -> dict[str, Any]:
    """Have the Prefect server run `sweep`; return the sweep's id, and the run's id, name and address.

    Raises
    ------
    ProteusError
        If no server answers, or the deployment is not registered there.
    """
    try:
        made = run_deployment(
            _SWEEP,
            parameters={"spec": spec.model_dump(mode="json")},
            flow_run_name=spec.job_id,  # an id of the run's own is its name when it begins
            timeout=0,
            as_subflow=False,
        )
    except ObjectNotFound:
        raise ProteusError(f"deployment {_SWEEP}: is not registered; run `prefect deploy --all`") from None
    except Exception as error:
        # Prefect's client raises the errors of its transport when the server does not answer.
        raise ProteusError(f"the Prefect server did not take the sweep: {error}; is PREFECT_API_URL right?") from error
    run = cast(FlowRun, made)  # called outside an event loop, it has waited for its answer
    return {
        "sweep_id": spec.for_run(str(run.id)).job_id,
        "flow_run_id": str(run.id),
        "flow_run": run.name,
        "run_url": url_for(run),
    }


def resume_sweeps() -> list[str]:
    """Have the worker run `sweep` again for the sweeps that an earlier `proteus up` left open; return their ids."""
    jobs = current_runtime().store.jobs.list_jobs()
    sweeps = [job.job_id for job in jobs if job.kind is JobKind.SWEEP and not job.state.terminal]
    for sweep_id in sweeps:
        submit_sweep(sweep_spec(sweep_id))
    return sweeps
