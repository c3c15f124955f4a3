"""Leases: the market time until which a machine may live, one blob per machine.

A machine's first lease is `FIRST_S` from its launch; the machine assumes it without a blob. Each tick that finds the
machine in the book writes ``jobs/<id>/leases/<instance>.json`` again (`tasks.job_leases`), and the machine obeys
(`infra.nodes.lease_guard`). A machine looks there under the job that it was bought for, also when another one has it.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Self

from proteus_spot.infra.storage.blobs import BlobError, Blobs
from proteus_spot.infra.storage.job_paths import JobPaths

_SCHEMA = 1
#: Market seconds from the launch of a machine to the end of its first lease.
FIRST_S = 900.0
#: Market seconds before the end of a lease at which the machine raises the alarm and its job is checkpointed.
ENDING_S = 300.0
#: The year 3000.
_LATEST_S = 32_503_680_000.0
#: Maximum number of leases written at a time.
_WRITERS = 16


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a machine may live.

    Parameters
    ----------
    until_s : market time at which the machine ends itself, in seconds since the Unix epoch.
    order : the order that bought the machine; empty in a first lease.
    reason : why the lease ends then, for people.
    is_last : whether no tick will extend it, because the job has ended: its end is no cause for an alarm.
    is_cut : whether the job's budget lasts no longer, so that a tick may not extend it: the machine raises no alarm
        before it ends.
    webhook : URL that the machine posts its alarm to. One machine of a job has it.
    job : the job that the machine works for now; empty: the one that it was bought for, in whose leases it looks.
    """

    until_s: float
    order: str = ""
    reason: str = ""
    is_last: bool = False
    is_cut: bool = False
    webhook: str | None = None
    job: str = ""

    @classmethod
    def from_json(cls, record: Any) -> Self:
        """Return the lease of a JSON record; ValueError if it is none, or of another schema."""
        try:
            if record["schema"] != _SCHEMA:
                raise ValueError(f"schema {record['schema']!r} is not {_SCHEMA}")
            webhook = record.get("webhook")
            until_s = float(record["until_s"])
            if not 0 <= until_s < _LATEST_S:
                raise ValueError(f"until_s {until_s} is not a time")
            return cls(
                until_s=until_s,
                order=str(record["order"]),
                reason=str(record["reason"]),
                is_last=record.get("is_last") is True,
                is_cut=record.get("is_cut") is True,
                webhook=None if webhook is None else str(webhook),
                job=str(record.get("job", "")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"is not a lease: {error!r}") from None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON record of the lease."""
        return {"schema": _SCHEMA, **asdict(self)}


def read_lease(blobs: Blobs, job_id: str, instance_id: str) -> Lease:
    """Return the lease of a machine that was bought for a job.

    Raises
    ------
    BlobMissing
        If no tick has extended the first lease.
    BlobError
        If the lease cannot be read.
    """
    name = JobPaths(job_id).lease(instance_id)
    try:
        return Lease.from_json(blobs.read_json(name))
    except ValueError as error:
        raise BlobError(f"{blobs.url_of(name)}: {error}") from None


def write_leases(
    blobs: Blobs, job_id: str, leases: Mapping[str, Lease], buyers: Mapping[str, str] = MappingProxyType({})
) -> dict[str, BlobError]:
    """Write the leases of machines of a job, by instance id, at the same time; return the errors by instance id.

    Parameters
    ----------
    buyers : the job that a machine was bought for, by instance id, where that is another one.
    """

    def write(instance_id: str) -> BlobError | None:
        name = JobPaths(buyers.get(instance_id, job_id)).lease(instance_id)
        try:
            blobs.write_json(name, leases[instance_id].to_json())
        except BlobError as error:
            return error
        return None

    if not leases:
        return {}
    with ThreadPoolExecutor(min(len(leases), _WRITERS), thread_name_prefix="leases") as pool:
        errors = dict(zip(leases, pool.map(write, leases), strict=True))
    return {instance_id: error for instance_id, error in errors.items() if error is not None}


def utc(at_s: float) -> str:
    """Return a time as people read it."""
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
