"""Jobs in the state database: record, look up, settle."""

from typing import Any

from infra.errors import JobFailed
from infra.state.records import IntentState, Job, JobState, ObservationKind
from infra.storage.job_paths import JobPaths
from tasks.form_fields import RECORDED
from tasks.job_spec import JobSpec
from tasks.runtime import current_runtime, runtime_task


@runtime_task("record job")
def record_job(spec: JobSpec) -> Job:
    """Record the job, or return the recorded one; the same id with another spec is refused."""
    store = current_runtime().store
    job = store.find_job(spec.job_id)
    if job is not None and JobSpec.model_validate(dict(job.spec), context=RECORDED) == spec:
        return job  # also where it was recorded before a field with a default was added
    return store.create_job(spec.job_id, spec.model_dump(mode="json"), current_runtime().clock.now_s())


def job_spec(job_id: str) -> JobSpec:
    """Return the description of a recorded job."""
    return JobSpec.model_validate(dict(current_runtime().store.job(job_id).spec), context=RECORDED)


def is_paid_by_hour(job_id: str) -> bool:
    """Return whether the job's spot machines are paid by the hour, not by the second."""
    return not job_spec(job_id).transient.billing_model.by_second


def saved_result(job_id: str) -> dict[str, Any] | None:
    """Return the result that the controller saved with the model, or None while there is none.

    Raises
    ------
    JobFailed
        If effects of micro-tasks are missing from the model, which is then no result.
    """
    runtime = current_runtime()
    manifest = runtime.blobs.manifest(JobPaths(job_id).model)
    if manifest is None:
        return None
    result = dict(manifest.about)
    if result.get("lost_micro_tasks"):
        raise JobFailed(f"job {job_id}: the effects of {result['lost_micro_tasks']} micro-tasks are not in its model")
    return result


def is_known(job_id: str) -> bool:
    """Return whether the job is in the state database."""
    return current_runtime().store.find_job(job_id) is not None


def is_open(job_id: str) -> bool:
    """Return whether the job's work goes on."""
    return not current_runtime().store.job(job_id).state.terminal


def has_failed(job_id: str) -> bool:
    """Return whether the job has failed; it goes on from its checkpoint when it is run again."""
    return current_runtime().store.job(job_id).state is JobState.FAILED


def ended_result(job_id: str) -> dict[str, Any] | None:
    """Return the result of a job whose work is done, or None while it is not; one that failed may go on.

    Raises
    ------
    JobFailed
        If effects of micro-tasks are missing from the model that it saved.
    """
    job = current_runtime().store.job(job_id)
    if job.state in (JobState.FINISHED, JobState.STOPPED):
        return dict(job.result or {})
    return saved_result(job_id)


def ticking_jobs(job_id: str | None = None) -> list[str]:
    """Return the jobs that need ticks: open ones, and ended ones that hold machines or have hours to book.

    With `job_id`, that one if it is among them.
    """
    store = current_runtime().store
    jobs = store.jobs() if job_id is None else [store.job(job_id)]
    return [job.job_id for job in jobs if not job.state.terminal or not _settled(job.job_id)]


def _settled(job_id: str) -> bool:
    store = current_runtime().store
    settled, job = store.last_observation(job_id, ObservationKind.SETTLED), store.job(job_id)
    # A job that failed, and went on, was settled in its first life, too.
    is_settled = settled is not None and job.ended_at_s is not None and settled.at_s >= job.ended_at_s
    return is_settled and not store.allocations(job_id, alive=True)


def settle_job(job_id: str) -> None:
    """Record that an ended job holds no machine, has no open order, and all its hours are booked.

    Call it after booking.
    """
    runtime = current_runtime()
    open_orders = [
        intent for intent in runtime.store.intents(job_id, [IntentState.PLANNED]) if intent.kind == "acquire"
    ]
    if (
        runtime.store.job(job_id).state.terminal
        and not open_orders
        and not runtime.store.allocations(job_id, alive=True)
    ):
        runtime.store.observe(job_id, runtime.clock.now_s(), ObservationKind.SETTLED, {})


def training_begun(job_id: str) -> bool:
    """Return whether the job's training was ever started: before that, more machines are of no use."""
    return bool(current_runtime().store.observations(job_id, ObservationKind.TRAINING_BEGUN))
