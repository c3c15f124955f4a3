"""The end of an allocation's billing hour, booked by the tick: decide on its next hour just in time.

One run per (allocation, hour). Late, doubled or missing, it does no harm: it makes a decision point of the job, and the
tick makes others; the engine decides each hour once.
"""

from prefect import flow

from flows.allocation_tick import tick_job
from tasks.market.renewals import HourEnd


@flow(name="renew-hour", validate_parameters=True)
async def renew_hour(hour_end: HourEnd) -> str:
    """Decide whether the allocation is kept for its next hour; return what was done."""
    return tick_job(hour_end.job_id, patience_s=hour_end.patience_s)
