"""Jobs and sweeps in the state database: record, look up, settle; what both have in common."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from pydantic import BaseModel

from proteus_spot.bidding.billing import BillingModel
from proteus_spot.bidding.market.model import DAY_S
from proteus_spot.bidding.market.money import Micros, to_micros
from proteus_spot.infra.errors import JobFailed
from proteus_spot.infra.masking import masked
from proteus_spot.infra.state.records import IntentState, Job, JobKind, JobState, ObservationKind, StoreError
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.studies.form_fields import RECORDED, spot_billing
from proteus_spot.studies.job_spec import JobSpec, ReliableTier
from proteus_spot.tasks.job_ends import BUDGET_FIELD, how_it_goes_on, standstill_minutes, stopping_limit
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

#: Seconds from the end of an allocation after which a booking has found its last line. A market lists ended machines
#: for about an hour, so the end was known when ticks looked and booked; a tick that cannot look does not book either.
FINAL_S = DAY_S


class JobTerms(Protocol):
    """The terms on which machines are bought for a row of `jobs`; the description of a job has them."""

    @property
    def job_id(self) -> str:
        """The id of the job or sweep."""

    @property
    def budget_micros(self) -> Micros | None:
        """The budget in micro-dollars; None: no limit."""

    @property
    def billing_model(self) -> BillingModel:
        """How spot machines are charged."""

    @property
    def reliable(self) -> ReliableTier | None:
        """The machines that are held on demand while it runs; None: there are none."""


@dataclass(frozen=True, slots=True)
class SweepTerms:
    """The terms of a sweep, which has no reliable tier."""

    job_id: str
    budget_micros: Micros | None
    billing_model: BillingModel
    reliable: None = None


def terms_of(job: Job) -> JobTerms:
    """Return the terms of a recorded job or sweep."""
    if job.kind is JobKind.JOB:
        return recorded_spec(job)
    spec = job.spec
    billing = spot_billing(spec["billing"], spec["flat_price"], spec["reprice"])
    budget_usd = spec["budget_usd"]
    return SweepTerms(job.job_id, None if budget_usd is None else to_micros(budget_usd), billing)


def unit_of(job: Job) -> str:
    """Return what the sizes of a recorded job count."""
    return str(job.spec.get("transient", {}).get("unit", "vcpu"))


@runtime_task("record job")
def record_job(spec: JobSpec) -> Job:
    """Record the job, or return the recorded one; the same id with another spec is refused (`resolve_spec`)."""
    store = current_runtime().store
    resolve_spec(spec)
    job = store.jobs.find_job(spec.job_id)
    if job is not None and job.kind is JobKind.JOB:
        return job
    return store.jobs.create_job(spec.job_id, spec.model_dump(mode="json"), current_runtime().clock.now_s())


def resolve_spec(spec: JobSpec) -> JobSpec:
    """Return the description that the job of this id was begun with; `spec` itself for one that was not.

    What the user wrote must agree with it. A field that was left out is as it was then: its default may be another one
    today. A job that a limit has stopped has the larger limits that are written.

    Raises
    ------
    StoreError
        Naming the fields that differ.
    """
    job = current_runtime().store.jobs.find_job(spec.job_id)
    if job is None or job.kind is not JobKind.JOB:  # recording it refuses an id that a sweep has
        return spec
    recorded = with_larger_limits(job, spec, _progress_minutes()) or recorded_spec(job)
    changes = list(_changes(spec, recorded))
    if changes:
        raise StoreError(
            f"job {spec.job_id}: was submitted before with another spec ({'; '.join(changes)}); choose another job_id"
        )
    return recorded


def with_larger_limits(job: Job, spec: JobSpec, progress_minutes: float) -> JobSpec | None:
    """Return the description with which a job that a limit has stopped goes on; None if it does not.

    Parameters
    ----------
    progress_minutes : the setting of now, which may be larger than the one that stopped it.
    """
    recorded, limit = recorded_spec(job), stopping_limit(job)
    written: dict[str, Any] = {
        name: getattr(spec, name) for name in ("budget_usd", "deadline") if name in spec.model_fields_set
    }
    wanted = recorded.model_copy(update=written)
    before_s, ends_s = recorded.deadline_s(job.created_at_s), wanted.deadline_s(job.created_at_s)
    if ends_s is not None and (before_s is None or ends_s < before_s):
        return None
    if limit == BUDGET_FIELD:
        old, new = recorded.budget_micros, wanted.budget_micros
        return wanted if old is not None and (new is None or new > old) else None
    stood_minutes = standstill_minutes(job.stop_why or "")
    if limit and stood_minutes is not None and progress_minutes > stood_minutes:
        return wanted if wanted.budget_micros == recorded.budget_micros else None
    return None


def _progress_minutes() -> float:
    return current_runtime().settings.progress_minutes


def has_larger_limits(spec: JobSpec) -> bool:
    """Return whether a limit has stopped the job of this id, and `spec` (see `resolve_spec`) has a larger one."""
    job = current_runtime().store.jobs.find_job(spec.job_id)
    return (
        job is not None and job.kind is JobKind.JOB and with_larger_limits(job, spec, _progress_minutes()) is not None
    )


def _changes(written: BaseModel, recorded: BaseModel, prefix: str = "") -> Iterator[str]:
    for name in type(written).model_fields:
        new, old = getattr(written, name), getattr(recorded, name)
        if name not in written.model_fields_set or new == old:
            continue
        if isinstance(new, BaseModel) and isinstance(old, BaseModel):
            yield from _changes(new, old, f"{prefix}{name}.")
        else:
            yield masked(f"{prefix}{name}: {new}, was {old}")


def recorded_spec(job: Job) -> JobSpec:
    """Return the description of a recorded job."""
    return JobSpec.model_validate(dict(job.spec), context=RECORDED)


def job_spec(job_id: str) -> JobSpec:
    """Return the description of a recorded job."""
    return recorded_spec(current_runtime().store.jobs.job(job_id))


def is_paid_by_hour(job_id: str) -> bool:
    """Return whether the spot machines of a job or sweep are paid by the hour, not by the second."""
    return not terms_of(current_runtime().store.jobs.job(job_id)).billing_model.by_second


def is_sweep(job_id: str) -> bool:
    """Return whether the row of the state database is a sweep; False where there is none."""
    job = current_runtime().store.jobs.find_job(job_id)
    return job is not None and job.kind is JobKind.SWEEP


def saved_result(job_id: str) -> dict[str, Any] | None:
    """Return the result that the controller saved with the model, or None while there is none.

    Raises
    ------
    JobFailed
        If updates of tasks are missing from the model, which is then no result.
    """
    runtime = current_runtime()
    manifest = runtime.blobs.manifest(JobPaths(job_id).model)
    if manifest is None:
        return None
    result = dict(manifest.about)
    left = runtime.store.jobs.last_observation(job_id, ObservationKind.WENT_ON)
    if left is not None and left.payload["model"] == _digest(result):
        return None  # it is of the stop from which the job went on
    if result.get("lost_micro_tasks"):
        raise JobFailed(f"job {job_id}: the updates of {result['lost_micro_tasks']} tasks are not in its model")
    return result


def note_going_on(job_id: str) -> None:
    """Record that a job goes on after a stop: the model that it saved then is not its result."""
    runtime = current_runtime()
    manifest = runtime.blobs.manifest(JobPaths(job_id).model)
    if manifest is not None:
        model = {"model": _digest(dict(manifest.about))}
        runtime.store.jobs.observe(job_id, runtime.clock.now_s(), ObservationKind.WENT_ON, model)


def _digest(result: dict[str, Any]) -> str:
    return sha256(json.dumps(result, sort_keys=True, default=str).encode()).hexdigest()


def is_known(job_id: str) -> bool:
    """Return whether the job is in the state database."""
    return current_runtime().store.jobs.find_job(job_id) is not None


def is_open(job_id: str) -> bool:
    """Return whether the job's work goes on."""
    return not current_runtime().store.jobs.job(job_id).state.terminal


