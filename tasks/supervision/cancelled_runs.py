"""Cancel in the Prefect UI is a request to stop the job, whichever of its runs was cancelled.

The hook of the flow writes it at once, but Prefect does not guarantee that a hook runs; so ticks look at the state of
the runs that follow a job. A run that crashed or failed is no request: the training goes on without it.
"""

import logging
from typing import Any
from uuid import UUID

import httpx
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import PrefectException
from prefect.runtime import flow_run as this_run
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.state.records import ObservationKind, UnknownRecord
from proteus_spot.studies.form_fields import dated
from proteus_spot.tasks.job_ends import is_active, request_stop
from proteus_spot.tasks.job_records import can_go_on
from proteus_spot.tasks.run_labels import due_day
from proteus_spot.tasks.task_runtime import current_runtime

_log = logging.getLogger(__name__)
#: Real seconds for the Prefect server to answer; without an answer the tick goes on.
_CALL_S = 5.0
_WHY = "cancelled in the Prefect UI"


def _tells_an_end(record: logging.LogRecord) -> bool:
    """Return whether a line of a run's log tells a true end: a process that is cancelled logs an error, `Running()`."""
    return not record.getMessage().startswith("Finished in state Running(")


def record_follower(job_id: str) -> None:
    """Record that this run of `train` or `sweep` follows the job: cancelling it means to stop the job.

    The run that has an ended job go on is the first follower of another life: what was cancelled before is over.
    """
    logging.getLogger("prefect.flow_runs").addFilter(_tells_an_end)
    runtime, run_id, resumes = current_runtime(), this_run.id, can_go_on(job_id)
    if run_id is None:
        return
    seen = {"flow_run_id": str(run_id), "resumes": resumes, "attempt": this_run.run_count}
    last = runtime.store.jobs.last_observation(job_id, ObservationKind.FOLLOWER)
    if last is None or dict(last.payload) != seen:  # a retry again: the deadline of the start counts from then
        runtime.store.jobs.observe(job_id, runtime.clock.now_s(), ObservationKind.FOLLOWER, seen)


def stop_cancelled_job(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Write the request to stop: the hook of a run of `train` that is cancelled."""
    spec = (flow_run.parameters or {}).get("spec")
    job_id = spec.get("job_id") if isinstance(spec, dict) else getattr(spec, "job_id", None)
    if job_id is not None:
        request_stop_of_run(dated(str(job_id), due_day(flow_run)), flow_run)


def request_stop_of_run(job_id: str, flow_run: FlowRun) -> None:
    """Write the request to stop the job or sweep that a cancelled run follows."""
    try:
        request_stop(job_id, _WHY, by=f"flow run {flow_run.name}")
    except UnknownRecord:
        return  # it was cancelled before it had recorded the job: nothing was bought
    except ProteusError as error:
        _log.warning("job %s: the next tick stops it, for the database does not answer: %s", job_id, error)


def stop_if_cancelled(job_id: str) -> None:
    """Write the request to stop if a run that follows the job was cancelled; nothing where Prefect does not answer."""
    followers = _followers(job_id) if is_active(job_id) else []
    if not followers:
        return
    try:
        cancelled = _cancelled(followers)
    except (httpx.HTTPError, PrefectException) as error:
        _log.warning("job %s: whether it was cancelled in the UI is seen by a later tick: %s", job_id, error)
        return
    if cancelled:
        request_stop(job_id, _WHY, by=f"flow run {cancelled[0].name}")


def _followers(job_id: str) -> list[str]:
    """Return the runs that follow the job since it was begun, or was begun again."""
    followers: list[str] = []
    for one in current_runtime().store.jobs.observations(job_id, ObservationKind.FOLLOWER):
        if one.payload.get("resumes"):
            followers.clear()
        followers.append(str(one.payload["flow_run_id"]))
    return followers


def _cancelled(run_ids: list[str]) -> list[FlowRun]:
    cancelled = FlowRunFilterStateType(any_=[StateType.CANCELLING, StateType.CANCELLED])
    wanted = FlowRunFilter(
        id=FlowRunFilterId(any_=[UUID(run_id) for run_id in run_ids]), state=FlowRunFilterState(type=cancelled)
    )
    with (
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
        get_client(httpx_settings={"timeout": _CALL_S}, sync_client=True) as client,
    ):
        return client.read_flow_runs(flow_run_filter=wanted, limit=1)
