"""The machines of the reliable tier, bought on demand: bought, bought again when they are lost, released.

The tier has two purchases: the machine that the controller runs on, and all others. Each is a chain of orders, of which
one is open at a time: an order follows when the one before was refused, or when machines that it bought were lost. What
another copy of the state database has ordered, and is found, is part of the chain.
"""

import logging

from proteus_spot.bidding.engine.orders import client_token, order_id_of
from proteus_spot.bidding.engine.reconcile import by_order
from proteus_spot.bidding.market.failures import Failure
from proteus_spot.bidding.market.model import Market, Tier
from proteus_spot.bidding.market.money import usd
from proteus_spot.infra.errors import JobFailed
from proteus_spot.infra.state.records import AllocationRecord, Intent, IntentState, JobState
from proteus_spot.infra.state.store import Store
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_ends import is_active
from proteus_spot.tasks.job_queues import next_to_take_over
from proteus_spot.tasks.job_records import saved_result
from proteus_spot.tasks.market.bookkeeping import stop_at_budget
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.listed_machines import end, job_machines, observed_events
from proteus_spot.tasks.market.purchases.order_chains import (
    CONTROLLER_ORDER,
    OTHERS_ORDER,
    name_in_chain,
    place_in_chain,
    purchase,
)
from proteus_spot.tasks.market.purchases.requests import launch_request
from proteus_spot.tasks.market.purchases.sending import PurchaseBlocked, PurchaseOutcome, Result, send
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)

#: Maximum number of times that the machines of one purchase are bought again after a loss.
_MOST_LOSSES = 5
#: Seconds between two sendings of an order whose outcome is unknown.
_RESEND_S = 10
#: Seconds after which machines whose launch failed are bought again.
_DIED_S = 600


@runtime_task("secure reliable tier", market=True)
def secure_reliable_tier(spec: JobSpec, job_engine: JobEngine) -> str | None:
    """Buy the machines of the reliable tier that are missing, or find them bought; the controller's machine first.

    Lost ones (released by a paused local run, for instance) are replaced, and the training resumes from its
    checkpoint. What the market does not sell now is asked for again, at most once a tick.

    Returns
    -------
    str or None
        None if all are there, else one line on what the job waits for.

    Raises
    ------
    JobFailed
        If they are lost again and again.
    PurchaseBlocked
        If credentials or settings have to be fixed first; the job stays as it is.
    """
    if saved_result(spec.job_id) is not None or not is_active(spec.job_id):
        return None  # a tick found the work done, or the job is to stop
    if spec.budget_micros is not None and stop_at_budget(spec, job_engine):  # what is missing counts as bought
        return f"the budget of {usd(spec.budget_micros)} does not pay the reliable tier: the job stops"
    store = current_runtime().store
    if store.owner.identity().generation_of_orders and missing_machines(spec, store):
        _enter_listed(job_engine)  # another copy of the state database may have bought some
    for part, count in _parts(spec).items():
        outcome = _secure_part(spec, job_engine, part, count)
        if outcome is None or outcome.result is Result.GRANTED:
            continue
        if outcome.blocked:
            raise PurchaseBlocked(
                f"job {spec.job_id}: the reliable tier cannot be bought: {outcome.line}; fix that, and the next tick "
                "buys it (or run `train` again)"
            )
        if outcome.result is Result.REFUSED and part == CONTROLLER_ORDER:
            _move(spec.job_id, JobState.WAITING)
        return f"the reliable tier ({spec.reliable.instance_type}/{spec.reliable.zone}) waits: {outcome.line}"
    return None


def await_reliable_tier(spec: JobSpec, job_engine: JobEngine) -> None:
    """Secure the reliable tier, waiting while the market does not sell it; raises as `secure_reliable_tier` does."""
    clock, pause_s, before = current_runtime().clock, float(_RESEND_S), ""
    while (waits := secure_reliable_tier(spec, job_engine)) is not None:
        if waits != before:
            _log.warning("job %s: %s", spec.job_id, waits)
        before = waits
        clock.wait_until(clock.now_s() + pause_s)
        pause_s = min(2 * pause_s, current_runtime().settings.tick_s)


def is_reliable_tier_complete(spec: JobSpec) -> bool:
    """Return whether every machine of the reliable tier is held."""
    return missing_machines(spec, current_runtime().store) == 0


def missing_machines(spec: JobSpec, store: Store) -> int:
    """Return how many machines of the reliable tier are not held, by the book."""
    records = store.purchases.allocations(spec.job_id, alive=True)
    return sum(max(count - _alive(records, part), 0) for part, count in _parts(spec).items())


def surplus_machines(spec: JobSpec) -> list[str]:
    """Return the machines of the reliable tier beyond those that the job wants: the ones launched first.

    There are some when a machine was given up and bought again, and then is listed alive after all.
    """
    records = current_runtime().store.purchases.allocations(spec.job_id, alive=True)
    surplus: list[str] = []
    for part, count in _parts(spec).items():
        bought = [record for record in records if purchase(spec.job_id, record.order_id) == part]
        newest_first = sorted(bought, key=lambda record: -record.allocation.launched_at_s)
        surplus += [name for record in newest_first for name in record.living_ids][count:]
    return surplus