def has_failed(job_id: str) -> bool:
    """Return whether the job has failed; it goes on from its checkpoint when it is run again."""
    return current_runtime().store.jobs.job(job_id).state is JobState.FAILED


def can_go_on(job_id: str) -> bool:
    """Return whether a job, or a sweep, that has ended goes on when it is run again, with a larger limit if need be."""
    job = current_runtime().store.jobs.job(job_id)
    is_stopped = job.state is JobState.STOPPED
    return job.state is JobState.FAILED or (is_stopped and (job.kind is JobKind.SWEEP or bool(stopping_limit(job))))


def how_to_go_on(job_id: str) -> str:
    """Return the line on a job that a limit has stopped; empty for any other."""
    return how_it_goes_on(current_runtime().store.jobs.job(job_id))


def ended_result(job_id: str) -> dict[str, Any] | None:
    """Return the result of a job whose work is done, or None while it is not; one that failed may go on.

    Raises
    ------
    JobFailed
        If updates of tasks are missing from the model that it saved.
    """
    job = current_runtime().store.jobs.job(job_id)
    if job.state in (JobState.FINISHED, JobState.STOPPED):
        return dict(job.result or {})
    return saved_result(job_id)


def ticking_jobs(job_id: str | None = None) -> list[str]:
    """Return the jobs that need ticks: open ones, and ended ones that hold machines or have hours to book.

    With `job_id`, that one if it is among them.
    """
    store = current_runtime().store
    jobs = store.jobs.list_jobs() if job_id is None else [store.jobs.job(job_id)]
    return [job.job_id for job in jobs if not job.state.terminal or not _settled(job.job_id)]


def _settled(job_id: str) -> bool:
    store = current_runtime().store
    settled, job = store.jobs.last_observation(job_id, ObservationKind.SETTLED), store.jobs.job(job_id)
    # A job that failed, and went on, was settled in its first life, too.
    is_settled = settled is not None and job.ended_at_s is not None and settled.at_s >= job.ended_at_s
    return is_settled and not store.purchases.allocations(job_id, alive=True)


def settle_job(job_id: str, booked_until_s: int, *, lacks_prices: bool = False) -> None:
    """Record that an ended job holds no machine, has no open order, and all its hours are booked.

    Parameters
    ----------
    booked_until_s : market time up to which its ledger was booked. An end that lies later, by the market's clock, is
        not booked yet.
    lacks_prices : whether hours are booked without their price: that is waited for, for a day.
    """
    store = current_runtime().store
    open_orders = [
        intent for intent in store.purchases.intents(job_id, [IntentState.PLANNED]) if intent.kind == "acquire"
    ]
    if not store.jobs.job(job_id).state.terminal or open_orders:
        return
    ends_s = [life.ended_at_s for record in store.purchases.allocations(job_id) for life in record.lives]
    final_s = booked_until_s - (FINAL_S if lacks_prices else 0)
    if all(at_s is not None and at_s <= final_s for at_s in ends_s):
        store.jobs.observe(job_id, current_runtime().clock.now_s(), ObservationKind.SETTLED, {})


def training_begun(job_id: str, begun_at_s: float = 0.0) -> bool:
    """Return whether the job's training was started: before that, more machines are of no use.

    Parameters
    ----------
    begun_at_s : when the job was begun, or begun again; a start of before does not count.
    """
    last = current_runtime().store.jobs.last_observation(job_id, ObservationKind.TRAINING_BEGUN)
    return last is not None and last.at_s >= begun_at_s
