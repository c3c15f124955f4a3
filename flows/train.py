"""The flow of a training job, from submission to result. A second run attaches to the job; cancelling one stops it.

Every step finds the work of an earlier run: the job is recorded once, the reliable tier is bought under tokens, the
controller outlives the flow, and a saved result is not trained again.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from prefect import flow
from prefect.logging import get_run_logger

from proteus_spot.infra.errors import InputError, JobFailed
from proteus_spot.studies.form_fields import GIVEN, NOT_GIVEN, required_in_form
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_ends import is_active
from proteus_spot.tasks.job_records import (
    ended_result,
    has_failed,
    has_larger_limits,
    how_to_go_on,
    is_known,
    record_job,
    resolve_spec,
    ticking_jobs,
)
from proteus_spot.tasks.market.bookkeeping import book_ledger
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.eviction_notices import events_url, notices_in, report_notice
from proteus_spot.tasks.market.hand_over import take_over
from proteus_spot.tasks.market.ingest import fetch_prices, history_days, markets_of
from proteus_spot.tasks.market.job_opening import close_job, is_half_reopened, is_opened, open_job, reopen_job
from proteus_spot.tasks.market.machine_events import is_time_to_ask, taken_events
from proteus_spot.tasks.market.purchases.reliable_purchases import (
    await_reliable_tier,
    release_at_end,
    release_reliable_tier,
)
from proteus_spot.tasks.reports.job_log import JobLog, state_and_spending
from proteus_spot.tasks.reports.publish import FOLLOWED_S, link_page, show_job, show_job_now_and_then
from proteus_spot.tasks.run_labels import due_day
from proteus_spot.tasks.supervision.cancelled_runs import record_follower, stop_cancelled_job
from proteus_spot.tasks.supervision.turns import await_turn, record_submission
from proteus_spot.tasks.training.preparation import check, prepare_code, prepare_data, prepare_keys
from proteus_spot.tasks.training.run_names import name_ended, name_running
from proteus_spot.tasks.training.running_controller import await_controller, follow, start_training


@required_in_form
@flow(
    name="train",
    validate_parameters=True,
    on_running=[name_running],
    on_completion=[name_ended],
    on_failure=[name_ended],
    on_crashed=[name_ended],
    on_cancellation=[stop_cancelled_job, name_ended],
)
async def train(spec: Annotated[JobSpec, GIVEN] = NOT_GIVEN) -> dict[str, Any]:
    """Train a model on a spot market; return the result (clocks, losses, held-out metrics)."""
    spec = resolve_spec(spec.on(due_day()))
    check(spec)
    if not is_known(spec.job_id):
        prepare_data(spec)  # bad data is reported before the id is taken
    record_job(spec)
    record_submission(spec.job_id)
    record_follower(spec.job_id)
    job_engine = JobEngine(spec.job_id)
    larger = spec if has_larger_limits(spec) else None
    result = ended_result(spec.job_id) if larger is None else None
    if result is None:
        prepare_code(spec)  # not in the `try`: a file edited since must not end a running job
        if spec.queue is not None:
            await_turn(spec.job_id)
        if larger is not None or has_failed(spec.job_id) or is_half_reopened(job_engine):
            release_reliable_tier(job_engine)
            reopen_job(job_engine, larger)
        prepare_keys(spec.job_id)
        try:
            data = prepare_data(spec)
            for note in data.notes:
                get_run_logger().info("%s: data: %s", spec.job_id, note)
            if is_active(spec.job_id) and not is_opened(job_engine):
                fetch_prices(markets_of(spec), history_days())
                open_job(spec, job_engine)
            take_over(spec, job_engine)
            log = JobLog(spec.job_id, get_run_logger().info)
            link_page(spec.job_id)
            await_reliable_tier(spec, job_engine)
            show_job(spec.job_id)
            address = await_controller(spec.job_id)
            if address is not None:
                start_training(spec, address, data, job_engine.cached().holdings.begun_at_s)
            result = follow(spec, partial(_show, spec.job_id, log, set()), job_engine.cached().holdings.begun_at_s)
            log.look(at_once=True)
        except (JobFailed, InputError) as error:
            close_job(job_engine, None, str(error))
            release_at_end(job_engine)
            raise
    elif hint := how_to_go_on(spec.job_id):
        get_run_logger().warning(hint)
    close_job(job_engine, result)
    release_at_end(job_engine)
    book_ledger(spec.job_id)
    show_job(spec.job_id)
    get_run_logger().info("%s: %s, %s spent", spec.job_id, *state_and_spending(spec.job_id))
    return result


def _show(job_id: str, log: JobLog, reported: set[str], status: Mapping[str, Any] | None) -> None:
    """Show the job's progress, and report new notices where its machines cannot."""
    log.look()
    show_job_now_and_then(job_id, FOLLOWED_S)
    if is_time_to_ask():
        with taken_events(list(ticking_jobs())) as notices:
            for notice in notices:
                report_notice(notice)
    if status is None or events_url() is not None:
        return
    for notice in notices_in(status):
        if notice.taken not in reported:
            report_notice(notice)
            reported.add(notice.taken)
