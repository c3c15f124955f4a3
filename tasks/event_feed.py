"""Events of jobs in Prefect's event feed; automations notify of them (`flows.automations`).

The same fact, reported again by a rerun, is the same event: its id follows from what it is about.
"""

from enum import StrEnum
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from proteus_spot.bidding.market.money import Micros, to_dollars
from proteus_spot.infra.state.records import Job, JobState

#: Prefix of the resource that a job's events are about.
RESOURCE = "proteus.job."
#: Resource that the events of ticks are about.
TICKS = "proteus.ticks"


class JobEvent(StrEnum):
    """Names of the events."""

    FINISHED = "proteus.job.finished"
    STOPPED = "proteus.job.stopped"
    FAILED = "proteus.job.failed"
    BUDGET = "proteus.job.budget-80"
    TICKED = "proteus.tick"
    ORPHAN = "proteus.orphan"
    DEADLINE = "proteus.job.deadline-at-risk"
    LAUNCH = "proteus.job.launch-failed"


_ENDS = {
    JobState.FINISHED: JobEvent.FINISHED,
    JobState.STOPPED: JobEvent.STOPPED,
    JobState.FAILED: JobEvent.FAILED,
}
#: Share of a job's budget at which `JobEvent.BUDGET` is emitted.
BUDGET_SHARE = 0.8


def emit_end(job: Job) -> None:
    """Emit how a job ended; nothing while it is open."""
    event = _ENDS.get(job.state)
    if event is not None:
        why = job.failure or (job.result or {}).get("stopped") or ""
        _emit(job, event, f"{job.ended_at_s}", {"state": str(job.state), "why": why})


def emit_budget(job: Job, spent: Micros, budget: Micros) -> None:
    """Emit that a job has spent `BUDGET_SHARE` of its budget, if it has."""
    if spent >= BUDGET_SHARE * budget:
        payload = {"spent_usd": to_dollars(spent), "budget_usd": to_dollars(budget)}
        _emit(job, JobEvent.BUDGET, f"{budget}", payload)


def emit_deadline(job: Job, deadline_s: int, clocks_left: int) -> None:
    """Emit that spot machines alone can no longer finish a job by its deadline."""
    _emit(job, JobEvent.DEADLINE, f"{deadline_s}", {"deadline_s": deadline_s, "clocks_left": clocks_left})


def emit_failed_launch(job: Job, market: str, why: str, now_s: float) -> None:
    """Emit that the account or the settings let nothing be bought in a market; at most once an hour for one reason."""
    _emit(job, JobEvent.LAUNCH, f"{market}/{why}/{now_s // 3600:.0f}", {"market": market, "why": why})


def emit_tick(jobs: list[str]) -> None:
    """Emit that a tick has decided: the alarm "no tick" waits for these."""
    _send(JobEvent.TICKED, TICKS, "ticks", {"jobs": jobs})


def emit_orphans(job_id: str, instance_ids: list[str]) -> None:
    """Emit that machines were found that no job needs."""
    names = sorted(instance_ids)
    event_id = uuid5(NAMESPACE_URL, f"{JobEvent.ORPHAN}/{','.join(names)}")
    _send(JobEvent.ORPHAN, f"{RESOURCE}{job_id or 'unknown'}", job_id, {"instances": names}, event_id)


def _emit(job: Job, event: JobEvent, what: str, payload: dict[str, Any]) -> None:
    event_id = uuid5(NAMESPACE_URL, f"{event}/{job.job_id}/{job.created_at_s}/{what}")
    _send(event, f"{RESOURCE}{job.job_id}", job.job_id, {"job_id": job.job_id, **payload}, event_id)


def _send(event: JobEvent, resource: str, name: str, payload: dict[str, Any], event_id: UUID | None = None) -> None:
    from prefect.events import emit_event
    from prefect.settings import PREFECT_API_URL

    if PREFECT_API_URL.value() is None:
        return  # Prefect would start a server for it
    labels = {"prefect.resource.id": resource, "prefect.resource.name": name}
    emit_event(event, resource=labels, payload=payload, id=event_id)
