"""An open job at a tick: it is kept training on machines that work, or closed when it cannot go on or is done."""

from collections.abc import Iterator
from contextlib import contextmanager

from proteus_spot.infra.errors import InputError, JobFailed
from proteus_spot.infra.storage.blobs import BlobError
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_ends import is_active
from proteus_spot.tasks.job_records import job_spec, saved_result
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.supervision.deadlines import check_start, let_go_of_absent_machines, stop_without_progress
from proteus_spot.tasks.supervision.job_stop import carry_out_stop
from proteus_spot.tasks.supervision.reliable_machines import end_unfit_machines, refill_reliable_tier
from proteus_spot.tasks.training.running_controller import TICK_START_S, keep_training, note


def bring_along(job_engine: JobEngine) -> str:
    """Carry out the stop of the job, or keep it going.

    Returns
    -------
    str
        One line if the bucket fails, or ''. Nothing may be bought then; machines are observed and ended all the same.
    """
    try:
        carry_out_stop(job_engine)
        keep_going(job_engine)
    except BlobError as error:
        return f"job {job_engine.job_id}: the bucket fails, so nothing is bought: {error}"
    return ""


def keep_going(job_engine: JobEngine) -> None:
    """Do what the job's own flow would do, which may be dead, and hold the job to its deadlines.

    The training is started on a controller that runs no job, and the job is closed when its model is saved or it cannot
    go on. A job that has ended, or is to stop, is not touched. Call it before the book is compared with the market, and
    `buy_lost_machines` after.
    """
    if not is_active(job_engine.job_id):
        return
    with _closed_if_failed(job_engine):
        result = saved_result(job_engine.job_id) or _go_on(job_engine)
        if result is not None:
            close_job(job_engine, result)


def buy_lost_machines(spec: JobSpec, job_engine: JobEngine) -> str:
    """Buy the machines of the reliable tier that the book lacks, in the tick that found their loss.

    Returns
    -------
    str
        One line on what must be fixed before anything can be bought, or ''.
    """
    alarm = ""
    with _closed_if_failed(job_engine):
        alarm = refill_reliable_tier(spec, job_engine)
    return alarm


@contextmanager
def _closed_if_failed(job_engine: JobEngine) -> Iterator[None]:
    try:
        yield
    except (JobFailed, InputError) as error:
        close_job(job_engine, None, str(error))


def _go_on(job_engine: JobEngine) -> dict[str, object] | None:
    """Keep the job going; return its result if its controller has ended it."""
    job_id = job_engine.job_id
    check_start(job_engine)
    spec = job_spec(job_id)
    status = keep_training(spec, job_engine.cached().holdings.begun_at_s, TICK_START_S)
    if status is None:
        end_unfit_machines(spec, job_engine, answers=False)
        return None
    note(job_id, status)
    if status["state"] == "failed":
        raise JobFailed(f"job {job_id}: {status['reason']}")
    if status["state"] in ("finished", "stopped"):
        return saved_result(job_id) or status["result"]
    end_unfit_machines(spec, job_engine, answers=True)
    let_go_of_absent_machines(job_engine, status)
    stop_without_progress(job_id, status)
    return None
