"""A stop carried out: the controller saves the model, and the job is closed as stopped, with the reason.

Each call brings the job as far as it can; the next tick goes on from there. A stop does not depend on the controller:
where none answers in time, or there never was one, the job is closed from its last checkpoint.
"""

from collections.abc import Mapping
from contextlib import suppress
from inspect import unwrap
from typing import Any

from proteus_spot.bidding.market.model import InstanceFact, Tier
from proteus_spot.infra.errors import InputError, JobFailed
from proteus_spot.infra.nodes.controller_client import ControllerClient, ControllerUnreachable
from proteus_spot.infra.state.records import Job, JobState
from proteus_spot.infra.storage.blobs import BlobError
from proteus_spot.infra.storage.checkpoints import newest_clock
from proteus_spot.tasks.job_records import job_spec, saved_result, training_begun
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_bidding, close_job
from proteus_spot.tasks.market.tick import drain_s
from proteus_spot.tasks.supervision.deadlines import silent_s, unchanged_s
from proteus_spot.tasks.supervision.machine_ends import end_machines
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task
from proteus_spot.tasks.training.preparation import prepare_data
from proteus_spot.tasks.training.running_controller import (
    TICK_START_S,
    find_controller,
    note,
    start_training,
)

_CALL_S = 5.0
_LOOK_S = 0.5
#: Real seconds for a checkpoint before machines end at once.
_CHECKPOINT_S = 5.0
_ENDED = ("finished", "stopped", "failed")


def carry_out_stop(job_engine: JobEngine) -> None:
    """Bring the job nearer to its end if it is to stop: buy nothing more, save the model, close the job."""
    job = current_runtime().store.jobs.job(job_engine.job_id)
    if job.stop_now:
        end_at_once_task(job_engine)
    elif job.state is JobState.STOPPING:
        stop_task(job_engine)


def ask_controller(job: Job) -> dict[str, Any] | None:
    """Ask the controller to stop at the end of its clock; return its status, None if none answers.

    A restarted controller without a job continues from the last checkpoint, so that its model is saved.
    """
    found = find_controller(job.job_id)
    if found is None:
        return None
    address, status = found
    losses = status["losses"]
    if status["job_id"] is None:
        if not training_begun(job.job_id):
            return None
        spec = job_spec(job.job_id)
        now_s = current_runtime().clock.now_s()
        unwrap(start_training)(spec, address, unwrap(prepare_data)(spec), now_s, TICK_START_S)
    try:
        status = ControllerClient(address, _CALL_S).stop(job.stop_why or "")
    except ControllerUnreachable:
        return None
    note(job.job_id, status | {"losses": status["losses"] or losses})  # the answer to a stop has no losses
    return status


def end_at_once(job_engine: JobEngine) -> list[InstanceFact]:
    """End all machines of a job that is to stop, with a checkpoint if the controller answers; close the job.

    Returns
    -------
    list of InstanceFact
        The machines that were ended, as they were before.
    """
    runtime = current_runtime()
    job = runtime.store.jobs.job(job_engine.job_id)
    close_bidding(job_engine)
    if not job.state.terminal:
        with suppress(ControllerUnreachable, BlobError):  # then the checkpoint before counts
            found = find_controller(job.job_id)
            if found is not None and found[1]["job_id"] is not None:
                ControllerClient(found[0], _CHECKPOINT_S).checkpoint()
    ended: list[InstanceFact] = unwrap(end_machines)(job_engine)
    if not job.state.terminal:
        result = saved_result(job.job_id) or _from_checkpoint(job, "its machines were ended at once")
        unwrap(close_job)(job_engine, result)
    return ended


@runtime_task("carry out the stop", market=True)
def stop_task(job_engine: JobEngine) -> None:
    """Have the controller save the model, and close the job when it is saved, or will not be."""
    job = current_runtime().store.jobs.job(job_engine.job_id)
    close_bidding(job_engine)
    _close_when_saved(job_engine, job)


@runtime_task("end the job at once", market=True)
def end_at_once_task(job_engine: JobEngine) -> None:
    """Do what `end_at_once` does, with a record in Prefect."""
    end_at_once(job_engine)


def stop_deadline_s() -> float:
    """Return the market seconds after which a controller that does not answer, or does not end, is given up."""
    runtime = current_runtime()
    return runtime.settings.stop_minutes * 60 * runtime.clock.scale


def _close_when_saved(job_engine: JobEngine, job: Job) -> None:
    """Close the job with what its controller has saved; with its last checkpoint where no controller will save it."""
    try:
        result: Mapping[str, Any] | None = saved_result(job.job_id)
        if result is None:
            status = _ask_and_wait(job)
            result = _unanswered(job) if status is None else _answered(job, status)
    except (JobFailed, InputError) as error:
        unwrap(close_job)(job_engine, None, str(error))
        return
    if result is not None:
        unwrap(close_job)(job_engine, result)


def _ask_and_wait(job: Job) -> dict[str, Any] | None:
    """Ask the controller to stop, and give it a little time; return its last status, None if it does not answer."""
    clock = current_runtime().clock
    status = ask_controller(job)
    until_s = clock.now_s() + drain_s() * clock.scale
    while status is not None and status["state"] not in _ENDED and clock.now_s() < until_s:
        clock.wait_until(clock.now_s() + _LOOK_S * clock.scale)
        found = find_controller(job.job_id)
        status = None if found is None else found[1]
    return status


def _answered(job: Job, status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the result of a job whose controller answers; None while it has time to save the model."""
    if status["state"] == "failed":
        raise JobFailed(f"job {job.job_id}: {status['reason']}")
    if status["state"] in _ENDED:
        saved = saved_result(job.job_id) or status["result"]
        return saved or _from_checkpoint(job, "its controller has saved no model")
    runtime = current_runtime()
    limit_s = max(stop_deadline_s(), runtime.settings.progress_minutes * 60 * runtime.clock.scale)
    if unchanged_s(job.job_id, {"clock": status["clock"], "state": str(JobState.STOPPING)}) >= limit_s:
        return _from_checkpoint(job, "its controller did not end the clock under way in time")
    return None


def _unanswered(job: Job) -> Mapping[str, Any] | None:
    """Return the result of a job whose controller does not answer; None while it has time to."""
    runtime = current_runtime()
    if not training_begun(job.job_id):
        return _from_checkpoint(job, "its training had not begun")
    if not any(
        record.allocation.tier is Tier.RELIABLE
        for record in runtime.store.purchases.allocations(job.job_id, alive=True)
    ):
        return _from_checkpoint(job, "the controller's machine has ended")
    if silent_s(job.job_id, job.created_at_s if job.stop_at_s is None else job.stop_at_s) >= stop_deadline_s():
        return _from_checkpoint(job, f"no controller answered for {runtime.settings.stop_minutes:g} minutes")
    return None


def _from_checkpoint(job: Job, because: str) -> dict[str, Any]:
    """Return the result of a job that ends without a saved model."""
    clock = newest_clock(current_runtime().blobs, job.job_id)
    kept = f"the last checkpoint is of clock {clock}" if clock else "there is no checkpoint"
    return {"clocks": clock, "stopped": job.stop_why, "without_model": f"no model was saved: {because}; {kept}"}
