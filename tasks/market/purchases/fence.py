"""The fence of a job: of two copies of a state database, one ticks it, and the other stops before it buys.

Both have the job, its machines and its numbers of orders. Each tick, and each purchase, replaces the mark that this
database left in the fence by the next one. A database that finds there a mark of its own generation which it has not
written was restored from a backup, or copied: it begins a newer generation, and goes on with what the market lists.
Its orders have that generation in their ids, so no order of the one is taken for one of the other. The newest
generation has the job. One that finds a newer generation than its own stops.
"""

import logging
import platform
from uuid import uuid4

from proteus_spot.infra.errors import TickStopped
from proteus_spot.infra.storage.blobs import BlobError
from proteus_spot.infra.storage.fences import Fence, fences_of, read_fence, replace_fence
from proteus_spot.infra.storage.leases import utc
from proteus_spot.tasks.task_runtime import current_runtime

_log = logging.getLogger(__name__)
#: Maximum number of times that the fence is read while other processes write it.
_MOST_READS = 100


class Superseded(TickStopped):
    """Another copy of this state database ticks the job."""


def keep_fence(job_id: str) -> None:
    """Write the next mark of this database to the fence of a recorded job.

    Raises
    ------
    Superseded
        If a database of a newer generation has the job: one line with what to do.
    BlobError
        If the fence can be neither read nor written.
    """
    runtime = current_runtime()
    store, blobs, owner = runtime.store, runtime.blobs, runtime.owner
    for _ in range(_MOST_READS):
        ours = store.owner.fence_marks(job_id)
        found, content = read_fence(blobs, owner, job_id)
        if found is not None and found.generation > ours.generation:
            raise Superseded(
                f"job {job_id}: another copy of this state database, on {found.host}, has it; nothing is bought, "
                "extended or booked here. Stop this worker; if it is the other that must not go on, stop that one, and "
                f"remove {blobs.url_of(fences_of(owner))}"
            )
        if found is not None and found.generation == ours.generation and found.mark not in (ours.mark, ours.next_mark):
            if store.owner.fence_marks(job_id) == ours:  # else another process of this database has written it
                store.owner.begin_generation(ours.generation)
                _log.warning(
                    "job %s: %s has ticked it, too, with a copy of this state database, last at %s; this one goes on, "
                    "and the other stops",
                    job_id,
                    found.host,
                    utc(found.at_s),
                )
            continue
        if ours.next_mark is None or (found is not None and found.mark == ours.next_mark):
            store.owner.follow_mark(job_id, ours, uuid4().hex)
            continue
        fence = Fence(ours.generation, ours.next_mark, platform.node(), runtime.clock.now_s())
        if replace_fence(blobs, owner, job_id, content, fence):
            return
    raise BlobError(f"{blobs.url_of(fences_of(owner))}/{job_id}: other processes write it all the time")


def check_fence(job_id: str) -> None:
    """Do what `keep_fence` does at a tick; a bucket that fails is logged, because each purchase asks it again."""
    try:
        keep_fence(job_id)
    except BlobError as error:
        _log.error("job %s: whether another copy of this state database ticks it is not known: %s", job_id, error)


def has_fence(job_id: str) -> bool:
    """Return whether a tick of any database has written the fence of a job; `BlobError` if it cannot be read."""
    runtime = current_runtime()
    return bool(job_id) and read_fence(runtime.blobs, runtime.owner, job_id)[0] is not None


def holds_fence(job_id: str) -> bool:
    """Return whether this database has the job as far as the fence says; no tick has said anything of one without it.

    Raises
    ------
    BlobError
        If the fence cannot be read.
    """
    runtime = current_runtime()
    found, _ = read_fence(runtime.blobs, runtime.owner, job_id)
    ours = runtime.store.owner.fence_marks(job_id)
    return found is None or (found.generation == ours.generation and found.mark in (ours.mark, ours.next_mark))
