"""Send the request of an order, and record what the market answers.

A request is stored before it is sent for the first time, and every repetition sends it unchanged, so that the market
takes it for the same purchase. One that was ordered, and not sent, when the database began a newer generation is not
sent any more: another copy may have sent it, with another request.

An order whose outcome is unknown stays open: it is looked for by its tag and repeated, until its machines are found, or
the market has listed none of them for `SETTLES_S` and a repetition says that it bought nothing. What follows from which
answer is decided in `bidding.market.failures`.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import uuid4

from proteus_spot.bidding.engine.events import AllocationGone, AllocationGranted, AllocationRefused
from proteus_spot.bidding.engine.orders import Acquire, order_parts
from proteus_spot.bidding.engine.reconcile import ABANDONED, LISTED_S, grant_of
from proteus_spot.bidding.market.failures import (
    OF_ZONE,
    SETTLES_S,
    THROTTLED,
    TOKEN_ENDED,
    TOKEN_USED,
    Failure,
    Step,
    step_after,
)
from proteus_spot.bidding.market.model import (
    MINUTE_S,
    ORDER_TAG,
    Allocation,
    EndCause,
    InstanceFact,
    LaunchRequest,
    Tier,
)
from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.state.records import Intent, IntentState
from proteus_spot.infra.storage.blobs import BlobError
from proteus_spot.infra.storage.leases import FIRST_S
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.event_feed import emit_failed_launch
from proteus_spot.tasks.job_ends import is_active
from proteus_spot.tasks.market.engine_journal import EngineJournal, JobEngine
from proteus_spot.tasks.market.listed_machines import machine_tags, tier_of
from proteus_spot.tasks.market.purchases.fence import keep_fence
from proteus_spot.tasks.market.purchases.requests import from_record, launch_request, to_record
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)
#: Claim that stands while the market throttles, and its real seconds: no job on the database
#: asks for machines in addition to its reliable tier then.
_THROTTLES, _THROTTLED_S = "market-throttles", 60.0


class PurchaseBlocked(ProteusError):
    """Nothing can be bought until credentials, settings or the bucket are fixed; no order was lost by it."""


class Result(StrEnum):
    """What has become of an order."""

    GRANTED = "granted"
    REFUSED = "refused"  # nothing was bought
    OPEN = "open"  # its outcome is unknown, or nothing can be bought now: the same order again, later


@dataclass(frozen=True, slots=True)
class PurchaseOutcome:
    """What has become of an order, in a word and in a line; `failure` is the class of the market's error, if any."""

    result: Result
    line: str
    failure: Failure | None = None

    @property
    def blocked(self) -> bool:
        """Whether credentials or settings have to be fixed first."""
        return self.failure in (Failure.AUTH, Failure.CONFIGURATION)


@runtime_task("buy", market=True)
def buy(spec: JobSpec, job_engine: JobEngine, order: Acquire) -> PurchaseOutcome:
    """Carry out a purchase of spot machines, and record its outcome.

    An order that was answered meanwhile (because its job was closed, for instance) is not carried out.
    """
    if order.order_id not in job_engine.refresh().holdings.open_orders:
        return PurchaseOutcome(Result.GRANTED, "answered meanwhile")
    if not is_active(spec.job_id):
        return PurchaseOutcome(Result.OPEN, "the job is to stop")
    store = current_runtime().store
    if store.purchases.intent(order.order_id).request is None and store.claims.is_claimed(_THROTTLES):
        return PurchaseOutcome(Result.OPEN, "not bought yet: the market throttles, and all jobs wait a minute")

    def request(intent: Intent) -> LaunchRequest:
        return launch_request(
            spec.job_id,
            order.order_id,
            order.market,
            order.count,
            Tier.TRANSIENT,
            token=intent.token or "",
            bid_micros=order.bid_micros,
            today=not job_engine.cached().holdings.opened.evictions.bids_decide,
            unit=spec.transient.unit,
        )

    return send(job_engine, order.order_id, request)


