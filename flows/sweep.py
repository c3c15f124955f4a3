"""The flow of a sweep, from submission to the best trial. Retry goes on with the sweep; cancelling it stops the sweep.

Every step finds the work of an earlier run: the sweep is recorded once, its machines are bought by ticks under tokens,
and what trials have saved is not trained again. A copy of a run without `sweep_id` is a new sweep.
"""

from typing import Annotated, Any

from prefect import flow
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from proteus_spot.infra.errors import InputError, JobFailed
from proteus_spot.studies.form_fields import GIVEN, NOT_GIVEN, required_in_form
from proteus_spot.tasks.job_records import how_to_go_on
from proteus_spot.tasks.market.engine_journal import SweepJournal
from proteus_spot.tasks.market.ingest import fetch_prices, history_days
from proteus_spot.tasks.reports.publish import link_page
from proteus_spot.tasks.run_labels import due_day
from proteus_spot.tasks.supervision.cancelled_runs import record_follower
from proteus_spot.tasks.sweeps.running.following import follow_sweep, name_sweep_run, stop_cancelled_sweep
from proteus_spot.tasks.sweeps.running.sweep_opening import (
    fail_sweep,
    has_finished,
    named_markets,
    open_sweep,
    record_sweep,
    recorded_markets,
)
from proteus_spot.tasks.sweeps.running.trial_inputs import check_sweep, ship_inputs
from proteus_spot.tasks.sweeps.sweep_artifacts import SweepPages
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.sweeps.sweep_state import sweep_figures, sweep_view
from proteus_spot.tasks.task_runtime import current_runtime


@required_in_form
@flow(name="sweep", validate_parameters=True, on_cancellation=[stop_cancelled_sweep])
async def sweep(spec: Annotated[SweepSpec, GIVEN] = NOT_GIVEN) -> dict[str, Any]:
    """Find the best hyper-parameters on a spot market; return the figures of the sweep (trials, best, cost)."""
    spec = recorded_markets(spec.on(due_day()).for_run(str(flow_run.id)))
    name_sweep_run(spec.job_id)
    check_sweep(spec)
    record_sweep(spec)
    record_follower(spec.job_id)
    journal, pages = SweepJournal(spec.job_id), SweepPages(spec.job_id)
    if not has_finished(spec.job_id):
        ship_inputs(spec)  # not in the `try`: a file edited since must not end a running sweep
        try:
            fetch_prices(tuple(named_markets(spec)), history_days())
            open_sweep(spec, journal)
        except InputError as error:
            fail_sweep(spec, journal, str(error))
            raise
        link_page(spec.job_id)
        pages.show(journal.refresh(), at_once=True)
        follow_sweep(spec.job_id, pages.show)
    pages.show(at_once=True)
    figures = sweep_figures(sweep_view(current_runtime().store, spec.job_id))
    name_sweep_run(spec.job_id, figures["state"])
    get_run_logger().info("%s: %s, $%.4f spent", spec.job_id, figures["state"], figures["ledger_usd"])
    if hint := how_to_go_on(spec.job_id):
        get_run_logger().warning(hint)
    if figures["state"] == "failed":
        raise JobFailed(f"sweep {spec.job_id}: {figures['why']}")
    return figures
