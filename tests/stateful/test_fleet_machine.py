"""The engine under `deadline`: parts of orders are granted, others refused by their codes, machines are lost in bursts.

Nothing that it orders passes the cap, the quotas, the memory and the tasks of the job, its budget or its limit for
machines on demand; its journal leads to the same state.
"""

from dataclasses import dataclass, field, replace

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proteus_spot.bidding.economics.budget import MINIMUM_S, Spending
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.events import (
    AllocationGranted,
    AllocationRefused,
    JobClosed,
    MachineGone,
    MachineNoticed,
    NodesOffered,
    NoticeSeen,
    TickDue,
)
from proteus_spot.bidding.engine.holdings import QUOTA_S
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Order, Renew
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.facts.known import DatedFigure, MarketKnown
from proteus_spot.bidding.facts.learning import prior_known
from proteus_spot.bidding.facts.records import Source
from proteus_spot.bidding.market.model import HOUR_S, Allocation, EndCause, Market, Tier
from tests.support.journalled_engine import JournalledEngine
from tests.support.markets import MARKETS, START_S, TYPES, opened, price_maps, reliable, table, tables

TICK_S, NOTICE_S = 120, 120
#: Seconds until machines can be ended, from a tick on; ticks are nearer to each other.
ENDS_S = 600
SPOT_QUOTA, ON_DEMAND_QUOTA = "L-34B43A08", "L-1216C47A"
CODES = ("InsufficientInstanceCapacity", "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded")
JOBS = st.builds(
    JobModel,
    allocation_vcpus=st.sampled_from([8, 16, 64]),
    max_spot_vcpus=st.sampled_from([0, 7, 40, 96]),
    renewal_lead_s=st.sampled_from([240, 600]),
    cooldown_s=st.sampled_from([0, 600]),
    reliable_works=st.booleans(),
    billing=st.sampled_from(["per-second-first-hour-free", "hourly-refund", "flat"]),
    flat_micros=st.just(50_000),
    tasks=st.sampled_from([0, 0, 5]),
    task_vcpus=st.sampled_from([1, 4]),
    value_of_time_usd_per_h=st.sampled_from([0.0, 5.0, 5.0]),
    boot_s=st.sampled_from([0.0, 240.0]),
    exclude_markets=st.sampled_from([(), ("us-east-1b",), ("c4.large",)]),
)
PRICES = price_maps(150_000).filter(bool)
#: The share that is granted of each open order, and the code of the refusal where it is none.
ANSWERS = st.lists(st.tuples(st.sampled_from([0.0, 0.3, 1.0, 1.0]), st.sampled_from(CODES)), max_size=4)
LIMITS = st.none() | st.none() | st.integers(100_000, 9_000_000)
NEEDS = st.none() | st.tuples(st.integers(0, 150), st.floats(0.02, 6.0))


def _looked_at(market: Market, known: MarketKnown, there: int, usual: float) -> MarketKnown:
    seen = {"there": float(there), "usually_there": usual}
    return replace(known, **{name: DatedFigure(value, Source.OWN, START_S) for name, value in seen.items()})  # type: ignore[arg-type]


PRIOR = prior_known(MARKETS, START_S)
FACTS: tuple[dict[Market, MarketKnown], ...] = (
    {},
    PRIOR,
    {market: replace(each, share_granted=DatedFigure(0.2, Source.OWN, START_S)) for market, each in PRIOR.items()},
    {market: _looked_at(market, each, number, 1.5) for number, (market, each) in enumerate(PRIOR.items())},
    {market: replace(each, refused=(CODES[0], START_S)) for market, each in list(PRIOR.items())[:3]},
)


