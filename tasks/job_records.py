"""Jobs in the state database: record, look up, open, close."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bidding.billing import Flat
from bidding.economics.job_model import JobModel
from bidding.engine.events import JobClosed, JobOpened
from bidding.evictions.table import fit
from bidding.forecast import Foresight, fit_foresight
from bidding.market.model import InstanceType, Market
from bidding.market.traces import TraceSet
from bidding.policies import FORESEEING
from infra.errors import InputError, JobFailed
from infra.state.records import Job, JobState
from infra.storage.blobs import JobPaths
from infra.storage.price_store import PriceStore
from tasks.job_spec import JobSpec
from tasks.market.engine_journal import enter, once, open_desk
from tasks.market.prices import days
from tasks.market_data.eviction_tables import job_table
from tasks.runtime import touch, world

_DAY_S = 86_400
#: Kind of the observation that says that an ended job has no machine and no unbooked hour left.
_SETTLED = "settled"


@touch("record job")
def record_job(spec: JobSpec) -> Job:
    """Record the job, or return the one that is there; the same id with another spec is refused."""
    store = world().store
    for job in store.jobs():
        if job.job_id == spec.job_id and JobSpec.model_validate(dict(job.spec)) == spec:
            return job  # also where it was recorded before a field with a default was added
    return store.create_job(spec.job_id, spec.model_dump(mode="json"), world().clock.now_s())


def job_spec(job_id: str) -> JobSpec:
    """Return what was asked for."""
    return JobSpec.model_validate(dict(world().store.job(job_id).spec))


def is_paid_by_hour(job_id: str) -> bool:
    """Return whether the job's spot machines are paid by the hour, not by the second."""
    return not job_spec(job_id).transient.billing_model.by_second


def types_on_sale(at_s: float) -> Mapping[str, InstanceType]:
    """Return the catalogue's types of the day."""
    return world().catalog.at(datetime.fromtimestamp(at_s, UTC).date())


def priced(markets: list[Market], at_s: float) -> Mapping[str, InstanceType]:
    """Return the types of `markets`.

    Raises
    ------
    InputError
        Naming the first type that the catalogue has no on-demand price for.
    """
    types = types_on_sale(at_s)
    for market in markets:
        if market.instance_type not in types:
            known = market.instance_type in world().catalog.names
            what = "has no on-demand price on that day in" if known else "is not in"
            raise InputError(f"instance type {market.instance_type}: {what} the catalogue; name another, or --catalog")
    return {market.instance_type: types[market.instance_type] for market in markets}


def is_opened(job_id: str) -> bool:
    """Return whether the job's journal says what it may bid on."""
    return open_desk(world(), job_id)[0].job_id is not None


@touch("open job")
def open_job(spec: JobSpec) -> int:
    """Write down what the job is and what the stored price history says of bids; return how many markets it may bid in.

    Opening again changes nothing.
    """
    engine, _ = open_desk(world(), spec.job_id)
    if engine.job_id is not None:
        return len(engine.opened.markets)
    here = world()
    now_s = here.now_s()
    markets = [Market.parse(text) for text in spec.transient.markets]
    reliable = Market(spec.reliable.instance_type, spec.reliable.zone)
    types = priced([*markets, reliable], now_s)
    given = job_table(spec)
    from_s = int(now_s - here.settings.history_days * _DAY_S)
    stored = PriceStore(here.blobs)
    for market in markets:
        _check_age(market, stored.observed_until_s(market), now_s, here.settings.prices_max_age_s)
    traces = stored.read(markets, from_s, now_s)
    missing = [market for market in markets if market not in traces]
    if missing:
        raise InputError(f"market {missing[0]}: has no price history before {datetime.fromtimestamp(now_s, UTC)}")
    evictions = fit(traces, from_s, now_s) if given is None else given
    event = JobOpened(
        at_s=now_s,
        job_id=spec.job_id,
        job=job_model(spec, here.settings.renewal_lead_s),
        policy=spec.transient.policy,
        types=types,
        markets=tuple(sorted(markets)),
        evictions=evictions,
        foresight=_foresight(spec, traces, types, from_s, now_s) if evictions.bids_decide else None,
    )
    enter(here, spec.job_id, once(JobOpened, event))
    return len(markets)


