"""Claim on a job, so that one tick of it runs at a time; a dead process cannot hold it for long. What became of it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.masking import masked
from proteus_spot.infra.state.records import ObservationKind, StoreError
from proteus_spot.tasks.job_records import is_paid_by_hour
from proteus_spot.tasks.market.purchases.sending import PurchaseBlocked
from proteus_spot.tasks.task_runtime import current_runtime

#: Name of the claim of a late tick; it is not released.
_LATE = "late-tick"


@contextmanager
def claim_tick(job_id: str, patience_s: float = 0.0) -> Iterator[bool]:
    """Claim the job's tick; yield whether it is ours.

    The claim expires in under two ticks, so that a process that died holding it does not block others for long.

    Parameters
    ----------
    patience_s : market seconds to wait for another process to finish.
    """
    runtime = current_runtime()
    name, holder = f"tick/{job_id}", uuid4().hex
    ttl_s = 1.5 * runtime.settings.tick_s / runtime.clock.scale
    deadline_s = runtime.clock.now_s() + patience_s
    while not (mine := runtime.store.claims.claim(name, holder, ttl_s)):
        if runtime.clock.now_s() >= deadline_s:
            break
        runtime.clock.wait_until(runtime.clock.now_s() + 0.1 * runtime.clock.scale)
    try:
        yield mine
    finally:
        if mine:
            runtime.store.claims.release(name, holder)


def note_tick(job_id: str, error: Exception | None = None) -> None:
    """Record why a tick of the job failed, for the list of jobs, or that it did not; only what differs from before."""
    runtime = current_runtime()
    failed = ""
    if error is not None:
        name = "" if isinstance(error, ProteusError) else f"{type(error).__name__}: "
        failed = masked(name + " ".join(str(error).split()))
    with suppress(StoreError):  # then the database is what fails
        last = runtime.store.jobs.last_observation(job_id, ObservationKind.TICK)
        if failed != ("" if last is None else last.payload["failed"]):
            about = {"failed": failed, "is_purchase": isinstance(error, PurchaseBlocked)}
            runtime.store.jobs.observe(job_id, runtime.clock.now_s(), ObservationKind.TICK, about)


def is_overtaken() -> bool:
    """Whether this run was scheduled for a decision point that a later one has overtaken.

    After an outage all missed runs start at once, and one of them has something to decide: the first that gets to it,
    because a decision is about now, whatever the schedule is. The claim on being that one lasts half a period, so
    that where every run starts late, by however much, each still makes its decision. An unscheduled run is never
    overtaken.
    """
    from prefect.runtime import deployment, flow_run

    if not flow_run.id or not deployment.id:
        return False
    scheduled = flow_run.scheduled_start_time
    if scheduled is None:
        return False
    runtime = current_runtime()
    behind_s = SystemClock().now_s() - float(scheduled.timestamp())
    if behind_s <= runtime.settings.tick_s:
        return False
    return not runtime.store.claims.claim(_LATE, uuid4().hex, runtime.settings.tick_s / 2 / runtime.clock.scale)


def next_tick_s() -> float:
    """Return the market time of the next decision point: ticks fall on whole multiples of their period."""
    period_s = current_runtime().settings.tick_s
    return (current_runtime().clock.now_s() // period_s + 1) * period_s


def next_hour_end_s(job_id: str) -> float | None:
    """Return when the next hour of an allocation must be decided on, or None when the job holds nothing.

    If an ended job pays by the second, that is now.
    """
    runtime = current_runtime()
    now_s = runtime.now_s()
    held = runtime.store.purchases.allocations(job_id, alive=True)
    lead_s = runtime.settings.renewal_lead_s
    ends = [record.allocation.hour_ends_at_s(now_s) - lead_s for record in held]
    if ends and runtime.store.jobs.job(job_id).state.terminal and not is_paid_by_hour(job_id):
        return now_s + 1
    return max(min(ends), now_s + 1) if ends else None


def time_to_let_go(before_s: float) -> bool:
    """Whether what must end before `before_s` has to be released now, because the next tick might come too late."""
    return bool(before_s - current_runtime().clock.now_s() <= 1.5 * current_runtime().settings.tick_s)


def drain_s() -> float:
    """Return the real seconds for a machine to hand its work over before it is released: a quarter of a tick."""
    return min(current_runtime().settings.tick_s / 4 / current_runtime().clock.scale, 30.0)
