"""An open job at a tick: it is kept training on machines that work, or closed when it cannot go on or is done."""

from infra.errors import InputError, JobFailed
from tasks.ending.deadlines import let_go_of_absent_machines, stop_without_progress
from tasks.ending.reliable_tier import keep_reliable_tier
from tasks.job_ends import wants_machines
from tasks.job_records import job_spec, saved_result
from tasks.market.engine_journal import JobEngine
from tasks.market.opening import close_job
from tasks.training.controller import keep_training, note


def keep_going(job_engine: JobEngine) -> str:
    """Do what the job's own flow would do, which may be dead, and hold the job to its deadlines.

    The training is started on a controller that runs no job, lost machines of the reliable tier are bought again, and
    the job is closed when its model is saved or it cannot go on. A job that has ended, or is to stop, is not touched.

    Returns
    -------
    str
        One line on what must be mended before anything can be bought, or ''.
    """
    job_id = job_engine.job_id
    if not wants_machines(job_id):
        return ""
    alarm = ""
    try:
        result = saved_result(job_id)
        if result is None:
            result, alarm = _go_on(job_engine)
    except (JobFailed, InputError) as error:
        close_job(job_engine, None, str(error))
    else:
        if result is not None:
            close_job(job_engine, result)
    return alarm


def _go_on(job_engine: JobEngine) -> tuple[dict[str, object] | None, str]:
    """Keep the job going; return its result if its controller has ended it, and what forbids every purchase."""
    job_id = job_engine.job_id
    spec = job_spec(job_id)
    status = keep_training(spec, job_engine.loaded().begun_at_s)
    alarm = keep_reliable_tier(spec, job_engine, answers=status is not None)
    if status is None:
        return None, alarm
    note(job_id, status)
    if status["state"] == "failed":
        raise JobFailed(f"job {job_id}: {status['reason']}")
    if status["state"] in ("finished", "stopped"):
        return saved_result(job_id) or status["result"], alarm
    let_go_of_absent_machines(job_engine, status)
    stop_without_progress(job_id, status)
    return None, alarm