def _foresight(
    spec: JobSpec, traces: TraceSet, types: Mapping[str, InstanceType], from_s: int, now_s: int
) -> Foresight | None:
    """Return what the policy learns of the stored history; None for one that has no use for it."""
    if spec.transient.policy not in FORESEEING:
        return None
    learnt = fit_foresight(traces, types, from_s, now_s)
    if learnt is None:
        raise InputError(
            f"policy {spec.transient.policy}: the {days(now_s - from_s)} of stored prices hold no hour that began at or "
            "below the on-demand price, so nothing can be learnt of bids; wait for more, or take the policy proteus"
        )
    return learnt


def _check_age(market: Market, observed_s: int | None, now_s: int, limit_s: int) -> None:
    """Refuse to fit on what was observed too long ago; a price that was seen unchanged since is not old."""
    if observed_s is not None and now_s - observed_s > limit_s:
        raise InputError(
            f"market {market}: its prices were last observed {days(now_s - observed_s)} ago, which is more than "
            f"{days(limit_s)} (PROTEUS_PRICES_MAX_AGE_S); run the deployment ingest-prices/default, then the job under another id"
        )


def job_model(spec: JobSpec, renewal_lead_s: int) -> JobModel:
    """Return what the economics need to know of the job."""
    tier = spec.transient
    billing = tier.billing_model
    return JobModel(
        scaling_efficiency=tier.scaling_efficiency,
        resize_overhead_s=tier.resize_overhead_s,
        eviction_overhead_s=tier.eviction_overhead_s,
        allocation_vcpus=tier.vcpus_at_once,
        max_spot_vcpus=tier.max_vcpus,
        renewal_lead_s=renewal_lead_s,
        ceiling_on_demand=tier.ceiling_on_demand,
        billing=tier.billing,
        flat_micros=billing.price_micros if isinstance(billing, Flat) else 0,
    )


def saved_result(job_id: str) -> dict[str, Any] | None:
    """Return the result that the controller saved with the model, or None while there is none.

    Raises
    ------
    JobFailed
        If effects of micro-tasks are missing from the model; such a one is no result.
    """
    here = world()
    manifest = here.blobs.manifest(JobPaths(job_id).model)
    if manifest is None:
        return None
    result = dict(manifest.about)
    if result.get("lost_micro_tasks"):
        raise JobFailed(f"job {job_id}: the effects of {result['lost_micro_tasks']} micro-tasks are not in its model")
    return result


def is_known(job_id: str) -> bool:
    """Return whether there is such a job in the state database."""
    return any(job.job_id == job_id for job in world().store.jobs())


def is_open(job_id: str) -> bool:
    """Return whether the job's work goes on."""
    return not world().store.job(job_id).state.terminal


def ended_result(job_id: str) -> dict[str, Any] | None:
    """Return the result of a job whose work is done, or None while it is not.

    Raises
    ------
    JobFailed
        If it failed before; it does not run again under this id.
    """
    job = world().store.job(job_id)
    if job.state is JobState.FAILED:
        raise JobFailed(f"job {job_id}: failed before ({job.failure}); give a new job another id")
    return saved_result(job_id)


def ticking_jobs(job_id: str | None = None) -> list[str]:
    """Return the jobs that a tick has something to do for: open ones, and ended ones that hold machines or owe a booking.

    With `job_id`, that one if it is among them.
    """
    store = world().store
    jobs = store.jobs() if job_id is None else [store.job(job_id)]
    return [job.job_id for job in jobs if not job.state.terminal or not _settled(job.job_id)]


def _settled(job_id: str) -> bool:
    store = world().store
    return bool(store.observations(job_id, _SETTLED)) and not store.allocations(job_id, alive=True)


def settle_job(job_id: str) -> None:
    """Write down that an ended job holds nothing any more and all is booked; call it after booking."""
    here = world()
    if here.store.job(job_id).state.terminal and not here.store.allocations(job_id, alive=True):
        here.store.observe(job_id, here.clock.now_s(), _SETTLED, {})


@touch("close job")
def close_job(job_id: str, result: Mapping[str, Any] | None, failure: str | None = None) -> None:
    """Write down how the job ended. Nothing more is bought for it; closing again changes nothing."""
    here = world()
    if open_desk(here, job_id)[0].job_id is not None:
        enter(here, job_id, once(JobClosed, JobClosed(here.now_s())))
    state = JobState.FAILED if failure else JobState.FINISHED
    if result is not None and result.get("stopped"):
        state = JobState.STOPPED
    if not here.store.job(job_id).state.terminal:
        here.store.move_job(job_id, state, here.clock.now_s(), result=result, failure=failure)
