"""The flow of the reaper: terminate machines that carry our tags and belong to no live order."""

from prefect import flow

from flows.allocation_tick import tick_job
from tasks.job_records import is_known
from tasks.market.instances import orphans, terminate


@flow(name="reap")
async def reap() -> list[str]:
    """Terminate the orphans; return their instance ids.

    Orphans of a recorded job are entered in its journal as they end, so that its ledger includes their cost.
    """
    ended = []
    for job_id, instance_ids in sorted(orphans().items()):
        terminate(instance_ids)
        if is_known(job_id):
            tick_job(job_id)
        ended += instance_ids
    return ended
