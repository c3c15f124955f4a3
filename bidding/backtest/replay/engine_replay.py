"""One job through the live engine, with the events, orders and journal of a real job, on recorded prices.

This is the second driver beside `simulate`. It is a thousand times slower and shares no code with it: decisions are
those of `BidEngine` and its policies, the bill is that of `bidding.billing`. Both give the same results for every
scheme; therefore a backtest's figures are those of the live system.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from proteus_spot.bidding.backtest.billing_codes import billing_name, model_of
from proteus_spot.bidding.backtest.outcomes import LOG_COLUMNS, Outcome
from proteus_spot.bidding.backtest.parameters import PPM, JobParameters, expected_overhead_s
from proteus_spot.bidding.backtest.reference_cluster import Reference
from proteus_spot.bidding.backtest.replay.recorded_market import RecordedMarket
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.backtest.schemes.scheme_registry import Scheme
from proteus_spot.bidding.billing import total_prorata_micros
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.events import AllocationGranted, BidEvent, JobOpened
from proteus_spot.bidding.engine.orders import Order
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.forecast import Forecast
from proteus_spot.bidding.forecast.features import price_history_of
from proteus_spot.bidding.market.model import HOUR_S, Allocation, EndCause, InstanceType, Market, Tier
from proteus_spot.bidding.market.money import prorate
from proteus_spot.bidding.market.traces import Int64s, TraceSet
from proteus_spot.bidding.policies import FORECAST_POLICIES


@dataclass(slots=True)
class JobProgress:
    """The work of one job, the counterpart of `simulate`: it stands still after changes, and falls back after losses.

    Attributes
    ----------
    stalled_s : no progress before.
    work, saved : work done, and that of the last checkpoint, in millionths of a vCPU-second.
    checkpoint_s : the next checkpoint; None where none is due.
    restarts : whether the next machines begin from a checkpoint.
    """

    setting: JobParameters
    stalled_s: int
    work: int = 0
    saved: int = 0
    checkpoint_s: int | None = None
    restarts: bool = False

    def done_s(self, vcpus: int, now_s: int) -> int | None:
        """Return when `vcpus` that compute from `now_s` on will have done the work; None if `vcpus` is 0."""
        left = self.setting.work_vcpu_s * PPM - self.work
        rate = vcpus * self.setting.efficiency_ppm
        return max(now_s, self.stalled_s) + -(-left // rate) if rate else None

    def advance(self, vcpus: int, now_s: int, until_s: int) -> None:
        """Count the work of `vcpus` from `now_s` until `until_s`, and the checkpoint that is due then."""
        self.work += vcpus * self.setting.efficiency_ppm * max(until_s - max(now_s, self.stalled_s), 0)
        if until_s == self.checkpoint_s:
            self.saved = self.work
            self.checkpoint_s = until_s + self.setting.checkpoint_s

    def evicted(self, now_s: int, *, machines_left: bool) -> None:
        """Count an eviction: a stop, and with checkpoints a restart from the last one."""
        self._stop(now_s, self.setting.eviction_overhead_s)
        if self.setting.checkpoint_s:
            self.work, self.restarts = self.saved, not machines_left
            self._stop(now_s, self.setting.restart_s)
            self.checkpoint_s = self.stalled_s + self.setting.checkpoint_s if machines_left else None

    def bought(self, now_s: int, *, first: bool) -> None:
        """Count a purchase; `first` where nothing was held beside it."""
        if first and self.setting.checkpoint_s:
            if self.restarts:
                self._stop(now_s, self.setting.restart_s)
                self.restarts = False
            self.checkpoint_s = max(self.stalled_s, now_s) + self.setting.checkpoint_s
        self.resized(now_s)

    def resized(self, now_s: int) -> None:
        """Count a change of the footprint: a stop, in which a job with checkpoints saves its state."""
        self._stop(now_s, self.setting.resize_overhead_s)
        if self.setting.checkpoint_s and self.setting.resize_overhead_s:
            self.saved = self.work
            self.checkpoint_s = self.stalled_s + self.setting.checkpoint_s

    def _stop(self, now_s: int, seconds: int) -> None:
        self.stalled_s = max(self.stalled_s, now_s + seconds)


#: Market name of the reliable tier.
RELIABLE = Market("reliable", "reliable")
_JOB = "backtest"


@dataclass
class ReplayResult:
    """Result of the job.

    Attributes
    ----------
    row : shape (len(Outcome),); as the compiled driver's.
    purchases : shape (purchases, len(LOG_COLUMNS)); a market is its index among the markets passed in.
    journal : every event, each followed by the orders that it led to.
    """

    row: Int64s
    purchases: Int64s
    journal: tuple[BidEvent | Order, ...]


def run_by_engine(
    traces: TraceSet,
    markets: Sequence[Market],
    types: Mapping[str, InstanceType],
    evictions: EvictionTable,
    foresight: Forecast | None,
    scheme: Scheme,
    start_s: int,
    reference: Reference,
    setting: JobParameters,
) -> ReplayResult:
    """Return the result of the scheme's job that starts at `start_s`, under the live policy that decides as its rule.

    Raises
    ------
    ValueError
        If there is no such policy: none knows future prices, none but `best` is patient, and `best` is for jobs that
        lose nothing.
    """
    name = _policy_name(scheme, setting)
    tier = InstanceType(RELIABLE.instance_type, setting.reliable_vcpus, 0.0, setting.reliable_micros)
    window_ends_s, max_life_s = start_s + setting.window_s, model_of(setting).max_life_s
    world = RecordedMarket(traces, markets, {**types, tier.name: tier}, window_ends_s, max_life_s)
    if name in FORECAST_POLICIES:
        world.pasts = {market: price_history_of(traces[market]) for market in markets}
    job = job_model(setting, scheme.vcpus_at_once(reference))
    world.tell(JobOpened(start_s, _JOB, job, name, world.types, tuple(markets), evictions, foresight))
    if setting.reliable_count:
        machines = Allocation("reliable", RELIABLE, setting.reliable_count, start_s, Tier.RELIABLE)
        world.tell(AllocationGranted(start_s, "reliable", machines))
    ends_s, finished = _walk(world, setting, start_s)
    world.close(ends_s)
    return ReplayResult(_row(world, setting, start_s, ends_s, finished), _purchases(world), tuple(world.journal))


def _policy_name(scheme: Scheme, setting: JobParameters) -> str:
    """Return the name of the live policy; `ValueError` where it would not decide as the scheme's rule does."""
    if scheme.policy is None:
        raise ValueError(f"no live policy decides as the rule {scheme.rule.name}")
    best = scheme.rule is SchemeId.BEST
    if bool(setting.patient) is not best:
        raise ValueError(f"patient is {setting.patient}: the live policy {scheme.policy} is otherwise")
    if best and setting.checkpoint_s:
        raise ValueError("the live policy best is for jobs that lose nothing: a setting with checkpoints is not for it")
    return scheme.policy


