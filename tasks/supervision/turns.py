"""The turn of a job in its queue, for which its run of `train` waits.

Of several jobs that are submitted at once, a later one's run may begin first: it asks the Prefect server whether there
are runs of jobs that were submitted before.
"""

import logging
from datetime import datetime

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.exceptions import PrefectException
from prefect.runtime import flow_run as this_run

from proteus_spot.infra.errors import JobFailed
from proteus_spot.infra.state.records import Job, JobState, ObservationKind
from proteus_spot.infra.state.store import Store
from proteus_spot.studies.form_fields import dated
from proteus_spot.tasks.job_queues import jobs_before, queue_of
from proteus_spot.tasks.run_labels import due_day
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)

#: Real seconds between two looks at whose turn it is, and for the Prefect server to answer.
_LOOK_S = 2.0
_CALL_S = 5.0
#: Real seconds for a job that goes on to be reopened, before another one of its queue may begin.
_PASS_S = 60.0
_UNDER_WAY = FlowRunFilterStateType(any_=[StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING])


def record_submission(job_id: str) -> None:
    """Record when a job in a queue was submitted, which is its place there; call it as soon as the job is recorded."""
    runtime, submitted = current_runtime(), _submitted()
    jobs = runtime.store.jobs
    if queue_of(jobs.job(job_id)) is not None and jobs.last_observation(job_id, ObservationKind.QUEUED) is None:
        at = {"submitted_s": submitted.timestamp() if submitted else runtime.clock.now_s()}
        jobs.observe(job_id, runtime.clock.now_s(), ObservationKind.QUEUED, at)


@runtime_task("wait for the turn")
def await_turn(job_id: str) -> None:
    """Wait until it is the job's turn in its queue, or it is stopped; nothing is bought for it before.

    Runs that were submitted before and have not begun are waited for half of `start_minutes` at most: the worker of one
    may be dead.

    Raises
    ------
    JobFailed
        If the job failed while it waited.
    """
    runtime, said = current_runtime(), ""
    free_since_s, patience_s = runtime.clock.now_s(), runtime.settings.start_minutes * 30 * runtime.clock.scale
    job = runtime.store.jobs.job(job_id)
    goes_on, submitted = job.state.terminal, _submitted()
    while True:
        job = runtime.store.jobs.job(job_id)
        if job.state is JobState.FAILED and not goes_on:
            raise JobFailed(job.failure or f"job {job_id} failed while it waited for its turn")
        if job.state is JobState.STOPPING or (job.state.terminal and not goes_on):
            return
        before, now_s = [one.job_id for one in jobs_before(runtime.store, job)], runtime.clock.now_s()
        free_since_s = now_s if before else free_since_s
        if not before and now_s - free_since_s < patience_s:
            before = _to_come(runtime.store, job, submitted)
        if not before and _passes(runtime.store, job):
            return
        line = f"job {job_id}: waits in the queue {queue_of(job)} for {', '.join(before) or 'a job that goes on'}"
        if line != said:
            _log.info(line)
        said = line
        runtime.clock.wait_until(runtime.clock.now_s() + _LOOK_S * runtime.clock.scale)


def _passes(store: Store, job: Job) -> bool:
    """Return whether the job may begin now that none is before it: no other one that is to go on has just begun.

    It is open only when it was reopened; until then its claim holds the others up.
    """
    claim = f"queue/{queue_of(job)}"
    if not job.state.terminal:
        return not store.claims.is_claimed(claim)
    if not store.claims.claim(claim, job.job_id, _PASS_S):
        return False
    if jobs_before(store, job):  # it was recorded between the look and the claim
        store.claims.release(claim, job.job_id)
        return False
    return True


def _submitted() -> datetime | None:
    """Return when this flow run was submitted; None outside of one."""
    return this_run.scheduled_start_time if this_run.id else None


def _to_come(store: Store, job: Job, submitted: datetime | None) -> list[str]:
    """Return the jobs of the queue whose runs were submitted before, and have not begun; none without an answer."""
    if submitted is None:
        return []
    wanted = FlowRunFilter(
        state=FlowRunFilterState(type=_UNDER_WAY),
        expected_start_time=FlowRunFilterExpectedStartTime(before_=submitted),
    )
    train = FlowFilter(name=FlowFilterName(any_=["train"]))
    try:
        with get_client(httpx_settings={"timeout": _CALL_S}, sync_client=True) as client:
            runs = client.read_flow_runs(flow_filter=train, flow_run_filter=wanted)
    except (httpx.HTTPError, PrefectException) as error:
        _log.warning("job %s: whether others were submitted before it is not known: %s", job.job_id, error)
        return []
    found = []
    for run in runs:
        spec = (run.parameters or {}).get("spec")
        if not isinstance(spec, dict) or spec.get("queue") != queue_of(job):
            continue
        name = dated(str(spec.get("job_id")), due_day(run))
        if name != job.job_id and store.jobs.last_observation(name, ObservationKind.QUEUED) is None:
            found.append(name)
    return found
