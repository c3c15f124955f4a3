"""The ledger: the cost of every hour of every allocation, brought up to date with the market; its worst case.

The rule of the budget is in `bidding.economics.budget`; here its figures are read from the state database and the
market's prices.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proteus_spot.bidding.economics.budget import Spending, lasts_until_s
from proteus_spot.bidding.engine.allocations import AllocationState
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.market.model import HOUR_S, MINUTE_S, Allocation, EndCause, Market, Tier
from proteus_spot.bidding.market.money import Micros, usd
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.bidding.market.traces import Trace
from proteus_spot.infra.state.charges.charge_prices import Planned
from proteus_spot.infra.state.commitments import most_owed, requested
from proteus_spot.infra.state.ledger import book, unpriced_hours
from proteus_spot.infra.state.records import AllocationRecord, IntentState, ObservationKind
from proteus_spot.infra.storage.leases import FIRST_S
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.event_feed import emit_budget
from proteus_spot.tasks.job_ends import BUDGET, is_active, request_stop
from proteus_spot.tasks.job_queues import next_to_take_over
from proteus_spot.tasks.job_records import FINAL_S, JobTerms, terms_of
from proteus_spot.tasks.market.current_prices import history
from proteus_spot.tasks.market.decisions import decide_on
from proteus_spot.tasks.market.engine_journal import EngineJournal, JournalledEngine, journal_of
from proteus_spot.tasks.market.listed_machines import observe_machines
from proteus_spot.tasks.market.purchases.order_chains import is_reliable_order
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)
#: Seconds that the end of a training takes, market and real: the model is saved and the machines are released.
_STOP_S, _STOP_REAL_S = 240.0, 5.0


@dataclass(frozen=True, slots=True)
class Booked:
    """What a booking has done: lines that were added, the time that it booked up to, whether prices were missing."""

    lines: int
    until_s: int
    lacks_prices: bool


def report_budget(job_id: str) -> None:
    """Emit an event if the job has spent most of its budget."""
    store = current_runtime().store
    job = store.jobs.job(job_id)
    budget = terms_of(job).budget_micros
    if budget is not None:
        emit_budget(job, store.purchases.spent(job_id), budget)


@runtime_task("book the ledger", market=True)
def book_ledger(job_id: str) -> Booked:
    """Bring the job's ledger up to now, each allocation by itself; an hour without a price stands at the bid.

    Allocations that ended a day before a booking with all prices are not looked at again: neither their lines nor their
    prices.

    Raises
    ------
    BillingError
        Naming an allocation of which nothing can be booked, when all others are.
    """
    runtime = current_runtime()
    last = runtime.store.jobs.last_observation(job_id, ObservationKind.BOOKED)
    after_s = None if last is None else last.at_s - FINAL_S
    records = runtime.store.purchases.allocations(job_id, after_s=after_s)
    spot = [record.allocation for record in records if record.allocation.bid_micros is not None]
    now_s, job = runtime.now_s(), runtime.store.jobs.job(job_id)
    if job.ended_at_s is not None and next_to_take_over(runtime.store, job) is not None:
        now_s = min(now_s, int(job.ended_at_s))  # what follows is for the next job to pay
    traces = _history([a.market for a in spot], min(a.launched_at_s for a in spot), now_s) if spot else {}
    billing = terms_of(job).billing_model
    booking = book(runtime.store, job_id, traces, runtime.catalog, now_s, billing, after_s, _planned(job_id))
    if booking.errors:
        raise booking.errors[0]
    unpriced = unpriced_hours(runtime.store.purchases.ledger(job_id, after_s))
    if not unpriced and (last is None or now_s - last.at_s >= HOUR_S):
        runtime.store.jobs.observe(job_id, now_s, ObservationKind.BOOKED, {})
    for booked, due in booking.disputed:
        _log.warning(
            "%s: booked as %s, and would be %s by the prices that are reported now; the ledger keeps the first",
            booked.entry_id,
            usd(booked.amount_micros),
            usd(due.amount_micros),
        )
    return Booked(len(booking.added), int(now_s), bool(unpriced))


def _history(markets: Sequence[Market], from_s: int, now_s: int) -> Mapping[Market, Trace]:
    """Return the prices of markets; none if the market does not answer: bids stand for them."""
    try:
        return history(sorted(set(markets)), min(from_s, now_s), now_s)
    except MarketError as error:
        _log.warning("bids stand for prices: the market did not report any (%s)", error.code)
        return {}


def _planned(job_id: str) -> Planned:
    """Return the on-demand prices with which a job was planned; its journal is read only where one is wanted."""

    def price(market: Market) -> Micros | None:
        kind = journal_of(job_id).refresh().holdings.types.get(market.instance_type)
        return None if kind is None else kind.on_demand_micros

    return price


def spending_now(spec: JobTerms, engine: JournalledEngine) -> Spending | None:
    """Return the worst case of the job's spending, for the decisions of this tick; None without a budget.

    Where whole hours are paid, a spot allocation of a job counts to the end of its last decided hour: the next one is a
    decision of its own. A sweep decides on no hours.
    """
    if spec.budget_micros is None:
        return None
    now_s, ends_s = current_runtime().now_s(), _ends_s(spec.job_id)
    by_hour = not spec.billing_model.by_second
    paid_until_s = _decided_until_s(engine) if by_hour and isinstance(engine, BidEngine) else {}
    committed = _worst_case(spec, engine)(lambda record: paid_until_s.get(record.allocation_id, now_s + ends_s))
    return Spending(spec.budget_micros, committed, now_s + max(ends_s, round(FIRST_S)))


def on_demand_spending_now(spec: JobSpec, engine: BidEngine) -> Spending | None:
    """Return the worst case of what machines on demand cost without the reliable tier; None: they have no limit."""
    limit_micros = spec.transient.on_demand_micros
    if limit_micros is None:
        return None
    ends_by_s = current_runtime().now_s() + _ends_s(spec.job_id)
    committed = _worst_case(spec, engine, _is_on_demand)(lambda record: ends_by_s)
    return Spending(limit_micros, committed, ends_by_s)


def _is_on_demand(record: AllocationRecord) -> bool:
    return record.allocation.bid_micros is None and record.allocation.tier is Tier.TRANSIENT


def lives_within_budget(spec: JobTerms, engine: JournalledEngine) -> Callable[[AllocationRecord], int] | None:
    """Return a function to the time until which an allocation can run without a further tick; None without a budget.

    No lease ends later, so that a job whose ticks have died does not pass its budget either. Where whole hours are paid
    and little is left, a spot allocation can run to the end of its last decided hour only: else all would end when its
    next hour begins.
    """
    budget_micros = spec.budget_micros
    if budget_micros is None:
        return None
    runtime = current_runtime()
    now_s, worst = runtime.now_s(), _worst_case(spec, engine)
    latest_s = now_s + round(runtime.settings.lease_minutes * MINUTE_S)
    all_until_s = lasts_until_s(lambda until_s: worst(lambda record: until_s), budget_micros, now_s, latest_s)
    if spec.billing_model.by_second or all_until_s >= now_s + _ends_s(spec.job_id) or not isinstance(engine, BidEngine):
        return lambda record: all_until_s
    decided_s = _decided_until_s(engine)

    def decided(until_s: int) -> Callable[[AllocationRecord], int]:
        return lambda record: min(decided_s.get(record.allocation_id, until_s), until_s)

    return decided(lasts_until_s(lambda until_s: worst(decided(until_s)), budget_micros, now_s, latest_s))


def _ends_s(job_id: str) -> int:
    """Return the seconds until running machines can be ended: a lost tick, one that stops, one that releases."""
    return round(3 * current_runtime().settings.tick_s + stop_s(job_id))


def _worst_case(
    spec: JobTerms,
    engine: JournalledEngine | None = None,
    counts: Callable[[AllocationRecord], bool] | None = None,
) -> Callable[[Callable[[AllocationRecord], int]], Micros]:
    """Return a function from the time until which machines run to the maximum of the ledger.

    Purchases without an answer count as made, and machines of the reliable tier that the job lacks as bought now. With
    the engine of a job, single machines of an allocation whose end is ordered end before their next hour.

    Parameters
    ----------
    counts : whether an allocation is among those whose cost is asked for; None: all are.
    """
    runtime = current_runtime()
    now_s, job_id = runtime.now_s(), spec.job_id
    ending = _ending(engine, now_s) if isinstance(engine, BidEngine) else {}
    records = [
        _ended(record, ending.get(record.allocation_id, {})) for record in runtime.store.purchases.allocations(job_id)
    ]
    recorded = {record.order_id for record in records}
    for intent in runtime.store.purchases.intents(job_id, [IntentState.PLANNED]):
        if intent.kind == "acquire" and intent.order_id not in recorded:
            tier = Tier.RELIABLE if is_reliable_order(job_id, intent.order_id) else Tier.TRANSIENT
            records.append(requested(intent, job_id, tier))
    if is_active(job_id):
        records += _missing_reliable(spec, records, now_s)
    booked = runtime.store.purchases.ledger(job_id)
    if counts is not None:
        records = [record for record in records if counts(record)]
        names = {record.allocation_id for record in records}
        booked = [line for line in booked if line.allocation_id in names]
    prices = _known_prices(records, now_s)
    billing = spec.billing_model

    def worst(until_s: Callable[[AllocationRecord], int]) -> Micros:
        def after_now_s(record: AllocationRecord) -> int:
            return max(until_s(record), now_s + 1)

        return most_owed(records, booked, prices, runtime.catalog, now_s, after_now_s, billing, _planned(job_id))

    return worst


def _ending(engine: BidEngine, now_s: int) -> dict[str, dict[str, tuple[int, EndCause]]]:
    """Return the ends to come of the machines that allocations lose which keep others: by allocation and instance."""
    return {
        name: dict.fromkeys(position.ending(), (position.lapse.before_s, EndCause.USER))
        for name, position in engine.holdings.positions.items()
        if position.standing is AllocationState.HELD and position.lapse is not None and position.lapse.before_s > now_s
    }


def _ended(record: AllocationRecord, ends: Mapping[str, tuple[int, EndCause]]) -> AllocationRecord:
    return replace(record, instance_ends={**ends, **record.instance_ends}) if record.alive and ends else record


def _decided_until_s(engine: BidEngine) -> dict[str, int]:
    """Return the end of the last hour that each transient allocation is certain to be held for."""
    return {
        name: position.allocation.launched_at_s
        + HOUR_S
        * (
            position.lapse.hour
            if position.lapse is not None and position.working is None
            else max(position.decided) + 1
        )
        for name, position in engine.holdings.positions.items()
        if position.allocation.tier is Tier.TRANSIENT
        and position.standing in (AllocationState.HELD, AllocationState.LAPSING)
    }


def _missing_reliable(spec: JobTerms, records: Sequence[AllocationRecord], now_s: int) -> list[AllocationRecord]:
    tier = spec.reliable
    if tier is None:
        return []
    reliable = [r for r in records if r.alive and r.allocation.tier is Tier.RELIABLE]
    missing = tier.count - sum(record.living_count for record in reliable)
    if missing < 1:
        return []
    bought_now = Allocation("reliable", Market(tier.instance_type, tier.zone), missing, now_s, Tier.RELIABLE)
    return [AllocationRecord(spec.job_id, bought_now, (), bought_now.allocation_id)]


def _known_prices(records: Sequence[AllocationRecord], now_s: int) -> Mapping[Market, Trace]:
    """Return the prices since the hours in progress began; none if the market does not answer: bids stand for them."""
    spot = [r.allocation for r in records if r.alive and r.allocation.bid_micros is not None]
    if not spot:
        return {}
    return _history([a.market for a in spot], min(a.launched_at_s + a.hour_index(now_s) * HOUR_S for a in spot), now_s)


def stop_s(job_id: str) -> float:
    """Return the market seconds that an end takes: two clocks, the model, the release of the machines."""
    runtime = current_runtime()
    scale = runtime.clock.scale
    last = runtime.store.jobs.last_observation(job_id, ObservationKind.PROGRESS)
    clock_s = 0.0 if last is None else float(last.payload.get("seconds_per_clock") or 0.0) * scale
    return max(_STOP_S, _STOP_REAL_S * scale) + 2 * clock_s


def stop_at_budget(spec: JobTerms, journal: EngineJournal[Any]) -> bool:
    """Request the stop of an open job whose budget is reached, and return whether it is; its model is saved.

    The market is asked which machines live before that is believed: some may have ended unseen. A
    stop that takes longer than the budget lasts ends the machines at once, and the last checkpoint remains.
    """
    runtime, job_id = current_runtime(), spec.job_id
    spending = spending_now(spec, journal.cached())
    if spending is None or not spending.is_reached:
        return False
    facts = observe_machines(job_id)
    decide_on(journal, facts, {}, lambda engine: ())
    spending = spending_now(spec, journal.cached())
    if spending is None or not spending.is_reached:
        return False
    shown = f"{usd(spending.budget_micros)}, {usd(spending.committed_micros)} committed"
    if is_active(job_id):
        _log.warning("%s: the budget is reached (%s): the job saves its model and stops", job_id, shown)
        request_stop(job_id, BUDGET, by="a tick")
        return True
    soon_s = runtime.now_s() + round(1.5 * runtime.settings.tick_s)
    if _worst_case(spec)(lambda record: soon_s) > spending.budget_micros:
        _log.warning("%s: the budget does not last until the model is saved (%s): the machines end", job_id, shown)
        request_stop(job_id, BUDGET, now=True, by="a tick")
    return True
