"""The flow at the end of an allocation's billing hour, scheduled by the tick: decide on its next hour.

One run per (allocation, hour). A late, duplicate or missing run does no harm: it is one decision point of the job among
those of the ticks, and the engine decides each hour once.
"""

from prefect import flow

from proteus_spot.flows.allocation_tick import tick_job
from proteus_spot.tasks.market.renewals import HourEnd
from proteus_spot.tasks.run_labels import label_run


@flow(name="renew-hour", validate_parameters=True)
async def renew_hour(hour_end: HourEnd) -> str:
    """Decide whether to keep the allocation for its next hour; return a summary of the actions."""
    outcome = tick_job(hour_end.job_id, patience_s=hour_end.patience_s)
    label_run(f"{hour_end.job_id}: {hour_end.name}: {outcome}", [hour_end.job_id])
    return outcome
