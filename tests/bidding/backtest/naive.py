"""One job, second by second, in plain Python and Decimal dollars: what the compiled simulator is held against.

It shares the live policies and the models of the market with the project, and nothing with `bidding.backtest`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

import numpy as np

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.forecast import Forecast, MarketFeatures, features_of
from proteus_spot.bidding.market.model import Allocation, InstanceType, Market, Tier
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.bidding.policies.base import Choice, MarketView, Policy
from proteus_spot.bidding.policies.best import BestPolicy
from proteus_spot.bidding.policies.proteus import ProteusPolicy

MICRO = Decimal("0.000001")
RELIABLE = Market("reliable", "nowhere")
#: Price events of a market, (second, micro-dollars), in file order.
Events = Sequence[tuple[int, int]]


@dataclass
class Life:
    """An allocation, and the hours that it was charged for."""

    allocation: Allocation
    vcpus: int
    charges: list[tuple[int, Decimal]] = field(default_factory=list)  # (start of the hour, dollars)
    decided_until_s: int = 0
    lapsing: bool = False
    ended_s: int = -1
    evicted: bool = False


@dataclass
class Told:
    """What became of the job."""

    cost_micros: int = 0
    runtime_s: int = 0
    paid_vcpu_s: int = 0
    free_vcpu_s: int = 0
    evictions: int = 0
    finished: bool = False
    lives: list[Life] = field(default_factory=list)


@dataclass(frozen=True)
class Naive:
    """A job, its markets, and how it bears losses; the names are those of the issue of prices, not of the simulator."""

    prices: Mapping[Market, Events]
    types: Mapping[str, InstanceType]
    evictions: EvictionTable
    job: JobModel
    work_vcpu_s: int
    window_s: int
    tick_s: int
    standard_vcpus: int | None  # None: BidBrain decides, or
    delta_micros: int | None = None  # the cheapest market is bid for, so far above its price
    free_at_least_s: int | None = None  # or what is free for longest is bought by who knows the prices
    eviction_stop_s: int = 0  # how long an eviction stops the job; the job's model has what the policy believes
    reliable_count: int = 0
    reliable_vcpus: int = 4
    reliable_usd: Decimal = Decimal(0)
    efficiency: Fraction = Fraction(1)
    checkpoint_s: int | None = None
    restart_s: int = 0
    foresight: Forecast | None = None  # who has one decides as `best`, else as `proteus`
    patient: bool = False

    @property
    def policy(self) -> Policy:
        return ProteusPolicy() if self.foresight is None else BestPolicy()

    def price(self, market: Market, at_s: int) -> int | None:
        known = [(second, place) for place, (second, _) in enumerate(self.prices[market]) if second <= at_s]
        return self.prices[market][max(known)[1]][1] if known else None

    def run(self, start_s: int) -> Told:
        told, held = Told(), []
        work = saved = Fraction(0)
        stalled_s, checkpoint_s, from_checkpoint = start_s, None, False
        cooling: dict[Market, int] = {}
        wake_s = last_eviction_s = None
        by_second = {market: self._by_second(market, start_s) for market in self.prices}
        reliable = Allocation("reliable", RELIABLE, max(self.reliable_count, 1), start_s, Tier.RELIABLE)
        t = start_s
        while work < self.work_vcpu_s and t < start_s + self.window_s:
            now = {market: price for market, each in by_second.items() if (price := each[t - start_s]) is not None}
            if t == checkpoint_s:
                saved, checkpoint_s = work, t + self.checkpoint_s
            taken = [life for life in held if self._taken(life, now, t)]
            for life in taken:
                self._close(told, life, t, evicted=True)
                held.remove(life)
                cooling[life.allocation.market] = t
            if taken:
                stalled_s = max(stalled_s, t + self.eviction_stop_s)
                if self.checkpoint_s:
                    work, stalled_s = saved, max(stalled_s, t + self.restart_s)
                    from_checkpoint, checkpoint_s = not held, (stalled_s + self.checkpoint_s if held else None)
            left = False
            for life in [life for life in held if (t - life.allocation.launched_at_s) % 3600 == 0]:
                if life.lapsing:
                    left = True
                    self._close(told, life, t, evicted=False)
                    held.remove(life)
                    stalled_s = max(stalled_s, t + int(self.job.resize_overhead_s))
                    if self.checkpoint_s and self.job.resize_overhead_s:
                        saved, checkpoint_s = work, stalled_s + self.checkpoint_s
                else:
                    self._charge(life, now, t)
            if taken and self.patient:  # what is bought before then would only stand still
                wake_s, last_eviction_s = stalled_s - int(self.job.resize_overhead_s), t
            if (t - start_s) % self.tick_s == 0 or taken or left or t == wake_s:
                shown = {market for market, since_s in cooling.items() if since_s == t}

                def look(
                    t: int = t,
                    now: Mapping[Market, int] = now,
                    shown: set[Market] = shown,
                    last_eviction_s: int | None = last_eviction_s,
                ) -> MarketView:
                    footprint = [life for life in held if not life.lapsing]
                    return MarketView(
                        t,
                        self.job,
                        now,
                        self.types,
                        tuple([reliable] * (self.reliable_count > 0) + [life.allocation for life in footprint]),
                        self.evictions,
                        frozenset(shown),
                        {life.allocation.allocation_id: life.decided_until_s for life in footprint},
                        dict(now),
                        self._signals(t),
                        self.foresight,
                        tuple(life.allocation for life in held if life.lapsing),
                        last_eviction_s,
                    )

                for life in held:
                    if not life.lapsing and life.decided_until_s - t <= self.job.renewal_lead_s:
                        if self._renews(look, life.allocation):
                            life.decided_until_s += 3600
                        else:
                            life.lapsing = True
                # `best` itself knows better than to buy what would stand still
                waits = self.foresight is None and wake_s is not None and t < wake_s
                choice = None if waits else self._choice(look, held)
                if choice:
                    if not held and self.checkpoint_s:
                        if from_checkpoint:
                            stalled_s, from_checkpoint = max(stalled_s, t + self.restart_s), False
                        checkpoint_s = max(stalled_s, t) + self.checkpoint_s
                    market, count, bid = choice
                    bought = Allocation(f"{len(told.lives)}", market, count, t, Tier.TRANSIENT, bid)
                    life = Life(bought, count * self.types[market.instance_type].vcpu)
                    told.lives.append(life)
                    self._charge(life, now, t)
                    held.append(life)
                    stalled_s = max(stalled_s, t + int(self.job.resize_overhead_s))
                    if self.checkpoint_s and self.job.resize_overhead_s:  # it stops for them, and saves its state
                        saved, checkpoint_s = work, stalled_s + self.checkpoint_s
            if t >= stalled_s:
                vcpus = self.reliable_count * self.reliable_vcpus * self.job.reliable_works
                work += (vcpus + sum(life.vcpus for life in held)) * self.efficiency
            t += 1
        told.finished = work >= self.work_vcpu_s
        told.runtime_s = t - start_s
        for life in held:
            now = {market: self.price(market, t) for market in self.prices}
            self._close(told, life, t, evicted=t < start_s + self.window_s and self._taken(life, now, t))
        dollars = sum((self._bill(told, life) for life in told.lives), Decimal(0))
        hourly = self.reliable_count * self.reliable_usd
        hours, rest = divmod(told.runtime_s, 3600)
        dollars += hours * hourly + (hourly * rest / 3600).quantize(MICRO, ROUND_HALF_EVEN)
        told.cost_micros = int(dollars / MICRO)
        return told

    def _signals(self, t: int) -> Mapping[Market, MarketFeatures]:
        if self.foresight is None:
            return {}
        past = {market: [each for each in events if each[0] <= t] for market, events in self.prices.items()}
        rows = {market: np.array(events, dtype=np.int64).reshape(-1, 2) for market, events in past.items()}
        return features_of(TraceSet({market: Trace(row[:, 0], row[:, 1]) for market, row in rows.items()}), t)

    def _by_second(self, market: Market, start_s: int) -> list[int | None]:
        prices: list[int | None] = [self.price(market, start_s)]
        last = {second: price for second, price in self.prices[market]}  # of several in a second the last
        for t in range(start_s + 1, start_s + self.window_s):
            prices.append(last.get(t, prices[-1]))
        return prices

    def _taken(self, life: Life, now: Mapping[Market, int], t: int) -> bool:
        return t > life.allocation.launched_at_s and now[life.allocation.market] > life.allocation.bid_micros

    def _charge(self, life: Life, now: Mapping[Market, int], t: int) -> None:
        life.charges.append((t, now[life.allocation.market] * MICRO * life.allocation.count))
        life.decided_until_s = max(life.decided_until_s, t + 3600)

    def _close(self, told: Told, life: Life, t: int, *, evicted: bool) -> None:
        life.ended_s, life.evicted = t, evicted
        told.evictions += evicted

    def _bill(self, told: Told, life: Life) -> Decimal:
        dollars = Decimal(0)
        for hour_s, amount in life.charges:
            used_s = min(life.ended_s - hour_s, 3600)
            if life.evicted and used_s < 3600:
                told.free_vcpu_s += used_s * life.vcpus
            else:
                told.paid_vcpu_s += used_s * life.vcpus
                dollars += (amount * used_s / 3600).quantize(MICRO, ROUND_HALF_EVEN)
        return dollars

    def _renews(self, look: Callable[[], MarketView], allocation: Allocation) -> bool:
        if self.free_at_least_s is not None:
            return False
        if self.standard_vcpus is not None or self.delta_micros is not None:
            return True
        return self.policy.renewal(look(), allocation).verdict is Choice.RENEW

    def _choice(self, look: Callable[[], MarketView], held: Sequence[Life]) -> tuple[Market, int, int] | None:
        view = look()
        left = min(self.job.allocation_vcpus, self.job.max_spot_vcpus - view.spot_vcpus)
        if self.delta_micros is not None:
            cheapest = self._cheapest(view, left)
            return cheapest and (*cheapest, view.prices[cheapest[0]] + self.delta_micros)
        if self.free_at_least_s is not None:
            return self._freest(view, self.job.max_spot_vcpus - view.spot_vcpus)
        if self.standard_vcpus is not None:
            cheapest = None if held else self._cheapest(view, self.standard_vcpus)
            return cheapest and (*cheapest, self.types[cheapest[0].instance_type].on_demand_micros)
        chosen = self.policy.acquisition(view).chosen
        return (chosen.market, chosen.count, chosen.bid_micros) if chosen else None

    def _cheapest(self, view: MarketView, vcpus: int) -> tuple[Market, int] | None:
        offers = [(Fraction(price, vcpu), market, vcpus // vcpu) for market, price, vcpu in self._on_sale(view, vcpus)]
        return min(offers)[1:] if offers else None

    def _freest(self, view: MarketView, vcpus: int) -> tuple[Market, int, int] | None:
        best, longest_s = None, (self.free_at_least_s or 0) - 1
        for market, price, vcpu in self._on_sale(view, vcpus):
            seen = [price]
            for s in sorted({s for s, _ in self.prices[market] if view.now_s < s < view.now_s + 3600}):
                then = self.price(market, s)
                if then > max(seen) and s - view.now_s > longest_s:
                    best, longest_s = (market, vcpus // vcpu, max(seen)), s - view.now_s
                seen.append(then)
        return best

    def _on_sale(self, view: MarketView, vcpus: int) -> list[tuple[Market, int, int]]:
        found = []
        for market, price in sorted(view.prices.items()):
            kind = self.types[market.instance_type]
            known = market in self.evictions.rows and market not in view.cooling
            if known and price <= kind.on_demand_micros and kind.vcpu <= vcpus:
                found.append((market, price, kind.vcpu))
        return found
