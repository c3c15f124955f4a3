"""Machines: lookup, purchase and termination. Every purchase has a token, so repeating one is harmless."""

from collections.abc import Mapping, Sequence

from bidding.engine.events import AllocationRefused, BidEvent
from bidding.engine.orders import Acquire
from bidding.engine.reconcile import by_token, grant_of, pending_notice_s, reconcile
from bidding.market.model import InstanceFact, LaunchRequest, Market, Tier
from bidding.market.spot_market import BadRequest, LaunchRefused, TokenMismatch
from infra.ec2.user_data import NodeBoot, user_data
from infra.errors import JobFailed
from tasks.job_ends import wants_machines
from tasks.job_records import saved_result
from tasks.job_spec import JobSpec
from tasks.market.engine_journal import JobEngine
from tasks.market.opening import type_on_sale
from tasks.runtime import current_runtime, runtime_task

#: Tags of every machine of ours: its owner, its job and its tier.
OWNER_TAG = "proteus:owner"
JOB_TAG = "proteus:job"
TIER_TAG = "proteus:tier"
#: Seconds after which a clean-up of the account may end a machine (its tag `proteus:expires`), unless its job is open.
_EXPIRES_S = 7 * 86_400
#: Maximum number of times that the reliable tier is bought again.
_MOST_OTHERS = 5
_AGAIN = "-again-"
#: Suffix of the order for the machine that the controller runs on.
CONTROLLER_ORDER = "reliable-0"


def job_tag(job_id: str) -> tuple[str, str]:
    """Return the tag that the job's machines carry."""
    return (JOB_TAG, job_id)


def tiers_of(facts: Sequence[InstanceFact]) -> dict[str, Tier]:
    """Return the tier of each purchase, by its token, from the machines' tags."""
    return {fact.token: Tier(fact.tags.get(TIER_TAG, Tier.TRANSIENT)) for fact in facts}


@runtime_task("observe machines", market=True)
def observe_machines(job_id: str) -> list[InstanceFact]:
    """Return every machine of the job that the market lists."""
    return current_runtime().market.describe([job_tag(job_id)])


@runtime_task("buy", market=True)
def buy(spec: JobSpec, job_engine: JobEngine, order: Acquire) -> str:
    """Carry out a purchase and record its outcome; return that in a few words.

    An order that was answered meanwhile (because its job was closed, for instance) is not carried out.
    """
    open_order = job_engine.current().open_order
    if open_order is None or open_order.order_id != order.order_id:
        return "answered meanwhile"
    if not wants_machines(spec.job_id):
        return "the job is to stop"
    request = _request(spec, order.order_id, order.market, order.count, Tier.TRANSIENT, bid_micros=order.bid_micros)
    return _launch(job_engine, request)


@runtime_task("secure reliable tier", market=True)
def secure_reliable_tier(spec: JobSpec, job_engine: JobEngine) -> None:
    """Buy the machines of the reliable tier, or find them bought; the controller's machine first.

    Lost ones (released by a paused local run, for instance) are replaced machine by machine, and the training resumes
    from its checkpoint.

    Raises
    ------
    JobFailed
        If the market refuses: without them there is no job. Also if they are lost again and again.
    """
    runtime = current_runtime()
    if saved_result(spec.job_id) is not None or not wants_machines(spec.job_id):
        return  # a tick found the work done, or the job is to stop
    market = Market(spec.reliable.instance_type, spec.reliable.zone)
    parts = {CONTROLLER_ORDER: 1, "reliable-1": spec.reliable.count - 1}
    for suffix, count in parts.items():
        if not count:
            continue
        first = f"{spec.job_id}-{suffix}"
        bought = [r for r in runtime.store.allocations(spec.job_id) if r.order_id in (first, *_others(first))]
        count -= sum(record.living_count for record in bought)
        if count < 1:
            continue  # by an earlier run
        if len(bought) > _MOST_OTHERS:
            raise JobFailed(f"job {spec.job_id}: the reliable tier was lost {len(bought)} times; see who ends it")
        order_id = (first, *_others(first))[len(bought)]
        params = {"market": str(market), "count": count, "bid_micros": None}
        runtime.store.plan(order_id, spec.job_id, "acquire", order_id, params, runtime.clock.now_s())
        request = _request(spec, order_id, market, count, Tier.RELIABLE, controller=suffix == CONTROLLER_ORDER)
        outcome = _launch(job_engine, request)
        if not outcome.startswith("granted"):
            raise JobFailed(f"job {spec.job_id}: the reliable tier could not be bought: {outcome}")


def _others(order_id: str) -> tuple[str, ...]:
    """Return the orders that follow `order_id`, one after the other, when the machines it bought were lost."""
    return tuple(f"{order_id}{_AGAIN}{number}" for number in range(1, _MOST_OTHERS + 1))


def purchase(order_id: str) -> str:
    """Return the first order for the machines that `order_id` bought, or bought again."""
    first, again, number = order_id.rpartition(_AGAIN)
    return first if again and number.isdecimal() else order_id