def send(
    job_engine: EngineJournal[Any], order_id: str, make_request: Callable[[Intent], LaunchRequest]
) -> PurchaseOutcome:
    """Send the request of a planned order once, and record the answer.

    Parameters
    ----------
    make_request : returns the request of the intent; called only if none was stored.

    Raises
    ------
    InputError
        If the account or the region is another one than before.
    Superseded
        If another copy of the state database has the job.
    """
    try:
        keep_fence(job_engine.job_id)
        return _send(job_engine, order_id, make_request)
    except MarketError as error:  # while it was looked for, or its request was made: nothing was sent
        current_runtime().store.purchases.note_answer(order_id, _answer(error))
        return PurchaseOutcome(Result.OPEN, f"not bought yet: {error}", error.failure)
    except BlobError as error:  # while the fence was asked
        return PurchaseOutcome(Result.OPEN, f"not bought yet: {error}", Failure.CONFIGURATION)


def _send(
    job_engine: EngineJournal[Any], order_id: str, make_request: Callable[[Intent], LaunchRequest]
) -> PurchaseOutcome:
    runtime = current_runtime()
    market = runtime.pinned_market()
    intent = runtime.store.purchases.intent(order_id)
    record = to_record(make_request(intent)) if intent.request is None else dict(intent.request)
    is_of_before = intent.request is None and _is_of_another_generation(job_engine.job_id, order_id)
    if (intent.request is not None or is_of_before) and (found := _look(job_engine.job_id, intent)):
        return _grant(job_engine, order_id, from_record(record), found)
    if is_of_before:
        why = "it was ordered before this state database was copied or restored, and not sent: another may have sent it"
        _refuse(job_engine, AllocationRefused(runtime.now_s(), order_id, ABANDONED, why))
        return PurchaseOutcome(Result.REFUSED, f"not bought: {why}")
    before = runtime.store.purchases.begin_sending(order_id, record, runtime.clock.now_s())
    if before.state is not IntentState.PLANNED or before.request is None:
        return PurchaseOutcome(Result.OPEN, f"{order_id} was answered meanwhile")
    request = from_record(before.request)
    try:
        facts = market.launch(request)
    except MarketError as error:
        return _failed(job_engine, before, request, error)
    return _grant(job_engine, order_id, request, facts)


def _is_of_another_generation(job_id: str, order_id: str) -> bool:
    ours = current_runtime().store.owner.identity().generation_of_orders
    return order_parts(job_id, order_id)[0] != ours


def _look(job_id: str, intent: Intent) -> list[InstanceFact]:
    """Return the machines of an order that the market lists, once it reports all of them completely."""
    tags = [*machine_tags(job_id), (ORDER_TAG, intent.order_id)]
    facts = current_runtime().market.describe(tags, tokens=[intent.token or ""])
    return facts if all(fact.complete for fact in facts) else []


def _grant(
    job_engine: EngineJournal[Any], order_id: str, request: LaunchRequest, facts: list[InstanceFact]
) -> PurchaseOutcome:
    granted = grant_of(order_id, facts, tier_of(request.tags), current_runtime().now_s())
    job_engine.commit(lambda engine: [] if order_id in engine.holdings.positions else [granted], {order_id: facts})
    return PurchaseOutcome(Result.GRANTED, f"granted: {len(facts)} x {facts[0].market}")


