"""The flow of the tick: observe prices and machines, decide what to buy, hold and release, and act.

A tick may die at any line: orders are recorded before they are carried out, every purchase has a token, and the next
tick compares planned, requested and observed allocations.
"""

from collections.abc import Mapping, Sequence

from prefect import flow
from prefect.logging import get_run_logger

from proteus_spot.bidding.engine.orders import Acquire, Lapse, Order, Renew, Wait
from proteus_spot.tasks.event_feed import emit_tick
from proteus_spot.tasks.job_leases import extend_leases
from proteus_spot.tasks.job_records import is_open, is_sweep, job_spec, settle_job, ticking_jobs
from proteus_spot.tasks.market.bookkeeping import (
    book_ledger,
    lives_within_budget,
    on_demand_spending_now,
    report_budget,
    spending_now,
    stop_at_budget,
)
from proteus_spot.tasks.market.current_prices import prices_to_decide_on
from proteus_spot.tasks.market.decisions import decide, opened_markets
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.facts.observing import known_to_decide_on, quotas_to_decide_on
from proteus_spot.tasks.market.facts.working import speeds_to_decide_on
from proteus_spot.tasks.market.hand_over import take_over
from proteus_spot.tasks.market.listed_machines import ended_by, let_go, machine_names, observe_machines
from proteus_spot.tasks.market.machine_events import taken_events
from proteus_spot.tasks.market.market_features import signals_to_decide_on
from proteus_spot.tasks.market.purchases.fence import check_fence
from proteus_spot.tasks.market.purchases.reliable_purchases import release_at_end
from proteus_spot.tasks.market.purchases.sending import PurchaseBlocked, abandon_orders, buy
from proteus_spot.tasks.market.renewals import book_renewals
from proteus_spot.tasks.market.tick import claim_tick, drain_s, is_overtaken, note_tick, time_to_let_go
from proteus_spot.tasks.reports.publish import show_job_now_and_then
from proteus_spot.tasks.run_labels import label_run, one_client
from proteus_spot.tasks.supervision.cancelled_runs import stop_if_cancelled
from proteus_spot.tasks.supervision.open_jobs import bring_along, buy_lost_machines
from proteus_spot.tasks.sweeps.running.sweep_tick import tick_sweep
from proteus_spot.tasks.task_runtime import untraversed
from proteus_spot.tasks.training.running_controller import drain
from proteus_spot.tasks.training.traffic import crossing_usd_per_vcpu_h
from proteus_spot.tasks.training.work_left import report_deadline, time_left

_RUNNING = "skipped: another tick of this job is running"
_OVERTAKEN = "skipped: it is late, and another late tick decides"


@flow(name="allocation-tick", validate_parameters=True)
async def allocation_tick(job_id: str | None = None) -> dict[str, str]:
    """Make one decision for every open job, or for one job; return the actions by job."""
    with one_client():
        if is_overtaken():
            get_run_logger().info(_OVERTAKEN)
            label_run(_OVERTAKEN)
            return {"skipped": _OVERTAKEN}
        names = list(ticking_jobs(job_id))
        try:
            with taken_events(names) as notices:
                taken = {
                    name: {each.taken: each.takes_at_s for each in notices if each.job_id == name} for name in names
                }
                return tick_each(taken)
        finally:
            emit_tick(names)  # also where the tick of a job failed: server, worker and database are there


def tick_each(notices: Mapping[str, Mapping[str, int]], patience_s: float = 0.0) -> dict[str, str]:
    """Tick jobs one after the other; name this run after what was done, and return that by job.

    Parameters
    ----------
    notices : eviction time of each allocation with an eviction notice, by job.
    patience_s : market seconds to wait for another tick of a job to end.
    """
    with one_client():
        return _tick_each(notices, patience_s)


def _tick_each(notices: Mapping[str, Mapping[str, int]], patience_s: float) -> dict[str, str]:
    done: dict[str, str] = {}
    failed: list[Exception] = []
    for name, taken in notices.items():
        try:
            done[name] = tick_job(name, taken, patience_s)
        except Exception as error:  # noqa: BLE001 - the other jobs still get their tick; raised below
            done[name] = "failed"
            failed.append(error)
    label_run("; ".join(f"{name}: {outcome}" for name, outcome in done.items()) or "no open job", done)
    if failed:
        raise failed[0] if len(failed) == 1 else ExceptionGroup("the ticks of several jobs failed", failed)
    return done


