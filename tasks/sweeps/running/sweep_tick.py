"""One tick of a sweep: what its machines and trials did, what it decides, and its orders carried out.

`flows.allocation_tick` calls it under the same claim as the tick of a job. It may die at any line: orders are recorded
before they are carried out, and the next tick repeats those that were not answered.
"""

import logging
from collections.abc import Mapping, Sequence

from proteus_spot.bidding.economics.budget import Spending
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.engine.allocations import AllocationState
from proteus_spot.bidding.engine.events import BidEvent
from proteus_spot.bidding.evictions.predictors.predictor_model import PredictorModel
from proteus_spot.bidding.market.model import InstanceFact, Market
from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.sweep_events import Offer, SweepStopRequested, SweepTick
from proteus_spot.bidding.tuning.sweep_orders import Deploy, Finish, PauseTrial, Release, SweepOrder
from proteus_spot.bidding.tuning.trials import SweepState
from proteus_spot.infra.errors import JobFailed
from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.storage.blobs import BlobError
from proteus_spot.infra.trials.trial_documents import TrialReport
from proteus_spot.tasks.job_ends import BUDGET, is_active
from proteus_spot.tasks.job_leases import extend_leases
from proteus_spot.tasks.job_records import is_open, settle_job, terms_of
from proteus_spot.tasks.market.bookkeeping import (
    book_ledger,
    lives_within_budget,
    report_budget,
    spending_now,
    stop_at_budget,
    stop_s,
)
from proteus_spot.tasks.market.current_prices import Prices, prices_to_decide_on
from proteus_spot.tasks.market.decisions import decide_on
from proteus_spot.tasks.market.engine_journal import SweepJournal
from proteus_spot.tasks.market.listed_machines import let_go, observe_machines
from proteus_spot.tasks.market.purchases.sending import abandon_orders
from proteus_spot.tasks.supervision.cancelled_runs import stop_if_cancelled
from proteus_spot.tasks.supervision.deadlines import check_start
from proteus_spot.tasks.supervision.machine_ends import end_machines
from proteus_spot.tasks.sweeps.running.deploying import deploy, pause
from proteus_spot.tasks.sweeps.running.reports import new_reports, read_reports
from proteus_spot.tasks.sweeps.running.sweep_opening import close_sweep, sweep_spec
from proteus_spot.tasks.sweeps.running.trial_offers import offers_at, predictor_of, recent_prices
from proteus_spot.tasks.sweeps.samplers import proposal
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task, untraversed

_log = logging.getLogger(__name__)
_STATES = {
    SweepState.FINISHED: JobState.FINISHED,
    SweepState.STOPPED: JobState.STOPPED,
    SweepState.FAILED: JobState.FAILED,
}


def tick_sweep(job_id: str, notices: Mapping[str, int]) -> tuple[str, list[str]]:
    """Reconcile, decide and act for one sweep, whose tick this process has claimed.

    Parameters
    ----------
    notices : eviction time of each machine or allocation with an eviction notice, by its id, market seconds.

    Returns
    -------
    tuple of (str, list of str)
        What was ordered, and a line for each purchase that credentials or settings forbid, or on leases that cannot be
        written.
    """
    journal = SweepJournal(job_id)
    stop_if_cancelled(job_id)
    spec, spending, terms = sweep_spec(job_id), None, terms_of(current_runtime().store.jobs.job(job_id))
    if journal.refresh().holdings.job_id is None:
        return _not_opened(spec, journal), []
    if is_open(job_id):
        stop_at_budget(terms, journal)
        spending = spending_now(terms, journal.cached())
    if current_runtime().store.jobs.job(job_id).stop_now:
        end_machines(journal)
    facts = observe_machines(job_id)
    reports = read_reports(journal.cached())
    prices = Prices({})
    engine = journal.cached()
    if _may_buy(engine, facts, reports):
        prices = prices_to_decide_on(engine.sweep.opened.markets)
    orders = decide_sweep(
        spec, journal, untraversed(facts), untraversed(reports), untraversed(prices), notices, spending
    )
    # the book was just compared with the market
    unwritten = extend_leases(job_id, lives_within_budget(terms, journal.cached()) if is_open(job_id) else None)
    alarms = [unwritten] if unwritten else []
    alarms += _carry_out(spec, journal, [order for order in orders if not (unwritten and isinstance(order, Deploy))])
    _keep_state(spec, journal)
    # What the engine does not repeat it needs no more; what may have been bought stays open, and is looked for.
    unneeded = journal.cached().sweep.open_orders.keys() - {
        order.order_id for order in orders if isinstance(order, Deploy)
    }
    if unneeded:
        abandon_orders(
            journal, "its trial needs no machine any more", journal.cached().sweep.open_orders.keys() - unneeded
        )
    booked = book_ledger(job_id)
    if booked.lines:
        report_budget(job_id)
    settle_job(job_id, booked.until_s, lacks_prices=booked.lacks_prices)
    return ", ".join(type(order).__name__.lower() for order in orders) or "nothing to do", alarms


def _may_buy(engine: SweepEngine, facts: Sequence[InstanceFact], reports: Mapping[str, TrialReport]) -> bool:
    """Return whether the engine may buy, as it stands or by what it is about to learn of its machines."""
    if engine.wants_trials or engine.wants_offers(current_runtime().now_s()):
        return True
    living = {name for name, its in engine.holdings.positions.items() if its.standing is not AllocationState.GONE}
    listed = {fact.order_id for fact in facts if fact.alive}
    return any(report.ended for report in reports.values()) or not living <= listed


