"""An eviction notice was seen on a machine: take note of it, and decide anew at once.

The data plane needs no flow: the controller drains the machine within the notice. This is the control plane's half.
"""

from prefect import flow

from flows.allocation_tick import tick_job
from tasks.market.eviction_notices import EvictionNotice


@flow(name="handle-eviction", validate_parameters=True)
async def handle_eviction(notice: EvictionNotice) -> str:
    """Reconcile the job that `notice` is about; return what was done."""
    return tick_job(notice.job_id, {notice.allocation_id: notice.takes_at_s}, patience_s=notice.patience_s)
