"""Opening and closing the bidding of a job."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from proteus_spot.bidding.billing import Flat
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.events import JobClosed, JobOpened, JobReopened
from proteus_spot.bidding.evictions.table import fit
from proteus_spot.bidding.facts.learning import prior_known, table_of
from proteus_spot.bidding.forecast import Forecast, fit_forecast
from proteus_spot.bidding.market.model import DAY_S, InstanceType, Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.policies import FORECAST_POLICIES
from proteus_spot.infra.applications.code_files import UnreadableCode
from proteus_spot.infra.applications.net_source import net_source
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.state.records import IllegalTransition, JobState, ObservationKind
from proteus_spot.infra.storage.price_store import PriceStore
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.studies.market_data.eviction_tables import job_table
from proteus_spot.studies.market_data.on_demand_prices import types_of
from proteus_spot.tasks.event_feed import emit_end
from proteus_spot.tasks.job_records import note_going_on
from proteus_spot.tasks.market.current_prices import days
from proteus_spot.tasks.market.engine_journal import EngineJournal, JobEngine, unless_seen
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task

#: Seconds, market and real, that a machine takes to boot and to load its data.
_BOOT_S, _BOOT_REAL_S = 240.0, 10.0


def type_on_sale(market: Market, at_s: float) -> InstanceType | None:
    """Return the type of `market` as its region sells it on the day; None where the catalogue has no price."""
    return current_runtime().catalog.find(market, datetime.fromtimestamp(at_s, UTC).date())


def priced(markets: list[Market], at_s: float) -> Mapping[str, InstanceType]:
    """Return the types of `markets`, each at one on-demand price.

    Raises
    ------
    InputError
        Naming the first market that the catalogue has no on-demand price for, or a type whose markets have several.
    """
    types = types_of(
        current_runtime().catalog,
        markets,
        datetime.fromtimestamp(at_s, UTC).date(),
        name="the catalogue",
        fix="name another, or --catalog",
    )
    return {market.instance_type: types[market.instance_type] for market in markets}


def priced_for(spec: JobSpec, at_s: float) -> Mapping[str, InstanceType]:
    """Return the types of a job's markets and of its reliable tier, each at one on-demand price.

    Raises
    ------
    InputError
        As `priced`, and naming the first of its spot markets without a GPU, where the job counts these.
    """
    markets = [Market.parse(text) for text in spec.transient.markets]
    types = priced([*markets, Market(spec.reliable.instance_type, spec.reliable.zone)], at_s)
    for market in markets if spec.transient.unit == "gpu" else ():
        if not types[market.instance_type].gpus:
            raise InputError(
                f"job {spec.job_id}: transient.unit is gpu, and {market} has no GPU by the catalogue (column gpus); "
                "choose types that have some, or run `proteus catalog fetch`"
            )
    return types


def boot_s() -> float:
    """Return the market seconds that a machine takes to boot and to load its data."""
    return max(_BOOT_S, _BOOT_REAL_S * current_runtime().clock.scale)


def follows_today(spec: JobSpec) -> bool:
    """Return whether the job buys by today's rules: no bid, as many machines as there are, taken for their capacity."""
    rules = spec.transient.rules
    return rules == "today" or (rules is None and current_runtime().settings.is_aws)


def policy_of(spec: JobSpec) -> str:
    """Return the name of the job's policy: its own, else that of the market's rules."""
    return spec.transient.policy or ("deadline" if follows_today(spec) else "best")


def is_opened(job_engine: EngineJournal[Any]) -> bool:
    """Return whether the job or sweep was opened for bidding, by its journal."""
    return job_engine.refresh().holdings.job_id is not None


@runtime_task("open job")
def open_job(spec: JobSpec, job_engine: JobEngine) -> int:
    """Record the job and what is fitted to the stored price history; return the number of markets it may bid in.

    Opening again changes nothing.
    """
    engine = job_engine.refresh()
    if engine.holdings.job_id is not None:
        return len(engine.holdings.opened.markets)
    runtime = current_runtime()
    now_s = runtime.now_s()
    markets = [Market.parse(text) for text in spec.transient.markets]
    types = priced_for(spec, now_s)
    given = job_table(spec)
    from_s = int(now_s - runtime.settings.history_days * DAY_S)
    stored = PriceStore(runtime.blobs)
    for market in markets:
        _check_age(market, stored.observed_until_s(market), now_s, runtime.settings.prices_max_age_s)
    traces = stored.read(markets, from_s, now_s)
    missing = [market for market in markets if market not in traces]
    if missing:
        raise InputError(f"market {missing[0]}: has no price history before {datetime.fromtimestamp(now_s, UTC)}")
    learns = given is None and follows_today(spec)
    if given is not None:
        evictions = given
    else:
        evictions = table_of(prior_known(markets, now_s)) if learns else fit(traces, from_s, now_s)
    event = JobOpened(
        at_s=now_s,
        job_id=spec.job_id,
        job=replace(
            job_model(spec, runtime.settings.renewal_lead_s), boot_s=boot_s(), gap_s=2.0 * runtime.settings.tick_s
        ),
        policy=policy_of(spec),
        types=types,
        markets=tuple(sorted(markets)),
        evictions=evictions,
        foresight=_foresight(spec, traces, types, from_s, now_s) if evictions.bids_decide else None,
        learns=learns,
    )
    job_engine.commit(unless_seen(JobOpened, event))
    return len(markets)