@dataclass
class Bought:
    """An allocation by the answers and orders alone, machine by machine."""

    allocation: Allocation
    #: When each machine has ended, and whether the market has taken it; None while it lives.
    ends: dict[str, tuple[int, bool] | None]
    #: When the market takes the noticed ones.
    taken_s: dict[str, int] = field(default_factory=dict)
    lapse: Lapse | None = None
    #: Number of hours that are decided.
    hours: int = 1

    @property
    def living(self) -> list[str]:
        return [name for name, end in self.ends.items() if end is None]

    @property
    def held(self) -> list[str]:
        return [name for name in self.living if name not in self.taken_s]

    @property
    def ending(self) -> list[str]:
        ids = () if self.lapse is None else self.lapse.instance_ids
        return [] if self.lapse is None else [name for name in self.held if not ids or name in ids]

    @property
    def working(self) -> list[str]:
        return [name for name in self.held if name not in self.ending]

    @property
    def on_demand(self) -> bool:
        return self.allocation.bid_micros is None

    @property
    def vcpus(self) -> int:
        """Of one machine."""
        return TYPES[self.allocation.market.instance_type].vcpu


class FleetMachine(RuleBasedStateMachine):
    """Plays the clock, the market, and the caller that carries orders out and counts what they cost at most."""

    @initialize(
        job=JOBS,
        evictions=st.builds(table, beta=st.sampled_from([0.01, 0.5, 1.0])) | tables(),
        budget=LIMITS,
        limit=LIMITS,
    )
    def open(self, job: JobModel, evictions: EvictionTable, budget: int | None, limit: int | None) -> None:
        self.journalled, self.now_s = JournalledEngine(), START_S
        self.job = replace(job, max_spot_vcpus=job.useful_vcpus(job.max_spot_vcpus))
        self.budget, self.limit = budget, limit
        self.bought: dict[str, Bought] = {}
        self.open_orders: dict[str, Acquire] = {}
        self.number = 0
        self.used: int | None = None
        self.is_closed = False
        #: By whether they are on demand: markets that are left alone, and quotas that refusals have told.
        self.cooling: dict[bool, dict[Market, int]] = {False: {}, True: {}}
        self.quotas: dict[bool, tuple[int, int]] = {}
        self.tell(opened(self.job, "deadline", evictions))
        self.tell(AllocationGranted(START_S, "red", reliable()))

    def tell(self, told: object) -> tuple[Order, ...]:
        return self.journalled.tell(told)  # type: ignore[arg-type]

    # -- the clock --------------------------------------------------------------------------------------------

    @rule(
        seconds=st.sampled_from([0, 60, TICK_S]),
        prices=PRICES,
        buys=st.sampled_from([True, True, True, False]),
        needs=NEEDS,
        facts=st.sampled_from(range(len(FACTS))),
        quotas=st.none() | st.tuples(st.integers(-8, 100), st.integers(-8, 100)),
        answers=ANSWERS,
    )
    def decide(
        self,
        seconds: int,
        prices: dict[Market, int],
        buys: bool,
        needs: tuple[int, float] | None,
        facts: int,
        quotas: tuple[int, int] | None,
        answers: list[tuple[float, str]],
    ) -> None:
        """Have a tick decide, and answer some of the orders that are open then."""
        left = {} if quotas is None else {SPOT_QUOTA: quotas[0], ON_DEMAND_QUOTA: quotas[1]}
        self.tick(seconds, TickDue(0, prices, buys, known=FACTS[facts], left_vcpus=left), needs)
        for order_id, (share, code) in zip(list(self.open_orders), answers, strict=False):
            self.answer(order_id, share, code)

    @precondition(lambda self: self.bought)
    @rule(prices=PRICES, needs=NEEDS)
    def an_hour_passes(self, prices: dict[Market, int], needs: tuple[int, float] | None) -> None:
        for _ in range(HOUR_S // (2 * TICK_S)):
            self.tick(2 * TICK_S, TickDue(0, prices), needs)

    def tick(self, seconds: int, due: TickDue, needs: tuple[int, float] | None) -> None:
        self.pass_time(seconds)
        before, limited = self.committed(), self.committed(on_demand=True)
        if self.budget is not None and before > self.budget:
            self.stop()
        ends_s = self.now_s + ENDS_S
        spending = None if self.budget is None else Spending(self.budget, before, ends_s)
        on_demand = None if self.limit is None else Spending(self.limit, limited, ends_s)
        due = replace(due, at_s=self.now_s, spending=spending, on_demand_spending=on_demand)
        due = replace(due, time_left=self.time_left(needs))
        fresh = self.check(self.tell(due), due)
        assert self.budget is None or before > self.budget or self.committed() <= self.budget
        if any(order.bid_micros is None for order in fresh):
            event("on demand is bought")
            assert self.limit is None or self.committed(on_demand=True) <= self.limit
        if any(order.bid_micros is not None for order in fresh):
            event("spot is bought")
        if len(fresh) > 1:
            event("several purchases at once")
        self.let_go()

    def time_left(self, needs: tuple[int, float] | None) -> TimeLeft | None:
        """Return the work of a job that needs so many vCPUs on average for so many hours."""
        if needs is None:
            return None
        vcpus, hours = needs
        return TimeLeft(self.now_s + round(hours * HOUR_S), round(vcpus * hours * HOUR_S), 1.0, 300.0)

    def pass_time(self, seconds: int) -> None:
        """Let time pass: what was noticed is taken."""
        self.now_s += seconds
        for name, each in self.bought.items():
            for machine, at_s in list(each.taken_s.items()):
                if at_s <= self.now_s and each.ends[machine] is None:
                    self.end(name, machine, EndCause.EVICTED)

    def let_go(self) -> None:
        """End the machines whose end is due before the tick after the next one."""
        for name, each in self.bought.items():
            if each.lapse is not None and each.lapse.before_s - self.now_s <= 2 * TICK_S:
                for machine in each.ending:
                    self.end(name, machine, EndCause.USER)

    def end(self, name: str, machine: str, cause: EndCause) -> None:
        self.bought[name].ends[machine] = (self.now_s, cause is EndCause.EVICTED)
        self.tell(MachineGone(self.now_s, name, machine, cause))

    def stop(self) -> None:
        """End the job and its machines, as a tick does whose budget is reached."""
        if not self.is_closed:
            self.tell(JobClosed(self.now_s))
        self.is_closed = True
        for name, each in self.bought.items():
            for machine in each.living:
                self.end(name, machine, EndCause.USER)
        for order_id in list(self.open_orders):
            self.tell(AllocationRefused(self.now_s, order_id, "Abandoned", "the job has ended"))
            del self.open_orders[order_id]

    # -- the market -------------------------------------------------------------------------------------------

    def answer(self, order_id: str, share: float, code: str) -> None:
        """Grant an order, a part of it, or nothing."""
        order = self.open_orders.pop(order_id)
        on_demand, count = order.bid_micros is None, int(order.count * share)
        cools_s = self.now_s + self.job.cooldown_s
        if count:
            new = Allocation(order.order_id, order.market, count, self.now_s, Tier.TRANSIENT, order.bid_micros)
            names = tuple(f"i-{order.order_id}-{number}" for number in range(count))
            self.tell(AllocationGranted(self.now_s, order.order_id, new, names))
            self.bought[order.order_id] = Bought(new, dict.fromkeys(names))
            event("a part is granted" if count < order.count else "all is granted")
        else:
            self.tell(AllocationRefused(self.now_s, order.order_id, code, ""))
            half = order.count // 2
            if code != CODES[0] and (half or not on_demand):
                vcpus = self.vcpus(on_demand) + half * TYPES[order.market.instance_type].vcpu
                self.quotas[on_demand] = vcpus, self.now_s + QUOTA_S
                return
        if count < order.count:
            cooling = self.cooling[on_demand]
            cooling[order.market] = max(cools_s, cooling.get(order.market, 0)) if count else cools_s

    @precondition(lambda self: any(each.living for each in self.bought.values()))
    @rule(data=st.data(), noticed=st.booleans())
    def burst(self, data: st.DataObject, noticed: bool) -> None:
        """Take machines of several allocations at once, with a notice or without."""
        living = [(name, machine) for name, each in self.bought.items() for machine in each.living]
        for name, machine in data.draw(st.lists(st.sampled_from(living), min_size=1, unique=True)):
            each = self.bought[name]
            if not noticed:
                self.end(name, machine, EndCause.EVICTED)
            elif machine in each.held:
                takes_at_s = self.now_s + NOTICE_S
                is_last = each.held == [machine]
                each.taken_s[machine] = takes_at_s
                told = NoticeSeen(self.now_s, name, takes_at_s)
                self.tell(told if is_last else MachineNoticed(self.now_s, name, machine, takes_at_s))
                cooling, market = self.cooling[False], each.allocation.market
                cooling[market] = max(cooling.get(market, 0), takes_at_s + 1)

    @precondition(lambda self: any(each.living for each in self.bought.values()))
    @rule(data=st.data(), used=st.sampled_from([0, 2, 10, None]))
    def offer(self, data: st.DataObject, used: int | None) -> None:
        """Offer machines for release, since the job fits on fewer."""
        living = [machine for each in self.bought.values() for machine in each.living]
        self.tell(NodesOffered(self.now_s, tuple(data.draw(st.lists(st.sampled_from(living), unique=True))), used))
        self.used = used

    @precondition(lambda self: self.now_s > START_S + 2 * HOUR_S)
    @rule()
    def close(self) -> None:
        self.stop()

    # -- the orders -------------------------------------------------------------------------------------------

    def check(self, orders: tuple[Order, ...], due: TickDue) -> list[Acquire]:
        """Check the orders of a tick in their sequence; return the new purchases."""
        were_open, fresh, again = dict(self.open_orders), list[Acquire](), list[Acquire]()
        for order in orders:
            match order:
                case Lapse():
                    self.check_lapse(order)
                case Renew():
                    assert not self.is_closed
                    each = self.bought[order.allocation_id]
                    assert order.hour == each.hours, "each hour is decided once"
                    assert "paid for" not in order.decision.reason
                    each.hours += 1
                case Acquire() if order.order_id in were_open:
                    assert order == were_open[order.order_id]
                    again.append(order)
                    assert self.capped() + sum(map(_vcpus_of, again)) <= self.job.max_spot_vcpus
                case Acquire():
                    assert not were_open, "nothing is decided while one is unanswered"
                    assert due.buy
                    assert not self.is_closed
                    self.check_purchase(order, fresh, due)
                    fresh.append(order)
        self.open_orders |= {order.order_id: order for order in fresh}
        return fresh

    def check_lapse(self, order: Lapse) -> None:
        each = self.bought[order.allocation_id]
        if order == each.lapse:
            assert each.ending
            return
        before, named = set(each.ending), set(order.instance_ids)
        assert each.working
        assert not named or before < named < set(each.held)
        if not self.job.pays_whole_hours and not named:
            event("an allocation is let go between hours")
        each.lapse = order

    def check_purchase(self, order: Acquire, before: list[Acquire], due: TickDue) -> None:
        on_demand, kind = order.bid_micros is None, TYPES[order.market.instance_type]
        assert order.order_id == f"j-buy-{self.number}"
        self.number += 1
        assert not self.job.excludes(order.market)
        assert self.cooling[on_demand].get(order.market, 0) <= self.now_s
        if not on_demand:
            assert order.bid_micros == kind.on_demand_micros >= due.prices[order.market]
            assert order.count * kind.vcpu <= self.job.allocation_vcpus
        bought = [*before, order]
        assert self.capped() + sum(map(_vcpus_of, bought)) <= self.job.max_spot_vcpus
        vcpus = sum(_vcpus_of(each) for each in bought if (each.bid_micros is None) is on_demand)
        left = due.left_vcpus.get(ON_DEMAND_QUOTA if on_demand else SPOT_QUOTA)
        assert left is None or vcpus <= left
        quota, until_s = self.quotas.get(on_demand, (0, 0))
        assert self.now_s >= until_s or self.vcpus(on_demand) + vcpus <= quota
        machines = sum(len(each.working) for each in self.bought.values()) + sum(each.count for each in bought)
        assert self.used is None or machines <= self.used
        working = sum(len(each.working) * each.vcpus for each in self.bought.values())
        with_it = working + sum(map(_vcpus_of, bought))
        assert self.job.useful_vcpus(with_it) > self.job.useful_vcpus(with_it - kind.vcpu), "each machine helps"

    def capped(self) -> int:
        """The vCPUs that the cap is for: those that work on, and noticed ones until they are gone."""
        return self.vcpus(on_demand=False) + self.vcpus(on_demand=True)

    def vcpus(self, on_demand: bool) -> int:
        return sum(
            (len(each.working) + sum(machine in each.taken_s for machine in each.living)) * each.vcpus
            for each in self.bought.values()
            if each.on_demand is on_demand
        )

    # -- what it costs ----------------------------------------------------------------------------------------

    def committed(self, *, on_demand: bool = False) -> int:
        """Return the most that all machines cost, or those on demand, if they are ended when they can be."""
        until_s = self.now_s + ENDS_S
        held = [each for each in self.bought.values() if each.on_demand or not on_demand]
        ordered = [order for order in self.open_orders.values() if order.bid_micros is None or not on_demand]
        total = sum(self.cost(each, machine, until_s) for each in held for machine in each.ends)
        for order in ordered:
            total += order.count * self.cost_of(self.price(order.market, order.bid_micros), ENDS_S, 1)
        return total

    def cost(self, each: Bought, machine: str, until_s: int) -> int:
        """Return the most that a machine costs until a time; where hours are paid, until its decided ones end."""
        price = self.price(each.allocation.market, each.allocation.bid_micros)
        launched_s = each.allocation.launched_at_s
        end = each.ends[machine]
        hours = each.hours
        if end is not None:
            until_s, was_taken = end
            hours = (until_s - launched_s) // HOUR_S + (not was_taken)  # the hour of an eviction is refunded
        elif machine in each.taken_s:
            hours = max(hours, -(-(until_s - launched_s) // HOUR_S))
        elif machine in each.ending and each.lapse is not None:
            hours = each.lapse.hour
        return self.cost_of(price, until_s - launched_s, hours)

    def cost_of(self, price: int, seconds: int, hours: int) -> int:
        if self.job.pays_whole_hours:
            return price * hours
        return -(-price * max(seconds, MINIMUM_S) // HOUR_S)

    def price(self, market: Market, bid_micros: int | None) -> int:
        """Return the most that an hour costs."""
        if bid_micros is None:
            return TYPES[market.instance_type].on_demand_micros
        return self.job.hour_micros(bid_micros)

    # -- always -----------------------------------------------------------------------------------------------

    @invariant()
    def the_ledger_is_within_the_budget(self) -> None:
        if self.budget is None:
            return
        spent = sum(self.spent(each, machine) for each in self.bought.values() for machine in each.ends)
        assert spent <= self.budget

    def spent(self, each: Bought, machine: str) -> int:
        """Return the most that a machine has cost until now."""
        if each.ends[machine] is not None:
            return self.cost(each, machine, self.now_s)
        price = self.price(each.allocation.market, each.allocation.bid_micros)
        lived_s = self.now_s - each.allocation.launched_at_s
        return self.cost_of(price, lived_s, max(-(-lived_s // HOUR_S), 1))

    @invariant()
    def what_it_believes_is_what_happened(self) -> None:
        held = self.journalled.engine.holdings
        assert held.open_orders == self.open_orders
        assert held.spot_vcpus == self.capped()
        working = {name: len(each.working) for name, each in self.bought.items() if each.working}
        assert {a.allocation_id: a.count for a in held.footprint if a.tier is Tier.TRANSIENT} == working

    def teardown(self) -> None:
        if hasattr(self, "journalled"):
            self.journalled.check_replay(TickDue(self.now_s, {MARKETS[0]: 30_000}))


def _vcpus_of(order: Acquire) -> int:
    return order.count * TYPES[order.market.instance_type].vcpu


FleetMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
TestFleet = FleetMachine.TestCase
