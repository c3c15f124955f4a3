"""The flow of the reaper: terminate machines that carry our tags and that nothing will end."""

from functools import partial

from prefect import flow

from proteus_spot.flows.allocation_tick import tick_job
from proteus_spot.tasks.event_feed import emit_orphans
from proteus_spot.tasks.job_records import is_known
from proteus_spot.tasks.market.listed_machines import terminate
from proteus_spot.tasks.market.reaping import enter, orphans
from proteus_spot.tasks.run_labels import label_run


@flow(name="reap")
async def reap() -> list[str]:
    """Terminate the orphans; return their instance ids.

    Orphans of a recorded job are entered in its journal before and after they end, so that its ledger includes their
    cost. A job whose records fail stops neither that nor the end of any machine.
    """
    ended: list[str] = []
    failed: list[Exception] = []
    found = orphans()
    for job_id, instance_ids in sorted(found.items()):
        emit_orphans(job_id, instance_ids)
        for step in (partial(enter, job_id), partial(terminate, instance_ids), partial(_book, job_id)):
            try:
                step()
            except Exception as error:  # noqa: BLE001 - raised below, when every machine was seen to
                failed.append(error)
        ended += instance_ids
    label_run(f"ended {len(ended)} orphans" if ended else "no orphan", found)
    if failed:
        raise failed[0] if len(failed) == 1 else ExceptionGroup("the reaper met several errors", failed)
    return ended


def _book(job_id: str) -> None:
    if is_known(job_id):
        tick_job(job_id)
