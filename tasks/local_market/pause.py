"""Pause of jobs on this machine that end early: their state is kept, so that the same jobs resume from it.

A private market stands still until the job resumes: its machines boot again then, and no hour is paid twice. In a
shared market the machines are released, and the job buys others when it resumes.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from inspect import unwrap

from proteus_spot.bidding.market.money import usd
from proteus_spot.infra.nodes.controller_client import ControllerClient, ControllerUnreachable, wait_rendezvous
from proteus_spot.infra.state.records import JobKind, JobState
from proteus_spot.infra.storage.checkpoints import newest_clock
from proteus_spot.tasks.job_records import is_sweep, job_spec
from proteus_spot.tasks.market.bookkeeping import book_ledger
from proteus_spot.tasks.market.engine_journal import journal_of
from proteus_spot.tasks.supervision.machine_ends import end_machines
from proteus_spot.tasks.task_runtime import current_runtime
from proteus_spot.tasks.training.submission import submit

#: Real seconds to look for a controller, and for it to write a checkpoint.
_MEET_S = 0.5
_KEEP_S = 3.0

_log = logging.getLogger(__name__)


def pause(job_id: str, command: str, market_stays: bool) -> str:
    """Checkpoint the model, release what would cost money, book the costs; return one line on how to go on.

    Parameters
    ----------
    command : the command that resumes the job.
    market_stays : whether the market stands still until then, its machines with it.
    """
    runtime = current_runtime()
    job = runtime.store.jobs.find_job(job_id)
    if job is None:
        return f"nothing was bought; to begin again: {command}"
    sweeps = job.kind is JobKind.SWEEP
    clock = 0 if job.state.terminal or sweeps else _keep(job_id)
    if not market_stays or job.state is JobState.FAILED:
        unwrap(end_machines)(journal_of(job_id))
    unwrap(book_ledger)(job_id)
    spent, job = usd(runtime.store.purchases.spent(job_id)), runtime.store.jobs.job(job_id)
    if sweeps:
        says = "has ended" if job.state.terminal else "is paused, each trial at its newest uploaded state"
        return f"sweep {job_id} {says} ({spent} spent), and leaves nothing running; to go on: {command}"
    if job.state is JobState.FAILED:
        return (
            f"job {job_id} failed ({job.failure}), {spent} spent, and leaves nothing running; to go on from its last "
            f"checkpoint: {command}"
        )
    if job.state.terminal:
        return f"job {job_id} is trained ({spent} spent) and leaves nothing running; to see its end: {command}"
    return f"job {job_id} is paused at clock {clock} ({spent} spent) and leaves nothing running; to go on: {command}"


def _keep(job_id: str) -> int:
    """Have the controller write a checkpoint, if it answers; return the clock of the newest checkpoint."""
    runtime = current_runtime()
    try:
        ControllerClient(wait_rendezvous(runtime.settings.blob_url, job_id, _MEET_S), _KEEP_S).checkpoint()
    except ControllerUnreachable as error:
        _log.warning("job %s goes on from its last checkpoint: %s", job_id, error)
    return newest_clock(runtime.blobs, job_id)


def job_states() -> dict[str, JobState]:
    """Return the state of every job, oldest first."""
    return {job.job_id: job.state for job in current_runtime().store.jobs.list_jobs()}


def resume_jobs() -> list[str]:
    """Have the worker run `train` again for the jobs that an earlier `proteus up` left open; return their ids.

    Sweeps are resumed by `tasks.sweeps.sweep_submission.resume_sweeps`.
    """
    open_jobs = [job_id for job_id, state in job_states().items() if not state.terminal and not is_sweep(job_id)]
    for job_id in open_jobs:
        submit(job_spec(job_id))
    return open_jobs


def pause_jobs(command: str) -> str:
    """Checkpoint the open jobs and book the costs of all; return one line on how to go on."""
    states = job_states()
    open_jobs = [job_id for job_id, state in states.items() if not state.terminal]
    with ThreadPoolExecutor(max(1, len(open_jobs))) as pool:
        outcomes = [pool.submit(pause, job_id, command, True) for job_id in open_jobs]
    for job_id, outcome in zip(open_jobs, outcomes, strict=True):
        if (error := outcome.exception()) is not None:
            _log.warning("job %s goes on from its last checkpoint: %s", job_id, error)
    paused = f"{', '.join(open_jobs)} paused; " if open_jobs else ""
    return f"{paused}nothing is left running; to go on: {command}"