def job_model(setting: JobParameters, at_once_vcpus: int | None = None) -> JobModel:
    """Return the `JobModel` of a simulated job, for a live policy.

    Parameters
    ----------
    at_once_vcpus : size of the single allocation, in place of the setting's sizes.
    """
    job = JobModel(
        scaling_efficiency=setting.efficiency_ppm / PPM,
        resize_overhead_s=setting.resize_overhead_s,
        eviction_overhead_s=expected_overhead_s(setting.eviction_overhead_s, setting.checkpoint_s, setting.restart_s),
        allocation_vcpus=setting.allocation_vcpus,
        max_spot_vcpus=setting.max_spot_vcpus,
        renewal_lead_s=setting.renewal_lead_s,
        ceiling_on_demand=bool(setting.ceiling),
        reliable_works=bool(setting.reliable_works),
        billing=billing_name(setting),
        flat_micros=setting.flat_micros,
    )
    if at_once_vcpus is None:
        return job
    return replace(job, allocation_vcpus=at_once_vcpus, max_spot_vcpus=at_once_vcpus)


def _walk(world: RecordedMarket, setting: JobParameters, start_s: int) -> tuple[int, bool]:
    """Go from one moment in which something happens to the next; return the job's end, and whether its work is done."""
    now_s = tick_s = start_s
    wake_s = start_s - 1  # after an eviction: when a purchase would no longer stand still
    progress = JobProgress(setting, start_s)
    tier = setting.reliable_count * setting.reliable_vcpus * setting.reliable_works
    while True:
        soon = [moment for moment in (wake_s, progress.checkpoint_s) if moment is not None and moment > now_s]
        next_s = min([tick_s, world.window_ends_s, *soon, *world.moments])
        vcpus = tier + world.vcpus
        done_s = progress.done_s(vcpus, now_s)
        if done_s is not None and done_s <= next_s:
            return done_s, True
        progress.advance(vcpus, now_s, next_s)
        now_s = next_s
        if now_s == world.window_ends_s:
            return now_s, False
        taken = world.take(now_s)
        if taken:
            progress.evicted(now_s, machines_left=bool(world.alive))
        left = world.let_go(now_s)
        if left:
            progress.resized(now_s)
        if taken and setting.patient:
            wake_s = progress.stalled_s - setting.resize_overhead_s
        if now_s == tick_s:
            tick_s += setting.tick_s
        elif not (taken or left or now_s == wake_s):
            continue
        nothing_held = not world.alive
        if world.tick(now_s):
            progress.bought(now_s, first=nothing_held)


def _row(world: RecordedMarket, setting: JobParameters, start_s: int, ends_s: int, finished: bool) -> Int64s:
    row = np.zeros(len(Outcome), dtype=np.int64)
    runtime_s = ends_s - start_s
    hourly = setting.reliable_count * setting.reliable_micros
    row[Outcome.COST_MICROS] = hourly * (runtime_s // HOUR_S) + prorate(hourly, runtime_s % HOUR_S, HOUR_S)
    row[Outcome.RUNTIME_S] = runtime_s
    row[Outcome.ON_DEMAND_VCPU_S] = setting.reliable_count * setting.reliable_vcpus * runtime_s
    row[Outcome.FINISHED] = finished
    row[Outcome.PURCHASES] = len(world.lives)
    for life in world.lives:
        allocation = life.allocation
        assert life.ended_s is not None
        until_s = life.ended_s + 1  # so that an eviction at this second counts
        charges = model_of(setting).charges(
            world.traces[allocation.market],
            allocation.count,
            allocation.launched_at_s,
            life.ended_s,
            life.cause,
            until_s,
        )
        row[Outcome.COST_MICROS] += total_prorata_micros(charges, life.ended_s)
        row[Outcome.EVICTIONS] += life.cause is EndCause.EVICTED
        for charge in charges:
            used_s = min(life.ended_s - charge.hour_start_s, HOUR_S)
            row[Outcome.FREE_VCPU_S if charge.refunded else Outcome.PAID_VCPU_S] += used_s * life.vcpus
    return row


def _purchases(world: RecordedMarket) -> Int64s:
    index_by_market = {market: index for index, market in enumerate(world.markets)}
    rows = [
        (
            life.allocation.launched_at_s,
            index_by_market[life.allocation.market],
            life.allocation.count,
            life.allocation.bid_micros,
            life.ended_s,
            life.cause is EndCause.EVICTED,
        )
        for life in world.lives
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, len(LOG_COLUMNS))
