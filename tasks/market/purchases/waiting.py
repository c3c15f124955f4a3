"""What the purchases of an open job wait for, in one line for a list of jobs."""

from proteus_spot.bidding.market.failures import Failure
from proteus_spot.infra.state.records import Intent, IntentState, Job, JobKind
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.job_records import recorded_spec
from proteus_spot.tasks.market.purchases.order_chains import is_reliable_order

_FIXES = {
    Failure.CAPACITY: "asked for again at each tick, in the same market",
    Failure.QUOTA: "fewer machines are tried; ask AWS for a higher quota",
    Failure.AUTH: "fix the credentials; each tick tries again",
    Failure.CONFIGURATION: "fix the setting; each tick tries again",
    Failure.UNKNOWN: "looked for, and repeated unchanged, by each tick",
}


def what_purchases_wait_for(store: Store, job: Job) -> str:
    """Return what the newest purchase of an open job that is not answered, or was refused, waits for; or ''.

    A refused purchase counts if it is of the reliable tier, which the job needs, or was refused for the
    account's quota.
    """
    if job.state.terminal:
        return ""
    waiting = [
        intent
        for intent in store.purchases.intents(job.job_id)
        if intent.kind == "acquire" and intent.answer is not None
    ]
    if not waiting:
        return ""
    last = max(waiting, key=lambda intent: float((intent.answer or {})["at_s"]))
    answer = last.answer or {}
    failure = Failure(answer["failure"])
    if last.state is IntentState.DONE and last.params["bid_micros"] is not None:
        bought = [each for each in store.purchases.intents(job.job_id) if each.kind == "acquire"]
        if any(each.planned_at_s > last.planned_at_s for each in bought):
            return ""  # machines that were bought since
        return f"{last.params['market']}: {answer['code']}: {answer['message']}: the market is left alone for a while"
    if last.state is not IntentState.PLANNED and not _matters(store, job, last, failure):
        return ""
    return f"{last.params['market']}: {answer['code']}: {answer['message']}: {_FIXES[failure]}"


def _matters(store: Store, job: Job, intent: Intent, failure: Failure) -> bool:
    # Few lists of jobs need it, and it brings along all of buying.
    from proteus_spot.tasks.market.purchases.reliable_purchases import missing_machines

    if job.kind is JobKind.JOB and is_reliable_order(job.job_id, intent.order_id):
        return missing_machines(recorded_spec(job), store) > 0
    return failure is Failure.QUOTA
