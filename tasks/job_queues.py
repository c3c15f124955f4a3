"""Queues: the jobs of one queue run one after the other, in the order of submission; whose turn it is.

A job that has ended, however it did, is followed by the next. One that is to go on waits for all that have not ended.
"""

from proteus_spot.infra.state.records import Job, JobState, ObservationKind
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.job_records import terms_of

_OPEN = [state for state in JobState if not state.terminal]


def queue_of(job: Job) -> str | None:
    """Return the queue of a job; None for a job without one, and for a sweep."""
    return job.spec.get("queue")


def jobs_before(store: Store, job: Job) -> list[Job]:
    """Return the jobs that a job waits for, the next to run first; none where it is its turn, or it is in no queue."""
    others = [one for one in _open_jobs_of(store, job) if one.job_id != job.job_id]
    if not others:
        return []
    mine = _place(store, job)
    return others if job.state.terminal else [one for one in others if _place(store, one) < mine]


def _open_jobs_of(store: Store, job: Job) -> list[Job]:
    """Return the jobs of a job's queue that have not ended, in the order in which they run."""
    if (queue := queue_of(job)) is None:
        return []
    return sorted(
        (one for one in store.jobs.list_jobs(_OPEN) if queue_of(one) == queue), key=lambda one: _place(store, one)
    )


def next_to_take_over(store: Store, job: Job) -> Job | None:
    """Return the job that will take over what a job that has ended holds: the next of its queue, until it has.

    None, too, if it cannot, as it is billed otherwise, and once another job has ended since and took nothing over: idle
    machines are kept for one job to start.
    """
    ended_at_s = job.ended_at_s or 0.0
    if not job.state.terminal or turn_since_s(store, job) > ended_at_s:
        return None
    following = _open_jobs_of(store, job)[:1]
    if not following or terms_of(following[0]).billing_model != terms_of(job).billing_model:
        return None
    took = store.jobs.last_observation(following[0].job_id, ObservationKind.TOOK_OVER)
    return None if took is not None and took.at_s >= ended_at_s else following[0]


def _place(store: Store, job: Job) -> tuple[float, str]:
    queued = store.jobs.last_observation(job.job_id, ObservationKind.QUEUED)
    return (job.created_at_s if queued is None else float(queued.payload["submitted_s"])), job.job_id


def turn_since_s(store: Store, job: Job) -> float:
    """Return since when it is a job's turn, as no other job of its queue runs; 0 for a job without a queue."""
    if (queue := queue_of(job)) is None:
        return 0.0
    return max(one.ended_at_s or 0.0 for one in store.jobs.list_jobs() if queue_of(one) == queue)


def queue_line(store: Store, job: Job) -> str:
    """Return what a job that has not ended waits for in its queue; empty where it is its turn."""
    before = [] if job.state.terminal else jobs_before(store, job)
    if not before:
        return ""
    others = f", {len(before)} jobs before it" if len(before) > 1 else ""
    return f"waits in the queue {queue_of(job)} for job {before[0].job_id}{others}"
