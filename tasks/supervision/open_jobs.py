"""An open job at a tick: it is kept training on machines that work, or closed when it cannot go on or is done.

Machines of its reliable tier that are unfit end, and those that are missing are bought.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from proteus_spot.infra.errors import InputError, JobFailed
from proteus_spot.infra.state.records import AllocationRecord
from proteus_spot.infra.storage.blobs import BlobError
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_ends import is_active
from proteus_spot.tasks.job_records import job_spec, saved_result, training_begun
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.facts.working import note_work
from proteus_spot.tasks.market.job_opening import close_job
from proteus_spot.tasks.market.purchases.order_chains import CONTROLLER_ORDER, purchase
from proteus_spot.tasks.market.purchases.reliable_purchases import (
    is_reliable_tier_complete,
    secure_reliable_tier,
    surplus_machines,
)
from proteus_spot.tasks.market.purchases.sending import PurchaseBlocked
from proteus_spot.tasks.supervision.deadlines import (
    check_start,
    let_go_of_absent_machines,
    silent_s,
    stop_without_progress,
)
from proteus_spot.tasks.supervision.job_stop import carry_out_stop
from proteus_spot.tasks.supervision.machine_ends import end_machines
from proteus_spot.tasks.task_runtime import current_runtime
from proteus_spot.tasks.training.running_controller import TICK_START_S, keep_training, note

_log = logging.getLogger(__name__)
#: Machines on which a controller may fail to start before the job fails.
MOST_STARTS = 3


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
    note_work(spec, status)
    if status["state"] == "failed":
        raise JobFailed(f"job {job_id}: {status['reason']}")
    if status["state"] in ("finished", "stopped"):
        return saved_result(job_id) or status["result"]
    end_unfit_machines(spec, job_engine, answers=True)
    let_go_of_absent_machines(job_engine, status)
    stop_without_progress(job_id, status)
    return None


def end_unfit_machines(spec: JobSpec, job_engine: JobEngine, *, answers: bool) -> None:
    """End the machine of a controller that has not answered for too long, so that another one is bought.

    Machines beyond those that the job wants end, too: they were given up, and came back.

    Parameters
    ----------
    answers : whether the controller answers now.

    Raises
    ------
    JobFailed
        If no controller has started on several machines.
    """
    if not answers:
        _end_silent_machine(spec.job_id, job_engine)
    surplus = surplus_machines(spec)
    if surplus:
        _log.warning("job %s: %s came back after others were bought in their place, and end", spec.job_id, surplus)
        end_machines(job_engine, lambda fact: fact.instance_id in surplus)


def refill_reliable_tier(spec: JobSpec, job_engine: JobEngine) -> str:
    """Buy machines of the reliable tier that are missing by the book, for a job that was opened.

    What the market does not sell now is asked for again at each tick.

    Returns
    -------
    str
        One line on what must be fixed before anything can be bought, or ''.

    Raises
    ------
    JobFailed
        If machines were lost again and again.
    """
    if job_engine.cached().holdings.job_id is None or not is_active(spec.job_id) or is_reliable_tier_complete(spec):
        return ""
    try:
        waits = secure_reliable_tier(spec, job_engine)
    except PurchaseBlocked as error:
        return str(error)
    if waits is not None:
        _log.warning("job %s: %s", spec.job_id, waits)
    return ""


def _end_silent_machine(job_id: str, job_engine: JobEngine) -> None:
    """End the controller's machine if the controller has not answered there for too long."""
    runtime = current_runtime()
    records = runtime.store.purchases.allocations(job_id)
    machines = [record for record in records if purchase(job_id, record.order_id) == CONTROLLER_ORDER]
    if not machines or not machines[-1].alive:
        return
    newest = machines[-1].allocation
    if silent_s(job_id, newest.launched_at_s) < runtime.settings.start_minutes * 60 * runtime.clock.scale:
        return
    begun_s = job_engine.cached().holdings.begun_at_s
    tried = [record for record in machines if record.allocation.launched_at_s >= begun_s]
    if not training_begun(job_id, begun_s) and len(tried) >= MOST_STARTS:
        raise JobFailed(_never_started(job_id, tried))
    end_machines(job_engine, lambda fact: fact.order_id == newest.allocation_id)


def _never_started(job_id: str, controllers: list[AllocationRecord]) -> str:
    names = [name for record in controllers for name in record.instance_ids] or ["the last"]
    minutes = current_runtime().settings.start_minutes
    return (
        f"job {job_id}: no controller answered within {minutes:g} minutes on any of {len(controllers)} machines "
        f"({', '.join(names)}); read `proteus logs {job_id}`, or the console log of {names[-1]}"
    )
