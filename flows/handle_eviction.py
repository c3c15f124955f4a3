"""The flow of an eviction notice seen on a machine: record it, and decide at once.

The data plane needs no flow: the controller drains the machine within the notice. This is the control plane's part.
"""

from prefect import flow

from flows.allocation_tick import tick_job
from tasks.market.eviction_notices import EvictionNotice


@flow(name="handle-eviction", validate_parameters=True)
async def handle_eviction(notice: EvictionNotice) -> str:
    """Reconcile the job of `notice`; return a summary of the actions."""
    taken = notice.instance_id or notice.allocation_id
    return tick_job(notice.job_id, {taken: notice.takes_at_s}, patience_s=notice.patience_s)