def tick_job(job_id: str, notices: Mapping[str, int] | None = None, patience_s: float = 0.0) -> str:
    """Reconcile, decide and act for one job; log and return a summary of the actions.

    Raises
    ------
    Superseded
        Before anything is done, if another copy of the state database has the job.
    PurchaseBlocked
        After all that can be done, if credentials or settings let nothing be bought, or the bucket fails: the run
        fails, and the next tick tries again.

    Parameters
    ----------
    notices : eviction time of each machine or allocation with an eviction notice, by its id, market seconds.
    patience_s : market seconds to wait for another tick of the job to end.
    """
    try:
        outcome = _tick_claimed(job_id, notices or {}, patience_s)
    except Exception as error:
        note_tick(job_id, error)
        raise
    if outcome != _RUNNING:
        note_tick(job_id)
    if not is_sweep(job_id):
        show_job_now_and_then(job_id)
    get_run_logger().info("%s: %s", job_id, outcome)
    return outcome


def _tick_claimed(job_id: str, notices: Mapping[str, int], patience_s: float) -> str:
    with claim_tick(job_id, patience_s) as mine:
        if not mine:
            return _RUNNING
        check_fence(job_id)
        if is_sweep(job_id):
            done, alarms = tick_sweep(job_id, notices)
            if alarms:
                raise PurchaseBlocked("; ".join(alarms))
            return done
        job_engine = JobEngine(job_id)  # its journal is replayed once a tick
        stop_if_cancelled(job_id)
        spec, spending, on_demand = job_spec(job_id), None, None
        if is_open(job_id):
            stop_at_budget(spec, job_engine)
        broken = bring_along(job_engine)
        take_over(spec, job_engine)
        facts = observe_machines(job_id)
        prices = prices_to_decide_on(opened_markets(job_engine))
        signals = signals_to_decide_on(job_engine, prices)
        if is_open(job_id):
            spending = spending_now(spec, job_engine.cached())
            on_demand = on_demand_spending_now(spec, job_engine.cached())
        speeds = speeds_to_decide_on(spec)
        left, crossing_usd = time_left(spec, speeds), crossing_usd_per_vcpu_h(spec, speeds)
        if is_open(job_id):
            report_deadline(spec, left)
        seen = (untraversed(facts), untraversed(prices.by_market), notices, prices.left_out, untraversed(signals))
        known = known_to_decide_on(job_engine, prices.by_market)
        limits = (spending, left, crossing_usd, untraversed(known), quotas_to_decide_on(job_engine))
        orders = decide(job_engine, *seen, *limits, on_demand_spending=on_demand, speeds=untraversed(speeds))
        # the book was just compared with the market
        unwritten = extend_leases(job_id, lives_within_budget(spec, job_engine.cached()) if is_open(job_id) else None)
        broken = broken or unwritten
        alarms = [broken or buy_lost_machines(spec, job_engine)]
        let_lapse(job_id, [order for order in orders if isinstance(order, Lapse)])
        if not broken:
            alarms += [carry_out(job_engine, order) for order in orders]
        if not is_open(job_id):
            release_at_end(job_engine)  # however it ended, and again where that was not completed
            abandon_orders(job_engine)
        booked = book_ledger(job_id)
        if booked.lines:
            report_budget(job_id)
        settle_job(job_id, booked.until_s, lacks_prices=booked.lacks_prices)
        book_renewals(job_id)
    if any(alarms):
        raise PurchaseBlocked("; ".join(alarm for alarm in alarms if alarm))
    return ", ".join(type(order).__name__.lower() for order in orders) or "nothing to do"


def let_lapse(job_id: str, lapses: Sequence[Lapse]) -> None:
    """Drain the machines whose paid hour ends now, together, and let them go."""
    # The others keep working in the hour that is paid, and the next tick repeats their orders.
    ending = ended_by([lapse for lapse in lapses if time_to_let_go(lapse.before_s)])
    if not ending:
        return
    if is_open(job_id):
        drain(job_id, machine_names(job_id, ending), drain_s())
    let_go(job_id, ending)


def carry_out(job_engine: JobEngine, order: Order) -> str:
    """Carry out an order of the engine; those that let machines go are carried out together (`let_lapse`).

    Returns
    -------
    str
        One line on what must be fixed before anything can be bought, or ''.
    """
    match order:
        case Acquire():
            outcome = buy(job_spec(job_engine.job_id), job_engine, order)
            get_run_logger().info("%s: %s", order.order_id, outcome.line)
            if outcome.blocked:
                return f"job {job_engine.job_id}: {order.order_id} cannot be bought: {outcome.line}"
        case Renew() | Wait() | Lapse():
            pass  # a renewed allocation stays held; the ledger books its hour when it begins
    return ""
