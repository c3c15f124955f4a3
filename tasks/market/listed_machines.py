"""Machines of jobs: their tags, look-up and termination.

A machine is known by its id, and one of an open order by the client token of its purchase. Its tags are a copy, for
people and for machines that this database does not know.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from proteus_spot.bidding.engine.events import BidEvent
from proteus_spot.bidding.engine.orders import Lapse
from proteus_spot.bidding.engine.reconcile import (
    LISTED_S,
    ReconciledHoldings,
    by_order,
    forgotten_ids,
    pending_notice_s,
    reconcile,
)
from proteus_spot.bidding.market.model import JOB_TAG, ORDER_TAG, OWNER_TAG, InstanceFact, Tier
from proteus_spot.infra.state.records import IntentState
from proteus_spot.infra.storage.blobs import BlobError, BlobMissing
from proteus_spot.infra.storage.leases import Lease, read_lease, write_leases
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)
#: Tag of the tier of every machine of ours.
TIER_TAG = "proteus:tier"


def machine_tags(job_id: str) -> list[tuple[str, str]]:
    """Return the tags by which the job's machines are found: another owner may have a job of the same id."""
    return [(OWNER_TAG, current_runtime().owner), (JOB_TAG, job_id)]


def job_machines(job_id: str) -> list[InstanceFact]:
    """Return every machine of the job that the market lists, with the tags that it has by the book.

    Machines that were bought for it, and that another job has taken over, are not among them.
    """
    runtime = current_runtime()
    store, tags = runtime.store, machine_tags(job_id)
    records = store.purchases.allocations(job_id, after_s=runtime.clock.now_s() - LISTED_S)
    known = {
        name: {ORDER_TAG: record.allocation_id, TIER_TAG: str(record.allocation.tier)}
        for record in sorted(records, key=lambda record: record.alive)  # it may have come back from another job
        for name in record.instance_ids
    }
    sent = {
        intent.token: {ORDER_TAG: intent.order_id, TIER_TAG: str(tier_of(intent.request["tags"]))}
        for intent in store.purchases.intents(job_id, [IntentState.PLANNED])
        if intent.token is not None and intent.request is not None
    }
    living = [name for record in records for name in record.living_ids]
    facts = runtime.pinned_market().describe(tags, living, list(sent))
    handed_on = store.purchases.handed_on(job_id).difference(living)
    return [
        _tagged(fact, tags, known.get(fact.instance_id) or sent.get(fact.token))
        for fact in facts
        if fact.instance_id not in handed_on
    ]


def _tagged(fact: InstanceFact, tags: Sequence[tuple[str, str]], by_book: Mapping[str, str] | None) -> InstanceFact:
    return fact if by_book is None else replace(fact, tags={**fact.tags, **dict(tags), **by_book})


def tier_of(tags: Mapping[str, str]) -> Tier:
    """Return the tier that tags name."""
    return Tier(tags.get(TIER_TAG, Tier.TRANSIENT))


def tiers_of(facts: Sequence[InstanceFact]) -> dict[str, Tier]:
    """Return the tier of each purchase, by its order, from the machines' tags."""
    return {fact.order_id: tier_of(fact.tags) for fact in facts}


@runtime_task("observe machines", market=True)
def observe_machines(job_id: str) -> list[InstanceFact]:
    """Return every machine of the job that the market lists."""
    return job_machines(job_id)


def observed_events(held: ReconciledHoldings, facts: Sequence[InstanceFact], now_s: int) -> list[BidEvent]:
    """Return the events that bring the book of a job up to what the market lists (`reconcile`).

    A machine that the market does not list has ended with its last lease that was written; where the bucket does not
    answer, with the last that a tick can have written.
    """
    runtime, groups, job_id = current_runtime(), by_order(facts), held.job_id or ""
    ends_s: dict[str, float | None] = {}
    forgotten = forgotten_ids(held, groups)
    buyers = runtime.store.purchases.buyers(job_id) if forgotten else {}
    for name in forgotten:
        try:
            ends_s[name] = read_lease(runtime.blobs, buyers.get(name, job_id), name).until_s
        except BlobMissing:
            ends_s[name] = None
        except BlobError:
            continue
    return reconcile(held, groups, tiers_of(facts), now_s, 60 * runtime.settings.lease_minutes, ends_s)


@runtime_task("let go", market=True)
def let_go(job_id: str, ending: Mapping[str, Collection[str]]) -> list[str]:
    """Terminate machines of allocations; return their instances.

    A machine that the market is about to take is left to it: an eviction refunds the hour.

    Parameters
    ----------
    ending : the instances that end, by allocation; none are all of them.
    """
    facts = by_order(job_machines(job_id))
    ended = [
        fact
        for allocation_id, names in ending.items()
        for fact in facts.get(allocation_id, ())
        if fact.alive and (not names or fact.instance_id in names)
    ]
    ids = [fact.instance_id for fact in ended if pending_notice_s(fact, current_runtime().now_s()) is None]
    end(job_id, ids)
    return ids


def end(job_id: str, instance_ids: Sequence[str]) -> None:
    """Terminate machines of a job, and write that their leases end now: it bounds an end that nobody sees."""
    if not instance_ids:
        return
    runtime = current_runtime()
    runtime.market.terminate(instance_ids)
    lease = Lease(runtime.now_s(), reason="its job has ended it", is_last=True)
    errors = write_leases(
        runtime.blobs, job_id, dict.fromkeys(instance_ids, lease), runtime.store.purchases.buyers(job_id)
    )
    for name, error in errors.items():
        _log.warning("%s: if nobody sees its end, it is charged to the end of its lease: %s", name, error)


@runtime_task("terminate", market=True)
def terminate(instance_ids: Sequence[str]) -> None:
    """Terminate machines of any job."""
    if instance_ids:
        current_runtime().market.terminate(instance_ids)


def machine_names(job_id: str, ending: Mapping[str, Collection[str]]) -> list[str]:
    """Return the living instances that end (see `let_go`), which is what the controller calls its nodes."""
    records = current_runtime().store.purchases.allocations(job_id, alive=True)
    return [
        name
        for record in records
        if (names := ending.get(record.allocation_id)) is not None
        for name in record.living_ids
        if not names or name in names
    ]


def ended_by(lapses: Sequence[Lapse]) -> dict[str, tuple[str, ...]]:
    """Return the instances that end by orders of the engine, by allocation, as `let_go` takes them."""
    return {lapse.allocation_id: lapse.instance_ids for lapse in lapses}