@runtime_task("let go", market=True)
def let_go(job_id: str, allocation_ids: Sequence[str]) -> list[str]:
    """Terminate the machines of allocations; return their instances.

    A machine that the market is about to take is left to it: an eviction refunds the hour.
    """
    runtime = current_runtime()
    facts = by_token(runtime.market.describe([job_tag(job_id)]))
    ended = [fact for name in allocation_ids for fact in facts.get(name, ()) if fact.alive]
    ids = [fact.instance_id for fact in ended if pending_notice_s(fact, runtime.now_s()) is None]
    if ids:
        current_runtime().market.terminate(ids)
    return ids


@runtime_task("release reliable tier", market=True)
def release_reliable_tier(job_engine: JobEngine) -> None:
    """Terminate the machines that were bought on demand, and record their end.

    Spot machines stay to the end of their paid hour: an eviction until then refunds the hour.
    """
    runtime, job_id = current_runtime(), job_engine.job_id
    records = runtime.store.allocations(job_id, alive=True)
    names = [record.allocation_id for record in records if record.allocation.tier is Tier.RELIABLE]
    if not names:
        return
    facts = by_token(runtime.market.describe([job_tag(job_id)]))
    runtime.market.terminate([fact.instance_id for name in names for fact in facts.get(name, ()) if fact.alive])
    groups = by_token(runtime.market.describe([job_tag(job_id)]))
    job_engine.commit(lambda engine: reconcile(engine, groups, tiers_of(_flat(groups)), runtime.now_s()), groups)


@runtime_task("terminate", market=True)
def terminate(instance_ids: Sequence[str]) -> None:
    """Terminate machines of any job."""
    if instance_ids:
        current_runtime().market.terminate(instance_ids)


def _flat(groups: Mapping[str, Sequence[InstanceFact]]) -> list[InstanceFact]:
    return [fact for group in groups.values() for fact in group]


def machine_names(job_id: str, *allocation_ids: str) -> list[str]:
    """Return the living instances of allocations, which is what the controller calls its nodes."""
    records = current_runtime().store.allocations(job_id)
    return [name for r in records if r.allocation_id in allocation_ids for name in r.living_ids]


def _launch(job_engine: JobEngine, request: LaunchRequest) -> str:
    """Launch in the market and enter its answer; the next tick finds an answer that was lost."""
    runtime = current_runtime()
    try:
        facts = _launch_or_find(job_engine.job_id, request)
    except (LaunchRefused, BadRequest, TokenMismatch) as error:
        refused: BidEvent = AllocationRefused(runtime.now_s(), request.token, error.code, error.message)
        job_engine.commit(lambda engine: [] if request.token in engine.positions else [refused])
        return f"refused: {error}"
    granted = grant_of(request.token, facts, Tier(request.tags[TIER_TAG]), runtime.now_s())
    job_engine.commit(lambda engine: [] if request.token in engine.positions else [granted], {request.token: facts})
    return f"granted: {request.count} x {request.market}"


def _launch_or_find(job_id: str, request: LaunchRequest) -> list[InstanceFact]:
    """Launch, or return the machines launched under the token with other settings (hence other user-data)."""
    market = current_runtime().market
    try:
        return market.launch(request)
    except TokenMismatch:
        found = by_token(market.describe([job_tag(job_id)])).get(request.token)
        if not found:
            raise
        return found


def _request(
    spec: JobSpec,
    order_id: str,
    market: Market,
    count: int,
    tier: Tier,
    *,
    bid_micros: int | None = None,
    controller: bool = False,
) -> LaunchRequest:
    runtime = current_runtime()
    settings = runtime.settings
    environment = {
        "PROTEUS_CLOCK": settings.clock,
        "PROTEUS_REGION": settings.region,
        "PROTEUS_ALLOCATION": order_id,
    }
    if tier is Tier.RELIABLE and settings.events_url is not None:
        environment["PROTEUS_EVENTS_URL"] = settings.events_url  # transient machines send no events to Prefect
    if settings.node_host is not None:
        environment["PROTEUS_NODE_HOST"] = settings.node_host
    boot = NodeBoot(
        job_id=spec.job_id,
        blob_url=settings.blob_url,
        tier=tier,
        threads=node_threads(market, runtime.clock.scale),
        controller=controller,
        python=settings.node_python,
        poll_s=settings.poll_s / runtime.clock.scale,
        environment=environment,
        clock=settings.clock,
        region=settings.region,
    )
    tags: Mapping[str, str] = {
        OWNER_TAG: settings.owner_tag,
        JOB_TAG: spec.job_id,
        TIER_TAG: str(tier),
        "proteus:order": order_id,
        "proteus:expires": str(int(runtime.clock.now_s()) + _EXPIRES_S),
        "Name": f"proteus {spec.job_id} {tier}",
    }
    return LaunchRequest(order_id, market, count, bid_micros, user_data(boot), tags)


def node_threads(market: Market, scale: float) -> int:
    """Return how many micro-tasks a machine runs at a time: its vCPUs, or one where many share a real machine."""
    kind = type_on_sale(market, current_runtime().clock.now_s())
    return 1 if scale != 1 or kind is None else kind.vcpu