def _failed(
    job_engine: EngineJournal[Any], before: Intent, request: LaunchRequest, error: MarketError
) -> PurchaseOutcome:
    """Record the failure of a request, and return what follows from it."""
    runtime, order_id = current_runtime(), before.order_id
    now_s, failure = runtime.clock.now_s(), error.failure
    if error.code in THROTTLED:
        runtime.store.claims.claim(_THROTTLES, uuid4().hex, _THROTTLED_S)
    step = step_after(failure, error.code, before.doubtful_since_s, now_s)
    if step is Step.REMAKE and error.code in OF_ZONE and before.params["bid_micros"] is not None:
        step = Step.REFUSE  # another market may sell, while the alarm is raised for this one
    doubtful_since_s = before.doubtful_since_s
    if failure is Failure.UNKNOWN and doubtful_since_s is None:
        doubtful_since_s = now_s
    runtime.store.purchases.end_sending(
        order_id, _answer(error), doubtful_since_s, keep_request=step is not Step.REMAKE
    )
    if error.code in TOKEN_USED and (found := _look(job_engine.job_id, before)):
        return _grant(job_engine, order_id, request, found)
    _log.warning("%s: %s (%s): %s", order_id, error, failure, step)
    if failure in (Failure.AUTH, Failure.CONFIGURATION, Failure.QUOTA):
        emit_failed_launch(runtime.store.jobs.job(job_engine.job_id), str(request.market), error.code, now_s)
    if step is Step.ABANDON and error.code == TOKEN_ENDED:
        _record_unobserved_purchase(job_engine, before)
        return PurchaseOutcome(Result.REFUSED, f"bought, and ended before it was seen: {error}", failure)
    if step in (Step.REFUSE, Step.ABANDON):
        code = error.code if step is Step.REFUSE else ABANDONED
        _refuse(job_engine, AllocationRefused(runtime.now_s(), order_id, code, error.message))
        return PurchaseOutcome(Result.REFUSED, f"refused: {error}", failure)
    return PurchaseOutcome(Result.OPEN, f"not bought yet: {error}", failure)


def _record_unobserved_purchase(job_engine: EngineJournal[Any], before: Intent) -> None:
    """Enter a purchase whose machines have ended before they were seen, or may have.

    No tick has extended their first lease, which bounds their lives. So the ledger may show more than the bill, never
    less.
    """
    assert before.request is not None
    request, now_s = from_record(before.request), current_runtime().now_s()
    launched_s = int(now_s if before.doubtful_since_s is None else before.doubtful_since_s)
    allocation = Allocation(
        before.order_id, request.market, request.count, launched_s, tier_of(request.tags), request.bid_micros
    )
    ended_s = min(launched_s + int(FIRST_S) + MINUTE_S, now_s)
    events = [
        AllocationGranted(now_s, before.order_id, allocation),
        AllocationGone(ended_s, before.order_id, EndCause.USER),
    ]
    job_engine.commit(lambda engine: [] if before.order_id in engine.holdings.positions else events)


def _refuse(job_engine: EngineJournal[Any], refused: AllocationRefused) -> None:
    """Enter a refusal, unless another process has found the machines of the order meanwhile."""
    job_engine.commit(lambda engine: [] if refused.order_id in engine.holdings.positions else [refused])


def _answer(error: MarketError) -> dict[str, Any]:
    now_s = current_runtime().clock.now_s()
    return {"code": error.code, "message": error.message, "failure": str(error.failure), "at_s": now_s}


def abandon_orders(
    job_engine: EngineJournal[Any], why: str = "the job ended before it was bought", wanted: Collection[str] = ()
) -> None:
    """Abandon the open orders but those that are `wanted`: of an ended job, of trials that need no machine any more.

    An order whose outcome is unknown stays open, and is looked for by every tick, for `SETTLES_S` after its request. If
    no tick came until the market had forgotten machines that have ended, the order is entered as bought.
    """
    runtime, job_id = current_runtime(), job_engine.job_id
    now_s = runtime.clock.now_s()
    for intent in runtime.store.purchases.intents(job_id, [IntentState.PLANNED]):
        if intent.kind != "acquire" or intent.order_id in wanted or is_in_doubt(intent, now_s):
            continue
        if intent.doubtful_since_s is not None and now_s - intent.doubtful_since_s >= LISTED_S:
            _log.warning("%s: whether it was bought is not known: it is booked as if it was", intent.order_id)
            _record_unobserved_purchase(job_engine, intent)
        else:
            _refuse(job_engine, AllocationRefused(runtime.now_s(), intent.order_id, ABANDONED, why))


def is_in_doubt(intent: Intent, now_s: float) -> bool:
    """Return whether machines of an open order may exist that the market does not list yet."""
    return intent.doubtful_since_s is not None and now_s - intent.doubtful_since_s < SETTLES_S
