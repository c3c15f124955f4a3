"""Eviction notices that the reliable tier reports; the payload of the event `spot.interruption-notice`."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.ec2.notice_poller import notice_event
from proteus_spot.infra.nodes.controller_client import NO_LOSSES, ControllerClient, ControllerUnreachable
from proteus_spot.infra.state.records import UnknownRecord
from proteus_spot.studies.form_fields import JOB_ID_PATTERN
from proteus_spot.tasks.job_records import ticking_jobs
from proteus_spot.tasks.task_runtime import current_runtime

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

    @property
    def taken(self) -> str:
        """The machine that is taken, or the allocation of which all are."""
        return self.instance_id or self.allocation_id


def events_url() -> str | None:
    """Return the Prefect API to which machines report notices; None if this process does it for them.

    A machine holds no secret, for many can read its user-data. So where the server requires authentication, machines
    report to their controller alone, and the flow that follows the training reports what the controller has received.
    """
    from prefect.settings import get_current_settings

    api = get_current_settings().api
    return None if api.key is not None or api.auth_string is not None else current_runtime().settings.events_url


def notices_in(status: Mapping[str, Any]) -> list[EvictionNotice]:
    """Return the notices in the status of a controller, the first of each machine."""
    payloads: list[Mapping[str, Any]] = [notice["about"] for notice in status["notices"] if notice["about"]]
    first = {(about["allocation_id"], about.get("instance_id")): about for about in reversed(payloads)}
    return [EvictionNotice.model_validate(about) for about in reversed(first.values())]


def report_notice(notice: EvictionNotice) -> None:
    """Emit the event that starts `handle-eviction`, with the credentials of this process."""
    from prefect.events import emit_event

    event = notice_event(notice.model_dump(exclude={"patience_s"}))
    emit_event(event["event"], resource=event["resource"], payload=event["payload"], id=UUID(event["id"]))


def await_burst() -> None:
    """Wait until the scheduled start of this run, the end of a burst: workers start runs early."""
    from prefect.runtime import flow_run

    scheduled = flow_run.scheduled_start_time if flow_run.id else None
    if scheduled is not None:
        SystemClock().wait_until(float(scheduled.timestamp()))


def burst_of(notice: EvictionNotice) -> dict[str, dict[str, int]]:
    """Return when the market takes the noticed machines of each job, by job and by machine (or allocation).

    Of a burst, only one event starts a run; so the controllers of all jobs are asked, and `notice` is added.
    """
    now_s = current_runtime().clock.now_s()
    found: dict[str, dict[str, int]] = {notice.job_id: {}}
    for job_id in sorted({notice.job_id, *ticking_jobs()}):
        for each in seen_notices(job_id):
            if each.takes_at_s <= now_s:
                continue  # an old one
            found.setdefault(job_id, {})[each.taken] = each.takes_at_s
    found[notice.job_id].setdefault(notice.taken, notice.takes_at_s)
    return found


def seen_notices(job_id: str) -> list[EvictionNotice]:
    """Return the notices that the job's controller has received, the first of each machine; none without an answer.

    An ended job has none: its controller is gone, or going.
    At scale 1 the controller's event starts the handler; at a larger scale the caller polls with this function.
    """
    try:
        job = current_runtime().store.jobs.job(job_id)
        address = None if job.state.terminal else job.controller_address
        status = ControllerClient(address, _CALL_S).status(NO_LOSSES) if address else {"notices": []}
    except (ControllerUnreachable, UnknownRecord):
        return []
    return notices_in(status)
