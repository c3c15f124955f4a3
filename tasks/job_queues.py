"""Queues: the jobs of one queue run one after the other, in the order of submission; whose turn it is.

A job that has ended, however it did, is followed by the next. One that is to go on waits for all that have not ended.
One that ends while it waits changes nothing for the others.
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

    None, too, if it cannot, as it is billed otherwise, and once another job has ended since that had begun or failed to
    begin: idle machines are kept for one job to start. One that was stopped, or failed, while it waited is no such job.
    """
    ended_at_s = job.ended_at_s or 0.0
    following = _open_jobs_of(store, job)[:1] if job.state.terminal else []
    if not following or terms_of(following[0]).billing_model != terms_of(job).billing_model:
        return None
    took = store.jobs.last_observation(following[0].job_id, ObservationKind.TOOK_OVER)
    if took is not None and took.at_s >= ended_at_s:
        return None
    since = [one for one in _ended_jobs_of(store, job) if (one.ended_at_s or 0.0) > ended_at_s]
    mine = _place(store, following[0])
    for one in since:
        has_failed_to_begin = one.state is not JobState.STOPPED and _place(store, one) < mine
        if has_failed_to_begin or _has_begun(store, one):
            return None
    return following[0]


def _ended_jobs_of(store: Store, job: Job) -> list[Job]:
    """Return the jobs of a job's queue that have ended, the last one first."""
    if (queue := queue_of(job)) is None:
        return []
    ended = [one for one in store.jobs.list_jobs() if one.state.terminal and queue_of(one) == queue]
    return sorted(ended, key=lambda one: -(one.ended_at_s or 0.0))


def _has_begun(store: Store, job: Job) -> bool:
    return store.jobs.last_observation(job.job_id, ObservationKind.TOOK_OVER) is not None


def _place(store: Store, job: Job) -> tuple[float, str]:
    queued = store.jobs.last_observation(job.job_id, ObservationKind.QUEUED)
    return (job.created_at_s if queued is None else float(queued.payload["submitted_s"])), job.job_id


def turn_since_s(store: Store, job: Job) -> float:
    """Return since when it is a job's turn, as no job that it waited for runs; 0 for a job without a queue."""
    mine = _place(store, job)
    waited_for = (one for one in _ended_jobs_of(store, job) if _place(store, one) < mine or _has_begun(store, one))
    return next((one.ended_at_s or 0.0 for one in waited_for), 0.0)


def waits_to_go_on(store: Store, job: Job) -> bool:
    """Return whether an ended job was submitted again since, and waits for others of its queue."""
    if not job.state.terminal or queue_of(job) is None:
        return False
    run = store.jobs.last_observation(job.job_id, ObservationKind.FOLLOWER)
    is_again = run is not None and run.at_s >= (job.ended_at_s or 0.0) and bool(run.payload["resumes"])
    return is_again and bool(jobs_before(store, job))


def queue_line(store: Store, job: Job) -> str:
    """Return what a job waits for in its queue, one that is to go on, too; empty where it is its turn, or has ended."""
    before = jobs_before(store, job) if not job.state.terminal or waits_to_go_on(store, job) else []
    if not before:
        return ""
    others = f", {len(before)} jobs before it" if len(before) > 1 else ""
    return f"waits in the queue {queue_of(job)} for job {before[0].job_id}{others}"
