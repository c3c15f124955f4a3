"""An eviction notice as the reliable tier reports it; the payload of the event `spot.interruption-notice`."""

from pydantic import BaseModel, ConfigDict, Field

from tasks.spec import JOB_ID_PATTERN


class EvictionNotice(BaseModel):
    """The market takes an allocation of a job at `takes_at_s` (market time)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: str = Field(pattern=JOB_ID_PATTERN, title="Job")
    allocation_id: str = Field(min_length=1, title="Allocation")
    takes_at_s: int = Field(title="Taken at", description="Market time, seconds since 1970.")
    patience_s: float = Field(60.0, ge=0, title="Wait for a running tick this long", description="Market seconds.")
