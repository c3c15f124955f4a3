"""One tick of a job at a time, without a lock that a dead process could keep."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from tasks.runtime import world


@contextmanager
def claimed(job_id: str, patience_s: float = 0.0) -> Iterator[bool]:
    """Claim the job's tick; yield whether it is ours.

    The claim ends by itself in under two ticks, so that a process that died holding it stops nobody for long.

    Parameters
    ----------
    patience_s : market seconds to wait for somebody else to finish.
    """
    here = world()
    name, holder = f"tick/{job_id}", uuid4().hex
    ttl_s = 1.5 * here.settings.tick_s
    deadline_s = here.clock.now_s() + patience_s
    while not (mine := here.store.claim(name, holder, here.clock.now_s(), ttl_s)):
        if here.clock.now_s() >= deadline_s:
            break
        here.clock.wait_until(here.clock.now_s() + 0.1 * here.clock.scale)
    try:
        yield mine
    finally:
        if mine:
            here.store.release(name, holder)
