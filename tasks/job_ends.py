"""Requests to end a job: a state in the database, which ticks carry out, whichever process asked; how jobs ended."""

import re

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.infra.state.records import Job, JobState
from proteus_spot.studies.times import minute, parse_deadline
from proteus_spot.tasks.task_runtime import current_runtime

#: Why a job was stopped that had reached its budget; the field that a larger one is written to.
BUDGET, BUDGET_FIELD = "budget", "budget_usd"
_STANDSTILL = re.compile(r"no progress: clock .* was the last for (\d+) minutes")


def standstill(clock: int, minutes: float) -> str:
    """Return why a job was stopped whose clock stood still for so long."""
    return f"no progress: clock {clock} was the last for {minutes:.0f} minutes"


def standstill_minutes(why: str) -> float | None:
    """Return the minutes of a reason that `standstill` has written; None for any other reason."""
    found = _STANDSTILL.fullmatch(why)
    return None if found is None else float(found[1])


def stopping_limit(job: Job) -> str:
    """Return the name of the limit that has stopped a job: a larger one lets it go on. Empty if none has."""
    if job.state is not JobState.STOPPED or job.stop_why is None:
        return ""
    if job.stop_why == BUDGET:
        return BUDGET_FIELD
    return "PROTEUS_PROGRESS_MINUTES" if standstill_minutes(job.stop_why) is not None else ""


def how_it_goes_on(job: Job) -> str:
    """Return the line on a job or sweep that a limit has stopped; empty for any other."""
    limit = stopping_limit(job)
    return f"{job.kind} {job.job_id} was stopped: {job.stop_why}; submit it with a larger {limit}" if limit else ""


def request_stop(job_id: str, why: str, *, now: bool = False, by: str = "") -> Job:
    """Write that the job is to stop, from whatever state it is in; return it.

    Each tick of a stopping job buys and renews nothing and brings it nearer to its end: the controller saves the model
    after the clock under way, and the job is closed as `stopped` with `why`. Repeating the request changes nothing; a
    job that has ended stays as it is.

    Parameters
    ----------
    why : the reason, in a few words: the result's `stopped`.
    now : end the machines at once, with a checkpoint if the controller answers, instead of saving the model.
    by : what asked, in a few words.

    Raises
    ------
    UnknownRecord
        If there is no such job.
    """
    runtime = current_runtime()
    return runtime.store.jobs.request_stop(job_id, why, by, runtime.clock.now_s(), at_once=now)


def is_active(job_id: str) -> bool:
    """Return whether machines may be bought for the job: it has not ended, and is not to stop."""
    state = current_runtime().store.jobs.job(job_id).state
    return not state.terminal and state is not JobState.STOPPING


def stop_urgency(job_id: str) -> int:
    """Return 0 while the job goes on, 1 when it is to stop, 2 when its machines are to end at once."""
    job = current_runtime().store.jobs.job(job_id)
    return 2 if job.stop_now else int(job.stop_at_s is not None)


def why_ended(job: Job) -> str:
    """Return why the job failed or was stopped, or is to stop; empty for one that goes on or has finished."""
    if job.state is JobState.FINISHED:
        return ""
    unsaved = (job.result or {}).get("without_model")
    return "; ".join(filter(None, (job.failure or job.stop_why or (job.result or {}).get("stopped"), unsaved)))


def deadline_s(job: Job) -> int | None:
    """Return the deadline of a job, market seconds since the epoch; None without one."""
    written = job.spec.get("deadline")
    return None if written is None else parse_deadline(str(written)).time_s(job.created_at_s)


def late_s(job: Job, now_s: float) -> float | None:
    """Return the market seconds for which the job's work lasted past its deadline; None without a deadline."""
    ends_s, ended_s = deadline_s(job), now_s if job.ended_at_s is None else job.ended_at_s
    return None if ends_s is None else max(ended_s - ends_s, 0.0)


def lateness(job: Job, now_s: float) -> str:
    """Return a line on a job that missed its deadline; empty for any other."""
    ends_s, late = deadline_s(job), late_s(job, now_s)
    if ends_s is None or not late:
        return ""
    hours = f"{late / HOUR_S:.2f} h"
    if job.ended_at_s is None:
        return f"late: its deadline, {minute(ends_s)} UTC, passed {hours} ago"
    return f"late by {hours}: its deadline was {minute(ends_s)} UTC"
