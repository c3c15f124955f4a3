"""Reaping: the machines of this owner that nothing needs, by machine."""

import logging

from proteus_spot.bidding.engine.reconcile import by_order
from proteus_spot.bidding.market.model import JOB_TAG, OWNER_TAG, InstanceFact, InstanceState
from proteus_spot.infra.state.records import IntentState
from proteus_spot.infra.storage.blobs import BlobError
from proteus_spot.tasks.job_records import is_known, ticking_jobs
from proteus_spot.tasks.market.engine_journal import journal_of
from proteus_spot.tasks.market.job_opening import is_opened
from proteus_spot.tasks.market.listed_machines import job_machines, observed_events
from proteus_spot.tasks.market.purchases.fence import has_fence, holds_fence
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

_log = logging.getLogger(__name__)


@runtime_task("find orphans", market=True)
def orphans() -> dict[str, list[str]]:
    """Return the machines of this owner that no job will end, by the job on their tag.

    They live, or were stopped by hand: such a machine is lost to its job, its disk is paid, and it may be started.
    Whatever its tags and the state of its job, a machine is needed if it is in the book as a living one of an
    allocation, or if it belongs to a purchase that is not answered yet and whose job still gets the ticks that answer
    it. A launch of the last two ticks may not be recorded yet.

    A job that another copy of this state database ticks, or that was begun since this one was copied or restored from a
    backup, is left to the other: its machines are unknown here, and needed there.
    """
    runtime = current_runtime()
    store = runtime.store
    now_s, grace_s = runtime.now_s(), 2 * runtime.settings.tick_s
    listed = runtime.pinned_market().describe([(OWNER_TAG, runtime.owner)])
    facts = [fact for fact in listed if fact.alive or fact.state is InstanceState.STOPPED]
    grown = [fact for fact in facts if now_s - fact.launched_at_s >= grace_s]
    found: dict[str, list[InstanceFact]] = {}
    living = store.purchases.living_instances()
    planned = [intent for job_id in ticking_jobs() for intent in store.purchases.intents(job_id, [IntentState.PLANNED])]
    awaited = {name for intent in planned for name in (intent.token, intent.order_id)}
    for fact in sorted(grown, key=lambda fact: (fact.tags.get(JOB_TAG, ""), fact.launched_at_s)):
        if fact.instance_id not in living and awaited.isdisjoint((fact.token, fact.order_id)):
            found.setdefault(fact.tags.get(JOB_TAG, ""), []).append(fact)
    ours = {job_id: [fact.instance_id for fact in facts if _is_ours(job_id, fact)] for job_id, facts in found.items()}
    return {job_id: names for job_id, names in ours.items() if names}


def _is_ours(job_id: str, fact: InstanceFact) -> bool:
    """Return whether no other copy of this state database may need a machine that this one does not know."""
    newest_s = current_runtime().store.journals.newest_entry_s()
    is_younger = newest_s is None or fact.launched_at_s > newest_s
    try:
        is_left = not holds_fence(job_id) if is_known(job_id) else is_younger or has_fence(job_id)
    except BlobError as error:
        _log.error("job %s: %s is not ended, as the fence of its job is not known: %s", job_id, fact.instance_id, error)
        return False
    if is_left:
        _log.warning("job %s: %s is left to another copy of this state database", job_id, fact.instance_id)
    return not is_left


@runtime_task("enter orphans", market=True)
def enter(job_id: str) -> None:
    """Enter a job's machines in its journal and tables as the market lists them, so that the ledger books their cost.

    It comes before the orphans end: if that fails they are in the book, and the job's ticks end them.
    """
    runtime, job_engine = current_runtime(), journal_of(job_id)
    if not is_known(job_id) or not is_opened(job_engine):
        return
    facts = job_machines(job_id)
    job_engine.commit(lambda engine: observed_events(engine.holdings, facts, runtime.now_s()), by_order(facts))