@runtime_task("decide")
def decide_sweep(
    spec: SweepSpec,
    journal: SweepJournal,
    facts: Sequence[InstanceFact],
    reports: Mapping[str, TrialReport],
    prices: Prices,
    notices: Mapping[str, int],
    spending: Spending | None,
) -> list[SweepOrder]:
    """Enter reports, machines, settings and a request to stop, and have the engine decide; return its orders.

    Raises
    ------
    TickStopped
        If the market lists none of the machines that live by the book: nothing is decided on such an answer.
    """
    now_s, recent = current_runtime().now_s(), recent_prices(prices)
    predictor = _predictor(spec) if len(recent) else None
    limits = spending, _time_left(spec)

    def tick(engine: SweepEngine) -> Sequence[BidEvent]:
        job = current_runtime().store.jobs.job(spec.job_id)
        events: list[BidEvent] = []
        if job.stop_at_s is not None and not engine.sweep.stopping and not engine.sweep.closed:
            events.append(SweepStopRequested(now_s, BUDGET if job.stop_why == BUDGET else "stop"))
        elif (count := engine.wants_trials) > 0:
            events.append(proposal(spec, engine.sweep, count, now_s))
        number, generation = engine.sweep.decisions, current_runtime().store.owner.identity().generation_of_orders
        offers: Mapping[Market, Offer] = {}
        if predictor is not None:
            types, seed, today = engine.holdings.types, engine.sweep.plan.seed, current_runtime().settings.is_aws
            offers = offers_at(prices.by_market, recent, types, predictor, seed, number, now_s, today)
        return [*events, SweepTick(now_s, offers, is_active(spec.job_id), prices.left_out, *limits, generation)]

    return decide_on(journal, facts, notices, tick, lambda engine: new_reports(engine, reports, now_s))


def _predictor(spec: SweepSpec) -> PredictorModel | None:
    """Return what predicts the prices of the sweep's markets; None where it cannot be read: nothing is bought then."""
    try:
        return predictor_of(spec)
    except BlobError as error:
        _log.warning("sweep %s: nothing is bought: %s", spec.job_id, error)
        return None


def _keep_state(spec: SweepSpec, journal: SweepJournal) -> None:
    """Bring the sweep's row to the state of its journal: a process may have died between the two."""
    store, engine = current_runtime().store, journal.cached()
    if not is_active(spec.job_id) and not engine.sweep.closed:
        return
    if engine.sweep.closed and engine.sweep.outcome is not None and is_open(spec.job_id):
        close_sweep(spec, journal, _STATES[engine.sweep.outcome.state], {"why": engine.sweep.outcome.why})
    elif (
        not engine.sweep.closed and store.jobs.job(spec.job_id).state is JobState.STARTING and engine.holdings.positions
    ):
        store.jobs.move_job(spec.job_id, JobState.RUNNING, current_runtime().clock.now_s())


def _not_opened(spec: SweepSpec, journal: SweepJournal) -> str:
    """Close a sweep that is to stop, or whose flow has died, before it was opened; else its flow opens it."""
    job = current_runtime().store.jobs.job(spec.job_id)
    if is_active(spec.job_id):
        try:
            check_start(journal)
        except JobFailed as error:
            close_sweep(spec, journal, JobState.FAILED, {"why": str(error)})
    if job.state is JobState.STOPPING:
        close_sweep(spec, journal, JobState.STOPPED, {"why": job.stop_why})
    if not is_open(spec.job_id):
        settle_job(spec.job_id, current_runtime().now_s())
    return "it was not opened yet"


def _time_left(spec: SweepSpec) -> TimeLeft | None:
    """Return the deadline, and the seconds without progress before it; the engine measures the steps itself."""
    runtime = current_runtime()
    deadline_s = spec.deadline_s(runtime.store.jobs.job(spec.job_id).created_at_s)
    if deadline_s is None:
        return None
    return TimeLeft(deadline_s, 0, 0.0, 2 * runtime.settings.tick_s + stop_s(spec.job_id))


def _carry_out(spec: SweepSpec, journal: SweepJournal, orders: Sequence[SweepOrder]) -> list[str]:
    """Carry out the orders; return a line for each purchase that cannot be made, and for each that the bucket fails."""
    alarms = []
    for order in orders:
        try:
            alarms.append(_carry_out_one(spec, journal, order))
        except BlobError as error:
            alarms.append(f"sweep {spec.job_id}: {type(order).__name__.lower()} waits for the bucket: {error}")
    released: dict[str, Sequence[str]] = {order.allocation_id: () for order in orders if isinstance(order, Release)}
    if released:
        let_go(spec.job_id, released)
    return [alarm for alarm in alarms if alarm]


def _carry_out_one(spec: SweepSpec, journal: SweepJournal, order: SweepOrder) -> str:
    match order:
        case Deploy():
            outcome = deploy(spec, journal, order)
            _log.info("%s: %s", order.order_id, outcome.line)
            if outcome.blocked:
                return f"sweep {spec.job_id}: {order.order_id} cannot be bought: {outcome.line}"
        case PauseTrial():
            pause(journal, order)
        case Finish():
            close_sweep(spec, journal, _STATES[order.state], {"why": order.why})
        case Release():
            pass  # those are let go together
    return ""
