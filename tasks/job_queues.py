"""Queues: the jobs of one queue run one after the other, in the order of submission; whose turn it is.

A job that has ended, however it did, is followed by the next. One that is to go on waits for all that have not ended.
"""

import logging

from proteus_spot.infra.state.records import Job, JobState
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)

#: Real seconds between two looks at whose turn it is.
_LOOK_S = 2.0
_OPEN = [state for state in JobState if not state.terminal]


def queue_of(job: Job) -> str | None:
    """Return the queue of a job; None for a job without one, and for a sweep."""
    return job.spec.get("queue")


def jobs_before(store: Store, job: Job) -> list[Job]:
    """Return the jobs that a job waits for, the next to run first; none where it is its turn, or it is in no queue."""
    if queue_of(job) is None:
        return []
    others = [one for one in open_jobs_of(store, job) if one.job_id != job.job_id]
    return others if job.state.terminal else [one for one in others if _place(one) < _place(job)]


def open_jobs_of(store: Store, job: Job) -> list[Job]:
    """Return the jobs of a job's queue that have not ended, in the order in which they run."""
    queue = queue_of(job)
    return sorted((one for one in store.jobs(_OPEN) if queue is not None and queue_of(one) == queue), key=_place)


def _place(job: Job) -> tuple[float, str]:
    return job.created_at_s, job.job_id


def turn_since_s(store: Store, job: Job) -> float:
    """Return since when it is a job's turn, as no other job of its queue runs; 0 for a job without a queue."""
    queue = queue_of(job)
    ends = [one.ended_at_s or 0.0 for one in store.jobs() if queue is not None and queue_of(one) == queue]
    return max(ends, default=0.0)


def waiting_line(store: Store, job: Job) -> str:
    """Return what a job that has not ended waits for in its queue; empty where it is its turn."""
    before = [] if job.state.terminal else jobs_before(store, job)
    if not before:
        return ""
    others = f", {len(before)} jobs before it" if len(before) > 1 else ""
    return f"waits in the queue {queue_of(job)} for job {before[0].job_id}{others}"


@runtime_task("wait for the turn")
def await_turn(job_id: str) -> None:
    """Wait until it is the job's turn in its queue, or it is stopped; nothing is bought for it before."""
    runtime, said = current_runtime(), ""
    goes_on = runtime.store.job(job_id).state.terminal
    while before := jobs_before(runtime.store, job := runtime.store.job(job_id)):
        if job.state is JobState.STOPPING or (job.state.terminal and not goes_on):
            return
        line = f"job {job_id}: waits in the queue {queue_of(job)} for {', '.join(one.job_id for one in before)}"
        if line != said:
            _log.info(line)
        said = line
        runtime.clock.wait_until(runtime.clock.now_s() + _LOOK_S * runtime.clock.scale)
