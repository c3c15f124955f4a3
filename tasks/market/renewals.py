"""Schedule of the decision on an allocation's next hour for the time at which it is due."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from pydantic import BaseModel, ConfigDict, Field

from proteus_spot.bidding.market.model import Tier
from proteus_spot.infra.clock import SystemClock
from proteus_spot.studies.form_fields import JOB_ID_PATTERN
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_DEPLOYMENT = "renew-hour/default"
#: Number of periods before a decision whose ticks book it. One suffices; the second makes up for a lost tick.
_BOOKING_TICKS = 2


class HourEnd(BaseModel):
    """The hour of an allocation that is about to end."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job_id: str = Field(pattern=JOB_ID_PATTERN, title="Job")
    allocation_id: str = Field(min_length=1, title="Allocation")
    hour: int = Field(ge=0, title="Hour", description="Index of the hour that ends; 0 is the first.")
    patience_s: float = Field(60.0, ge=0, title="Wait for a running tick this long", description="Market seconds.")

    @property
    def name(self) -> str:
        """Name and idempotency key of a booking: one run per (allocation, hour)."""
        return f"renew-{self.allocation_id}-h{self.hour}"


@dataclass(frozen=True, slots=True)
class RenewalBooking:
    """An hour's end, and the market time at which it is to be decided on."""

    hour_end: HourEnd
    at_s: int


def due_bookings(job_id: str, now_s: float) -> list[RenewalBooking]:
    """Return the hour's end of each spot allocation on which a decision is due soon, `renewal_lead_s` before it.

    Soon is within two ticks: an earlier booking would be a call of Prefect for each allocation at every tick.
    """
    runtime = current_runtime()
    lead_s, soon_s = runtime.settings.renewal_lead_s, now_s + _BOOKING_TICKS * runtime.settings.tick_s
    held = [record.allocation for record in runtime.store.purchases.allocations(job_id, alive=True)]
    bookings = [
        RenewalBooking(
            HourEnd(job_id=job_id, allocation_id=a.allocation_id, hour=a.hour_index(int(now_s))),
            a.hour_ends_at_s(int(now_s)) - lead_s,
        )
        for a in held
        if a.tier is Tier.TRANSIENT
    ]
    return [booking for booking in bookings if now_s < booking.at_s <= soon_s]


@runtime_task("book renewals")
def book_renewals(job_id: str) -> Sequence[str]:
    """Book a run of `renew-hour` for every hour's end on which a decision is due soon; return their names.

    The same (allocation, hour) books the same run, however often this is called. If the deployment is not
    registered nothing is booked, and the ticks decide; so too where market time is not real time, by which Prefect
    would start the run.
    """
    runtime = current_runtime()
    if runtime.clock.scale != 1:
        return []
    booked = []
    for booking in due_bookings(job_id, runtime.clock.now_s()):
        real_s = SystemClock().now_s() + (booking.at_s - runtime.clock.now_s()) / runtime.clock.scale
        try:
            run_deployment(
                _DEPLOYMENT,
                parameters={"hour_end": booking.hour_end.model_dump()},
                scheduled_time=datetime.fromtimestamp(real_s, UTC),
                idempotency_key=booking.hour_end.name,
                flow_run_name=booking.hour_end.name,
                timeout=0,
                as_subflow=False,
            )
        except ObjectNotFound:
            return []
        booked.append(booking.hour_end.name)
    return booked