def _foresight(
    spec: JobSpec, traces: TraceSet, types: Mapping[str, InstanceType], from_s: int, now_s: int
) -> Forecast | None:
    """Return the forecast that the policy uses, fitted to the stored history; None for other policies."""
    if policy_of(spec) not in FORECAST_POLICIES:
        return None
    learnt = fit_forecast(traces, types, from_s, now_s)
    if learnt is None:
        raise InputError(
            f"policy {policy_of(spec)}: the {days(now_s - from_s)} of stored prices hold no hour that began at "
            "or below the on-demand price, so nothing can be learnt of bids; wait for more, or take the policy proteus"
        )
    return learnt


def _check_age(market: Market, observed_s: int | None, now_s: int, limit_s: int) -> None:
    """Refuse to fit on what was observed too long ago; a price that was seen unchanged since is not old."""
    if observed_s is not None and now_s - observed_s > limit_s:
        raise InputError(
            f"market {market}: its prices were last observed {days(now_s - observed_s)} ago, which is more than "
            f"{days(limit_s)} (PROTEUS_PRICES_MAX_AGE_S); run the deployment ingest-prices/default, then the job under "
            "another id"
        )


def job_model(spec: JobSpec, renewal_lead_s: int) -> JobModel:
    """Return the job's parameters for the economics."""
    tier, training = spec.transient, spec.training
    billing = tier.billing_model
    try:
        net = net_source(training.app, training.code, training.app_params)
    except UnreadableCode:  # a job that has begun goes on with the code that it began with
        net = None
    model = JobModel(
        scaling_efficiency=tier.scaling_efficiency,
        resize_overhead_s=tier.resize_overhead_s,
        eviction_overhead_s=tier.eviction_overhead_s,
        allocation_vcpus=tier.vcpus_at_once,
        max_spot_vcpus=tier.max_vcpus,
        tasks=0 if net is None else net.workers,
        task_vcpus=1 if net is None or tier.unit == "gpu" else net.threads,
        renewal_lead_s=renewal_lead_s,
        ceiling_on_demand=tier.ceiling_on_demand,
        billing=tier.billing,
        flat_micros=billing.price_micros if isinstance(billing, Flat) else 0,
        value_of_time_usd_per_h=tier.value_of_time_usd_per_h,
        exclude_markets=tuple(tier.exclude_markets),
        unit=tier.unit,
    )
    return replace(model, max_spot_vcpus=model.useful_vcpus(tier.max_vcpus))


def close_bidding(job_engine: JobEngine) -> None:
    """Enter in the journal that nothing more is bought or renewed; again changes nothing."""
    if is_opened(job_engine):
        job_engine.commit(unless_seen(JobClosed, JobClosed(current_runtime().now_s())))


@runtime_task("reopen job")
def reopen_job(job_engine: JobEngine, larger: JobSpec | None = None) -> None:
    """Have a job that failed go on from its last checkpoint; any other one is left as it is.

    Its reliable tier must have been released: a controller that failed would only report its failure again.

    Parameters
    ----------
    larger : the description with larger limits of a job that a limit has stopped; it goes on, too.
    """
    runtime, job_id = current_runtime(), job_engine.job_id
    # What the clock was at the failure is not a measure of progress: the job was not running since.
    runtime.store.jobs.observe(job_id, runtime.clock.now_s(), ObservationKind.CLOCK, {})
    if larger is not None:
        note_going_on(job_id)
        runtime.store.jobs.reopen_job(job_id, spec=larger.model_dump(mode="json"))
    if is_opened(job_engine):
        event = JobReopened(runtime.now_s())
        job_engine.commit(lambda engine: [event] if engine.holdings.closed else [])
    runtime.store.jobs.reopen_job(job_id)  # also where it failed before its bidding was opened


def is_half_reopened(job_engine: JobEngine) -> bool:
    """Return whether a run died while it had the job go on: the job starts, and its bidding is still closed."""
    starts = current_runtime().store.jobs.job(job_engine.job_id).state is JobState.STARTING
    return starts and is_opened(job_engine) and job_engine.refresh().holdings.closed


@runtime_task("close job")
def close_job(job_engine: JobEngine, result: Mapping[str, Any] | None, failure: str | None = None) -> None:
    """Record how the job ended. Nothing more is bought for it; closing again changes nothing."""
    runtime, job_id = current_runtime(), job_engine.job_id
    close_bidding(job_engine)
    state = JobState.FAILED if failure else JobState.FINISHED
    if result is not None and result.get("stopped"):
        state = JobState.STOPPED
    try:
        emit_end(runtime.store.jobs.move_job(job_id, state, runtime.clock.now_s(), result=result, failure=failure))
    except IllegalTransition:
        if not runtime.store.jobs.job(job_id).state.terminal:
            raise  # else a tick, or the flow, has closed it