def _parts(spec: JobSpec) -> dict[str, int]:
    parts = {CONTROLLER_ORDER: 1, OTHERS_ORDER: spec.reliable.count - 1}
    return {part: count for part, count in parts.items() if count}


def _alive(records: list[AllocationRecord], part: str) -> int:
    """Return how many machines of a purchase are held."""
    return sum(record.living_count for record in records if purchase(record.job_id, record.order_id) == part)


def _secure_part(spec: JobSpec, job_engine: JobEngine, part: str, count: int) -> PurchaseOutcome | None:
    """Buy what is missing of one purchase; return the outcome, None if nothing is missing."""
    runtime = current_runtime()
    store, now_s, job_id = runtime.store, runtime.clock.now_s(), spec.job_id
    records = [record for record in store.purchases.allocations(job_id) if purchase(job_id, record.order_id) == part]
    missing = count - sum(record.living_count for record in records)
    if missing <= 0:
        return None
    chain = [intent for intent in store.purchases.intents(job_id) if purchase(job_id, intent.order_id) == part]
    chain.sort(key=lambda intent: (intent.state is IntentState.PLANNED, place_in_chain(job_id, intent.order_id)))
    last = chain[-1] if chain else None
    if last is None or last.state is not IntentState.PLANNED:
        waits = _waits(last, now_s)
        if waits is not None:
            return waits
        begun_s = job_engine.refresh().holdings.begun_at_s
        since = [record for record in records if record.allocation.launched_at_s >= begun_s]
        unsold = {intent.order_id for intent in chain if _failure(intent) is Failure.CAPACITY}
        since = [record for record in since if record.order_id not in unsold]  # capacity is waited for, however long
        losses = sum(record.living_count < record.allocation.count for record in since)
        if losses > _MOST_LOSSES:
            raise JobFailed(f"job {job_id}: the reliable tier was lost {losses} times; find out what ends it")
        name = part if last is None else name_in_chain(part, place_in_chain(job_id, last.order_id) + 1)
        order_id = order_id_of(job_id, store.owner.identity().generation_of_orders, name)
        if last is not None and last.state is IntentState.REFUSED and _failure(last) is Failure.QUOTA:
            missing = min(missing, max(int(last.params["count"]) // 2, 1))
        market = Market(spec.reliable.instance_type, spec.reliable.zone)
        params = {"market": str(market), "count": missing, "bid_micros": None}
        token = client_token(runtime.owner, order_id)
        last = store.purchases.plan(order_id, job_id, "acquire", token, params, now_s)
    elif last.answer is not None and now_s - float(last.answer["at_s"]) < _RESEND_S:
        return PurchaseOutcome(Result.OPEN, _line(last), _failure(last))
    return send(
        job_engine,
        last.order_id,
        lambda intent: launch_request(
            job_id,
            intent.order_id,
            Market.parse(intent.params["market"]),
            int(intent.params["count"]),
            Tier.RELIABLE,
            token=intent.token or "",
            controller=part == CONTROLLER_ORDER,
            unit=spec.transient.unit,
        ),
    )


def _waits(last: Intent | None, now_s: float) -> PurchaseOutcome | None:
    """Return what a purchase waits for if its last order was refused, or its machines died, a short time ago."""
    if last is None or last.answer is None:
        return None
    # Of two ticks in a row the second may come a little less than a period after what the first was answered.
    patience_s = _DIED_S if last.state is IntentState.DONE else current_runtime().settings.tick_s / 2
    if now_s - float(last.answer["at_s"]) >= patience_s:
        return None
    return PurchaseOutcome(Result.REFUSED, _line(last), _failure(last))


def _failure(intent: Intent) -> Failure | None:
    return None if intent.answer is None else Failure(intent.answer["failure"])


def _line(intent: Intent) -> str:
    answer = intent.answer or {}
    return f"{answer.get('code')}: {answer.get('message')}"


def _move(job_id: str, state: JobState) -> None:
    """Move an open job to `state`, unless it is stopped or ended at this moment."""
    runtime = current_runtime()
    if is_active(job_id):
        runtime.store.jobs.move_job(job_id, state, runtime.clock.now_s())


@runtime_task("release reliable tier", market=True)
def release_reliable_tier(job_engine: JobEngine) -> None:
    """Terminate the machines that were bought on demand, and record their end.

    Spot machines stay to the end of their paid hour: an eviction until then refunds the hour.
    """
    runtime, job_id = current_runtime(), job_engine.job_id
    records = runtime.store.purchases.allocations(job_id, alive=True)
    names = [record.allocation_id for record in records if record.allocation.tier is Tier.RELIABLE]
    if not names:
        return
    facts = by_order(job_machines(job_id))
    end(job_id, [fact.instance_id for name in names for fact in facts.get(name, ()) if fact.alive])
    _enter_listed(job_engine)


def release_at_end(job_engine: JobEngine) -> None:
    """Release the reliable tier of a job that has ended, unless the next job of its queue takes it over."""
    store = current_runtime().store
    if next_to_take_over(store, store.jobs.job(job_engine.job_id)) is None:
        release_reliable_tier(job_engine)


def _enter_listed(job_engine: JobEngine) -> None:
    """Bring the book of the job up to what the market lists."""
    facts, now_s = job_machines(job_engine.job_id), current_runtime().now_s()
    job_engine.commit(lambda engine: observed_events(engine.holdings, facts, now_s), by_order(facts))
