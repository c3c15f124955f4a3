"""Hooks of the flow `train`: its runs are tagged with their job, and named by it and its verdict."""

from typing import Any

from prefect.client.schemas.objects import FlowRun, State
from prefect.flows import Flow

from proteus_spot.infra.state.records import JobState, UnknownRecord
from proteus_spot.studies.form_fields import dated
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.run_labels import due_day, job_run_tag, label
from proteus_spot.tasks.task_runtime import current_runtime


def name_running(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Name a run that begins after its job."""
    job_id = _job_of(flow_run)
    if job_id:
        label(flow_run.id, job_id, {*flow_run.tags, job_run_tag(job_id)})


def name_ended(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Name a run that has ended after its job and the job's verdict, or that of the run if the job goes on."""
    job_id = _job_of(flow_run)
    if job_id:
        label(flow_run.id, f"{job_id}: {_verdict(job_id, state)}", {*flow_run.tags, job_run_tag(job_id)})


def _verdict(job_id: str, state: State[Any]) -> str:
    try:
        job = current_runtime().store.jobs.job(job_id)
    except UnknownRecord:
        return "refused"
    if state.is_cancelling() or state.is_cancelled():
        return "cancelled"
    if job.state.terminal and (job.state is JobState.FAILED or state.is_completed()):
        return str(job.state)
    return f"run {str(state.name).lower()}"


def _job_of(flow_run: FlowRun) -> str:
    spec = flow_run.parameters.get("spec")
    if isinstance(spec, JobSpec):
        job_id = spec.job_id
    else:
        job_id = str(spec.get("job_id") or "") if isinstance(spec, dict) else ""
    return dated(job_id, due_day(flow_run))
