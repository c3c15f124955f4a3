"""The leases of a job's machines: every tick extends them, and records the alarms of machines whose leases end."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from proteus_spot.bidding.market.model import Tier
from proteus_spot.infra.state.records import AllocationRecord, ObservationKind
from proteus_spot.infra.storage.alarms import read_alarms, remove_alarm
from proteus_spot.infra.storage.blobs import BlobError
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.storage.leases import Lease, utc, write_leases
from proteus_spot.tasks.job_queues import next_to_take_over
from proteus_spot.tasks.job_records import is_paid_by_hour
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)


def leases_of(
    records: Sequence[AllocationRecord],
    now_s: float,
    lease_s: float,
    paid_until_s: Mapping[str, float] | None,
    webhook: str | None = None,
    latest_s: Callable[[AllocationRecord], float] | None = None,
) -> dict[str, Lease]:
    """Return the lease of every living machine of `records`, by instance id.

    Parameters
    ----------
    now_s, lease_s : market time, and the seconds to which a lease of an open job is extended from then on.
    paid_until_s : of an ended job, the end of the paid time by allocation; None for an open job.
    latest_s : time by which the leases of an allocation of an open job end at the latest; None: there is none.
    webhook : URL for alarms; the first living machine of the reliable tier gets it, so that one of them posts. Where
        that tier has none, as in a sweep, it is the first that lives.
    """
    leases, reason = {}, f"a tick last extended it at {utc(now_s)}"
    living = [record for record in records if record.living_ids]
    posting = next((record for record in living if record.allocation.tier is Tier.RELIABLE), next(iter(living), None))
    for record in records:
        works_for = "" if record.bought_for is None else record.job_id
        for name in record.living_ids:
            if paid_until_s is not None:
                until_s = paid_until_s[record.allocation_id]
                leases[name] = Lease(until_s, record.order_id, "its job has ended", is_last=True, job=works_for)
                continue
            until_s = now_s + lease_s
            is_cut = latest_s is not None and latest_s(record) < until_s
            if latest_s is not None and is_cut:
                until_s = float(latest_s(record))
            posts = record is posting
            why = f"the job's budget lasts no longer; {reason}" if is_cut else reason
            posted = webhook if posts else None
            leases[name] = Lease(until_s, record.order_id, why, is_cut=is_cut, webhook=posted, job=works_for)
            webhook = None if posts else webhook
    return leases


@runtime_task("extend leases")
def extend_leases(job_id: str, latest_s: Callable[[AllocationRecord], float] | None = None) -> str:
    """Extend the leases of the machines that the book holds; call it after the book was compared with the market.

    An open job's are extended to `lease_minutes` from now, and so are those of an ended one that the next job of its
    queue will take over; another ended job's to the end of the hours that were paid when it ended. The alarms of
    machines are recorded; where they cannot be read, the next tick records them.

    Parameters
    ----------
    latest_s : time by which the leases of an allocation end at the latest, since the job's budget lasts no longer.

    Returns
    -------
    str
        One line if leases cannot be written, else ''. Those that were written before still hold, but nothing may be
        bought: a new machine would end with its first lease.
    """
    runtime = current_runtime()
    settings, job = runtime.settings, runtime.store.jobs.job(job_id)
    # Before the records are read: what is handed over in between is no longer among them.
    ends = job.state.terminal and next_to_take_over(runtime.store, job) is None
    records = runtime.store.purchases.allocations(job_id, alive=True)
    paid_until_s = None
    if ends:
        ended_at_s = int(runtime.clock.now_s() if job.ended_at_s is None else job.ended_at_s)
        by_hour = is_paid_by_hour(job_id)
        paid_until_s = {
            record.allocation_id: float(record.allocation.hour_ends_at_s(ended_at_s) if by_hour else ended_at_s)
            for record in records
        }
    webhook = None if settings.alarm_webhook is None else settings.alarm_webhook.get_secret_value()
    leases = leases_of(records, runtime.now_s(), settings.lease_minutes * 60, paid_until_s, webhook, latest_s)
    errors = list(write_leases(runtime.blobs, job_id, leases, runtime.store.purchases.buyers(job_id)).values())
    if not leases and paid_until_s is None:
        errors = _unwritable(job_id)  # it may hold no machine because no lease could be written
    try:
        _record_alarms(job_id)
    except BlobError as error:
        _log.error("job %s: the alarms of its machines cannot be read: %s", job_id, error)
    if not errors:
        return ""
    of_how_many = f"{len(errors)} of {len(leases)} leases" if leases else "leases"
    return (
        f"job {job_id}: {of_how_many} cannot be written, so nothing is bought: {errors[0]}; let the worker write there"
    )


def _unwritable(job_id: str) -> list[BlobError]:
    """Return the error of writing next to the job's leases; none if it can be done."""
    runtime = current_runtime()
    try:
        runtime.blobs.write_json(JobPaths(job_id).lease_check, {"at_s": runtime.now_s()})
    except BlobError as error:
        return [error]
    return []


def _record_alarms(job_id: str) -> None:
    """Record the alarms of the job's machines for its report, and remove them from the bucket."""
    runtime = current_runtime()
    for alarm in read_alarms(runtime.blobs, job_id):
        _log.warning("job %s: machine %s: %s", job_id, alarm.instance_id, alarm.reason)
        runtime.store.jobs.observe(job_id, alarm.at_s, ObservationKind.ALARM, asdict(alarm))
        remove_alarm(runtime.blobs, job_id, alarm)
