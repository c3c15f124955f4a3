"""The flow of a training job, from submission to result. A second run attaches to the job; cancelling one stops it.

Every step finds the work of an earlier run: the job is recorded once, the reliable tier is bought under tokens, the
controller outlives the flow, and a saved result is not trained again.
"""

from typing import Any

from prefect import flow
from prefect.logging import get_run_logger

from infra.errors import InputError, JobFailed
from tasks.ending.cancelled_runs import record_follower, stop_cancelled_job
from tasks.job_records import ended_result, has_failed, is_known, record_job
from tasks.job_spec import JobSpec
from tasks.market.engine_journal import JobEngine
from tasks.market.ingest import fetch_prices, history_days, markets_of
from tasks.market.ledger import book_ledger
from tasks.market.opening import close_job, is_opened, open_job, reopen_job
from tasks.market.purchases.reliable_tier import await_reliable_tier, release_reliable_tier
from tasks.reports.publish import show_job
from tasks.training.code_shipping import prepare_code
from tasks.training.controller import await_controller, prepare_data, start_training
from tasks.training.follow import follow
from tasks.training.preflight import check


@flow(name="train", validate_parameters=True, on_cancellation=[stop_cancelled_job])
async def train(spec: JobSpec) -> dict[str, Any]:
    """Train a model on a spot market; return the result (clocks, losses, held-out metrics)."""
    check(spec)
    if not is_known(spec.job_id):
        prepare_data(spec)  # bad data is reported before the id is taken
    record_job(spec)
    record_follower(spec.job_id)
    job_engine = JobEngine(spec.job_id)
    result = ended_result(spec.job_id)
    if result is None:
        if has_failed(spec.job_id):
            release_reliable_tier(job_engine)
            reopen_job(job_engine)
        prepare_code(spec)  # not in the `try`: a file edited since must not end a running job
        try:
            data = prepare_data(spec)
            for note in data.notes:
                get_run_logger().info("%s: data: %s", spec.job_id, note)
            if not is_opened(job_engine):
                fetch_prices(markets_of(spec), history_days())
                open_job(spec, job_engine)
            await_reliable_tier(spec, job_engine)
            address = await_controller(spec.job_id)
            if address is not None:
                start_training(spec, address, data)
            result = follow(spec)
        except (JobFailed, InputError) as error:
            close_job(job_engine, None, str(error))
            release_reliable_tier(job_engine)
            raise
    close_job(job_engine, result)
    release_reliable_tier(job_engine)
    book_ledger(spec.job_id)
    show_job(spec.job_id)
    return result
