"""The reaper: ends whatever is tagged ours and has no live order."""

from prefect import flow

from flows.allocation_tick import tick_job
from tasks.job_records import is_known
from tasks.market.instances import orphans, terminate


@flow(name="reap")
async def reap() -> list[str]:
    """End the orphans; return their instance ids.

    Those of a job that we know are entered in its book as they end, so that its ledger holds what they cost.
    """
    ended = []
    for job_id, instance_ids in sorted(orphans().items()):
        terminate(instance_ids)
        if is_known(job_id):
            tick_job(job_id)
        ended += instance_ids
    return ended
