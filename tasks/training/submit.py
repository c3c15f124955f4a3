"""Submission of a job to the Prefect server, and ending a job."""

import shlex
from pathlib import Path
from typing import Any, cast

from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from pydantic import ValidationError

from infra.errors import InputError, ProteusError
from infra.local.job_stores import JobStore, find_job, is_under_way, open_job_stores
from infra.nodes.controller_client import ControllerClient, ControllerUnreachable
from infra.state.records import JobState
from infra.structured_text import read_yaml
from infra.validation import first_fault
from tasks.job_spec import JobSpec
from tasks.market_data.eviction_tables import absolute_evictions
from tasks.training.application_checks import absolute_code, check_asked
from tasks.training.inputs import absolute_data

_TRAIN = "train/train"
_CALL_S = 5.0


def read_job(path: Path) -> JobSpec:
    """Return the job that a YAML (or JSON) file describes.

    Raises
    ------
    InputError
        One line that names the file and the field, for each fault that the description alone shows.
    """
    record = read_yaml(path)
    if not isinstance(record, dict):
        raise InputError(f"{path}: holds no job; want job_id, training, transient, … (docs/operations.md)")
    try:
        spec = JobSpec.model_validate(record)
    except ValidationError as error:
        raise InputError(f"{path}: {first_fault(error)}") from None
    check_asked(spec.training, f"{path}: training.", "app_params")
    places = {"data": absolute_data(spec.training.data), "code": absolute_code(spec.training.code)}
    training = spec.training.model_copy(update=places)
    evictions = {"evictions": absolute_evictions(spec.transient.evictions)}
    return spec.model_copy(update={"training": training, "transient": spec.transient.model_copy(update=evictions)})


def submit(spec: JobSpec) -> dict[str, Any]:
    """Have the Prefect server run `train` for the job; return the run's id and name.

    The same job id again makes another run, which attaches.

    Raises
    ------
    ProteusError
        If no server answers, or the deployment is not registered there.
    """
    try:
        made = run_deployment(_TRAIN, parameters={"spec": spec.model_dump(mode="json")}, timeout=0, as_subflow=False)
    except ObjectNotFound:
        raise ProteusError(f"deployment {_TRAIN}: is not registered; run `prefect deploy --all`") from None
    except Exception as error:
        # Prefect's client raises the errors of its transport when the server does not answer.
        raise ProteusError(f"the Prefect server did not take the job: {error}; is PREFECT_API_URL right?") from error
    run = cast(FlowRun, made)  # called outside an event loop, it has waited for its answer
    return {"job": spec.job_id, "flow_run_id": str(run.id), "flow_run": run.name}


def stop(jobs: JobStore, job_id: str, reason: str) -> str:
    """Ask the job to end at the current clock, with its model saved; return one line on the outcome.

    Raises
    ------
    UnknownRecord
        If there is no such job.
    ProteusError
        If its controller does not answer.
    """
    job = jobs.store.job(job_id)
    if job.state.terminal:
        return f"job {job_id} ended before: {job.state}"
    if jobs.directory is not None and not is_under_way(jobs.directory):
        return (
            f"job {job_id} is a local run that was interrupted: nothing of it runs or costs; "
            f"`proteus run --job {job_id} --dir {shlex.quote(str(jobs.directory))}` with its options goes on, "
            "and without that directory it is gone"
        )
    if job.controller_address is None:
        other_way = "press Ctrl-C where it runs" if jobs.directory is not None else "cancel its flow run"
        raise ProteusError(f"job {job_id}: has no controller yet; stop it again when it trains, or {other_way}")
    try:
        ControllerClient(job.controller_address, _CALL_S).stop(reason)
    except ControllerUnreachable as error:
        raise ProteusError(f"job {job_id}: its controller does not answer ({error}); try again") from None
    if job.state is not JobState.STOPPING:
        jobs.store.move_job(job_id, JobState.STOPPING, jobs.now_s(job_id))
    return f"job {job_id} ends at the clock under way; its model is saved, its machines go"


def stop_job(job_id: str, reason: str, database: str | None = None, directory: Path | None = None) -> str:
    """Find the job as `proteus jobs` does, and `stop` it.

    Raises
    ------
    InputError
        If it is in no state database.
    ProteusError
        If its controller does not answer.
    """
    with open_job_stores(database, directory) as (stores, _):
        return stop(find_job(stores, job_id), job_id, reason)
