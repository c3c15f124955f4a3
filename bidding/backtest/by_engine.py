"""One job through the live engine: the very events, orders and journal of a real job, on recorded prices.

The second driver beside `simulate`. It is a thousand times slower, and shares no line with it: decisions are those of
`BidEngine` and its policies, the bill is that of `HourlyRefund`. That both say the same is what makes a backtest's
figures those of the system that will be run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bidding.actions import Acquire, Lapse, Order
from bidding.backtest.outcome import LOG_COLUMNS, Outcome
from bidding.backtest.setting import PPM, Setting
from bidding.billing import HourlyRefund, total_prorata_micros
from bidding.engine import BidEngine
from bidding.events import AllocationGone, AllocationGranted, AllocationRefused, Event, JobOpened, NoticeSeen, TickDue
from bidding.eviction import EvictionTable
from bidding.foresight import Foresight
from bidding.foresight.signals import Past, past_of, signal_at
from bidding.job import JobModel
from bidding.model import HOUR_S, Allocation, EndCause, InstanceType, Market, Tier
from bidding.money import prorate
from bidding.policies import FORESEEING
from bidding.traces import Int64s, TraceSet

#: Stands for the reliable tier among the markets.
RELIABLE = Market("reliable", "reliable")
_JOB = "backtest"


@dataclass
class _Life:
    allocation: Allocation
    vcpus: int
    takes_s: int | None
    lapses_s: int | None = None
    ended_s: int | None = None
    cause: EndCause | None = None


@dataclass
class Told:
    """What became of the job.

    Attributes
    ----------
    row : shape (len(Outcome),); as the compiled driver's.
    purchases : shape (purchases, len(LOG_COLUMNS)); the market is its place among the markets that were given.
    journal : every event and, behind it, the orders that it led to.
    """

    row: Int64s
    purchases: Int64s
    journal: tuple[Event | Order, ...]


@dataclass
class _World:
    """The recorded market, and what the engine is told of it."""

    traces: TraceSet
    markets: Sequence[Market]
    types: Mapping[str, InstanceType]
    window_ends_s: int
    engine: BidEngine = field(default_factory=BidEngine)
    journal: list[Event | Order] = field(default_factory=list)
    lives: list[_Life] = field(default_factory=list)
    pasts: Mapping[Market, Past] = field(default_factory=dict)

    def tell(self, event: Event) -> tuple[Order, ...]:
        orders = self.engine.handle(event)
        self.journal += [event, *orders]
        return orders

    @property
    def alive(self) -> list[_Life]:
        return [life for life in self.lives if life.ended_s is None]

    def tick(self, now_s: int) -> bool:
        """Tell the engine the time and the prices, and do what it orders; return whether something was bought."""
        known = {market: self.traces[market].price_at(now_s) for market in self.markets}
        prices = {market: price for market, price in known.items() if price is not None}
        signals = {market: signal for market in self.pasts if (signal := signal_at(self.pasts[market], now_s))}
        bought = False
        for order in self.tell(TickDue(now_s, prices, signals=signals)):
            match order:
                case Lapse():
                    self._life(order.allocation_id).lapses_s = order.before_s
                case Acquire() if prices[order.market] <= order.bid_micros:
                    self._grant(order, now_s)
                    bought = True
                case Acquire():
                    self.tell(AllocationRefused(now_s, order.order_id, "bid-too-low", "the price is above the bid"))
        return bought

    def _grant(self, order: Acquire, now_s: int) -> None:
        bought = Allocation(order.order_id, order.market, order.count, now_s, Tier.TRANSIENT, order.bid_micros)
        takes_s = self.traces[order.market].first_above(order.bid_micros, now_s)
        takes_s = None if takes_s is None or takes_s >= self.window_ends_s else takes_s
        self.lives.append(_Life(bought, order.count * self.types[order.market.instance_type].vcpu, takes_s))
        self.tell(AllocationGranted(now_s, order.order_id, bought))

    def _life(self, allocation_id: str) -> _Life:
        return next(life for life in self.lives if life.allocation.allocation_id == allocation_id)

    def end(self, life: _Life, now_s: int, cause: EndCause) -> None:
        """End an allocation; one that the market takes was noticed in the same second."""
        life.ended_s, life.cause = now_s, cause
        name = life.allocation.allocation_id
        if cause is EndCause.EVICTED:
            self.tell(NoticeSeen(now_s, name, now_s))
        self.tell(AllocationGone(now_s, name, cause))


def run_by_engine(
    traces: TraceSet,
    markets: Sequence[Market],
    types: Mapping[str, InstanceType],
    evictions: EvictionTable,
    foresight: Foresight | None,
    policy: str,
    setting: Setting,
    start_s: int,
) -> Told:
    """Return what becomes of the job that starts at `start_s` under the live policy of that name.

    Raises
    ------
    ValueError
        If there is no such policy, or the job bears its losses by checkpoints, which no live policy knows.
    """
    if setting.checkpoint_s:
        raise ValueError("the engine's jobs lose nothing: a setting with checkpoints is not for them")
    tier = InstanceType(RELIABLE.instance_type, setting.reliable_vcpus, 0.0, setting.reliable_micros)
    world = _World(traces, markets, {**types, tier.name: tier}, start_s + setting.window_s)
    if policy in FORESEEING:
        world.pasts = {market: past_of(traces[market]) for market in markets}
    opened = JobOpened(start_s, _JOB, job_model(setting), policy, world.types, tuple(markets), evictions, foresight)
    world.tell(opened)
    if setting.reliable_count:
        machines = Allocation("reliable", RELIABLE, setting.reliable_count, start_s, Tier.RELIABLE)
        world.tell(AllocationGranted(start_s, "reliable", machines))
    ends_s, finished = _walk(world, setting, start_s)
    for life in world.alive:  # let go, unless the market takes it in this very second
        world.end(life, ends_s, EndCause.EVICTED if life.takes_s == ends_s else EndCause.USER)
    return Told(_row(world, setting, start_s, ends_s, finished), _purchases(world), tuple(world.journal))


def job_model(setting: Setting) -> JobModel:
    """Return what a live policy is told of a simulated job."""
    return JobModel(
        scaling_efficiency=setting.efficiency_ppm / PPM,
        resize_overhead_s=setting.resize_overhead_s,
        eviction_overhead_s=setting.eviction_overhead_s,
        allocation_vcpus=setting.allocation_vcpus,
        max_spot_vcpus=setting.max_spot_vcpus,
        renewal_lead_s=setting.renewal_lead_s,
        ceiling_on_demand=bool(setting.ceiling),
        reliable_works=bool(setting.reliable_works),
    )


def _walk(world: _World, setting: Setting, start_s: int) -> tuple[int, bool]:
    """Go from one moment in which something happens to the next; return the job's end, and whether its work is done."""
    now_s = stalled_s = tick_s = start_s
    wake_s = start_s - 1  # after an eviction: when a purchase would no longer stand still
    work, target = 0, setting.work_vcpu_s * PPM
    tier = setting.reliable_count * setting.reliable_vcpus * setting.reliable_works
    while True:
        moments = [tick_s, world.window_ends_s, *([wake_s] if wake_s > now_s else [])]
        for life in world.alive:
            moments += [moment for moment in (life.takes_s, life.lapses_s) if moment is not None]
        next_s = min(moments)
        rate = (tier + sum(life.vcpus for life in world.alive)) * setting.efficiency_ppm
        from_s = max(now_s, stalled_s)
        if rate and from_s + -(-(target - work) // rate) <= next_s:
            return from_s + -(-(target - work) // rate), True
        work += rate * max(next_s - from_s, 0)
        now_s = next_s
        if now_s == world.window_ends_s:
            return now_s, False
        taken = [life for life in world.alive if life.takes_s == now_s]
        for life in taken:
            world.end(life, now_s, EndCause.EVICTED)
        if taken:
            stalled_s = max(stalled_s, now_s + setting.eviction_overhead_s)
            if setting.patient:
                wake_s = stalled_s - setting.resize_overhead_s
        left = [life for life in world.alive if life.lapses_s == now_s]
        for life in left:
            world.end(life, now_s, EndCause.USER)
        if left:
            stalled_s = max(stalled_s, now_s + setting.resize_overhead_s)
        if now_s == tick_s:
            tick_s += setting.tick_s
        elif not (taken or left or now_s == wake_s):
            continue
        if world.tick(now_s):
            stalled_s = max(stalled_s, now_s + setting.resize_overhead_s)


def _row(world: _World, setting: Setting, start_s: int, ends_s: int, finished: bool) -> Int64s:
    row = np.zeros(len(Outcome), dtype=np.int64)
    runtime_s = ends_s - start_s
    hourly = setting.reliable_count * setting.reliable_micros
    row[Outcome.COST_MICROS] = hourly * (runtime_s // HOUR_S) + prorate(hourly, runtime_s % HOUR_S, HOUR_S)
    row[Outcome.RUNTIME_S] = runtime_s
    row[Outcome.ON_DEMAND_VCPU_S] = setting.reliable_count * setting.reliable_vcpus * runtime_s
    row[Outcome.FINISHED] = finished
    row[Outcome.PURCHASES] = len(world.lives)
    for life in world.lives:
        one = life.allocation
        assert life.ended_s is not None
        until_s = life.ended_s + 1  # so that an eviction at the very end is one
        charges = HourlyRefund().charges(
            world.traces[one.market], one.count, one.launched_at_s, life.ended_s, life.cause, until_s
        )
        row[Outcome.COST_MICROS] += total_prorata_micros(charges, life.ended_s)
        row[Outcome.EVICTIONS] += life.cause is EndCause.EVICTED
        for charge in charges:
            used_s = min(life.ended_s - charge.hour_start_s, HOUR_S)
            row[Outcome.FREE_VCPU_S if charge.refunded else Outcome.PAID_VCPU_S] += used_s * life.vcpus
    return row


def _purchases(world: _World) -> Int64s:
    place = {market: index for index, market in enumerate(world.markets)}
    rows = [
        (
            life.allocation.launched_at_s,
            place[life.allocation.market],
            life.allocation.count,
            life.allocation.bid_micros,
            life.ended_s,
            life.cause is EndCause.EVICTED,
        )
        for life in world.lives
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, len(LOG_COLUMNS))
