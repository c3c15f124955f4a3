"""Eviction notices that the reliable tier reports; the payload of the event `spot.interruption-notice`."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from infra.nodes.controller_client import NO_LOSSES, ControllerClient, ControllerUnreachable
from infra.state.records import UnknownRecord
from tasks.job_spec import JOB_ID_PATTERN
from tasks.runtime import current_runtime

#: Real seconds for the controller to return its notices; it is polled several times a second.
_CALL_S = 1.0


class EvictionNotice(BaseModel):
    """The market takes a machine of an allocation of a job at `takes_at_s` (market time), or all of the allocation."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    job_id: str = Field(pattern=JOB_ID_PATTERN, title="Job")
    allocation_id: str = Field(min_length=1, title="Allocation")
    instance_id: str = Field("", title="Machine", description="Empty: all machines of the allocation.")
    takes_at_s: int = Field(title="Taken at", description="Market time, seconds since 1970.")
    patience_s: float = Field(60.0, ge=0, title="Wait for a running tick this long", description="Market seconds.")


def seen_notices(job_id: str) -> list[EvictionNotice]:
    """Return the notices that the job's controller has received, the first of each allocation; none without an answer.

    An ended job has none: its controller is gone, or going.
    At scale 1 the controller's event starts the handler; at a larger scale the caller polls with this function.
    """
    try:
        job = current_runtime().store.job(job_id)
        address = None if job.state.terminal else job.controller_address
        status = ControllerClient(address, _CALL_S).status(NO_LOSSES) if address else {"notices": []}
    except (ControllerUnreachable, UnknownRecord):
        return []
    payloads: list[Mapping[str, Any]] = [notice["about"] for notice in status["notices"] if notice["about"]]
    first = {about["allocation_id"]: about for about in reversed(payloads)}
    return [EvictionNotice.model_validate(about) for about in first.values()]
