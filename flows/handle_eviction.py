"""The flow of eviction notices seen on machines: record them, and decide at once.

The data plane needs no flow: the controller drains the machine within the notice. This is the control plane's part. One
run handles a burst: the trigger in prefect.yaml starts it for the first event, and delays it until the burst is over.
"""

from prefect import flow

from proteus_spot.flows.allocation_tick import tick_each
from proteus_spot.tasks.market.eviction_notices import EvictionNotice, await_burst, burst_of


@flow(name="handle-eviction", validate_parameters=True)
async def handle_eviction(notice: EvictionNotice) -> dict[str, str]:
    """Reconcile the job of `notice`, and every job that has received notices since; return the actions by job."""
    await_burst()
    return tick_each(burst_of(notice), patience_s=notice.patience_s)
