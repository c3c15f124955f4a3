"""The engine against a market that refuses, forgets to answer, takes machines and repeats itself; and against its journal."""

import json
from copy import deepcopy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from bidding.actions import Acquire, Lapse, Order, Renew, Wait
from bidding.engine import BidEngine, Standing
from bidding.events import AllocationGranted, AllocationRefused, Event, JobClosed, NoticeSeen, TickDue
from bidding.job import JobModel
from bidding.journal import from_record, replay, to_record
from bidding.model import HOUR_S, Allocation, EndCause, Market, Tier
from tests.support.markets import START_S, TYPES, XLARGE, allocations, gone, opened, price_maps, reliable, tables

JOBS = st.builds(
    JobModel,
    allocation_vcpus=st.integers(2, 32),
    max_spot_vcpus=st.integers(0, 96),
    renewal_lead_s=st.sampled_from([60, 240, 600]),
    cooldown_s=st.sampled_from([0, 600]),
    ceiling_on_demand=st.booleans(),
    reliable_works=st.booleans(),
)


class EngineMachine(RuleBasedStateMachine):
    """Plays the clock and the market; `purchases` are orders that may still be answered, once or again."""

    purchases: Bundle[Acquire] = Bundle("purchases")

    @initialize(job=JOBS, evictions=tables(), policy=st.sampled_from(["proteus", "proteus", "on-demand"]))
    def open(self, job: JobModel, evictions: Any, policy: str) -> None:
        self.engine, self.live = BidEngine(), BidEngine()
        self.records: list[dict[str, Any]] = []
        self.now_s = START_S
        self.job = job
        self.closed = False
        #: the model: what was answered, decided and held, told by the orders and answers alone
        self.open_order: Acquire | None = None
        self.answered: set[str] = set()
        self.bought: list[str] = []
        self.hours: dict[str, set[int]] = {}
        self.lapses: dict[str, Lapse] = {}
        self.standing: dict[str, Standing] = {}
        self.allocations: dict[str, Allocation] = {}
        self.cooling: dict[Market, int] = {}
        self.tell(opened(job, policy, evictions))
        self.tell(AllocationGranted(START_S, "red", reliable()))
        self.take_in(reliable())

    def tell(self, event: Event) -> tuple[Order, ...]:
        orders = self.engine.handle(event)
        self.records += json.loads(json.dumps([to_record(item) for item in (event, *orders)], allow_nan=False))
        # an engine that lives on, fed by what the journal says, orders the same
        again = from_record(json.loads(json.dumps(to_record(event))))
        assert self.live.handle(again) == orders  # type: ignore[arg-type]
        return orders

    def take_in(self, allocation: Allocation) -> None:
        name = allocation.allocation_id
        if name not in self.standing:
            self.standing[name], self.allocations[name] = Standing.HELD, allocation
            self.hours[name] = {0}

    # -- the clock --------------------------------------------------------------------------------------------

    @rule(
        target=purchases,
        seconds=st.sampled_from([0, 60, 120, 120, 600, HOUR_S - 120, HOUR_S, 5 * HOUR_S]),
        prices=price_maps(600_000),
    )
    def tick(self, seconds: int, prices: dict[Market, int]) -> Any:
        self.now_s += seconds
        orders = self.tell(TickDue(self.now_s, prices))
        for order in orders:
            self.check(order, prices)
        due = [lapse for name, lapse in self.lapses.items() if self.standing[name] is Standing.LAPSING]
        assert [order for order in orders if isinstance(order, Lapse)] == sorted(due, key=self.granted_at)
        buying = [order for order in orders if isinstance(order, Acquire | Wait)]
        assert len(buying) == (0 if self.closed else 1)
        self.check_hours()
        return multiple(*[order for order in buying if isinstance(order, Acquire)])

    def granted_at(self, lapse: Lapse) -> int:
        return list(self.standing).index(lapse.allocation_id)

    def check(self, order: Order, prices: dict[Market, int]) -> None:
        match order:
            case Acquire() if self.open_order is not None:
                assert order == self.open_order
            case Acquire():
                assert not self.closed
                assert order.order_id not in self.bought
                self.bought.append(order.order_id)
                kind = TYPES[order.market.instance_type]
                assert order.bid_micros > prices[order.market]
                assert not self.job.ceiling_on_demand or prices[order.market] <= kind.on_demand_micros
                assert self.cooling.get(order.market, 0) <= self.now_s
                assert 0 < order.count * kind.vcpu <= self.job.allocation_vcpus
                assert self.held_vcpus() + order.count * kind.vcpu <= self.job.max_spot_vcpus
                self.open_order = order
            case Renew():
                self.decided(order)
                assert not self.closed
            case Lapse() if order.allocation_id in self.lapses:
                assert order == self.lapses[order.allocation_id]
                assert self.standing[order.allocation_id] is Standing.LAPSING
            case Lapse():
                self.decided(order)
                assert 0 < order.before_s - self.now_s <= self.job.renewal_lead_s
                assert order.before_s == self.allocations[order.allocation_id].launched_at_s + order.hour * HOUR_S
                self.lapses[order.allocation_id] = order
                self.standing[order.allocation_id] = Standing.LAPSING

    def decided(self, order: Renew | Lapse) -> None:
        name = order.allocation_id
        assert self.standing[name] is Standing.HELD
        assert self.allocations[name].tier is Tier.TRANSIENT
        assert order.hour not in self.hours[name]
        self.hours[name].add(order.hour)

    def check_hours(self) -> None:
        """Assert that after a tick no hour of a held allocation is undecided, up to the one that is due."""
        for name, allocation in self.allocations.items():
            if self.standing[name] is Standing.HELD and allocation.tier is Tier.TRANSIENT:
                if self.closed:  # hours that began after the end are nobody's decision
                    self.hours[name].update(range(1, allocation.hour_index(self.now_s) + 1))
                due = max(self.now_s + self.job.renewal_lead_s - allocation.launched_at_s, 0) // HOUR_S
                assert self.hours[name] == set(range(due + 1))

    def held_vcpus(self) -> int:
        return sum(
            a.count * TYPES[a.market.instance_type].vcpu
            for name, a in self.allocations.items()
            if self.standing[name] is Standing.HELD and a.tier is Tier.TRANSIENT
        )

    # -- the market -------------------------------------------------------------------------------------------

    @rule(order=purchases, late_s=st.integers(0, 90))
    def grant(self, order: Acquire, late_s: int) -> None:
        """Answer a purchase; one that was refused or granted before stays as it was answered first."""
        name = order.order_id
        if name in self.answered and name not in self.allocations:
            return  # refused: then nothing was bought
        self.now_s += late_s
        new = Allocation(name, order.market, order.count, self.now_s, Tier.TRANSIENT, order.bid_micros)
        allocation = self.allocations.get(name, new)
        assert self.tell(AllocationGranted(self.now_s, name, allocation)) == ()
        self.answer(name)
        self.take_in(allocation)

    @rule(order=purchases)
    def refuse(self, order: Acquire) -> None:
        """Refuse a purchase, perhaps once more."""
        assert self.tell(AllocationRefused(self.now_s, order.order_id, "NoCapacity", "")) == ()
        if self.open_order is not None and order.order_id == self.open_order.order_id:
            self.cooling[order.market] = self.now_s + self.job.cooldown_s
        self.answer(order.order_id)

    def answer(self, order_id: str) -> None:
        self.answered.add(order_id)
        if self.open_order is not None and self.open_order.order_id == order_id:
            self.open_order = None

    @precondition(lambda self: self.open_order is None)
    @rule(allocation=allocations("stray"))
    def a_purchase_that_nobody_remembers_turns_up(self, allocation: Allocation) -> None:
        assert self.tell(AllocationGranted(self.now_s, "stray", allocation)) == ()
        self.take_in(allocation)

    @rule(data=st.data(), in_s=st.integers(-60, 120))
    def notice(self, data: st.DataObject, in_s: int) -> None:
        name = data.draw(st.sampled_from(list(self.standing)))
        assert self.tell(NoticeSeen(self.now_s, name, self.now_s + in_s)) == ()
        if self.standing[name] in (Standing.HELD, Standing.LAPSING):
            self.standing[name] = Standing.NOTICED

    @rule(data=st.data(), cause=st.sampled_from(EndCause))
    def end(self, data: st.DataObject, cause: EndCause) -> None:
        name = data.draw(st.sampled_from([name for name in self.standing if name != "red"] or ["red"]))
        assert self.tell(gone(name, self.now_s, cause)) == ()
        self.standing[name] = Standing.GONE

    @precondition(lambda self: len(self.records) > 25)
    @rule()
    def close(self) -> None:
        assert self.tell(JobClosed(self.now_s)) == ()
        self.closed = True

    # -- always -----------------------------------------------------------------------------------------------

    @invariant()
    def what_it_believes_is_what_happened(self) -> None:
        self.engine.validate()
        assert self.engine.open_order == self.open_order
        assert self.engine.closed == self.closed
        positions = self.engine.positions
        assert {name: p.standing for name, p in positions.items()} == self.standing
        assert list(positions) == list(self.standing)
        assert {name: p.decided for name, p in positions.items()} == self.hours
        held = [name for name, standing in self.standing.items() if standing is Standing.HELD]
        assert [a.allocation_id for a in self.engine.footprint] == held
        assert self.bought == [f"j-buy-{number}" for number in range(len(self.bought))]

    @invariant()
    def its_journal_leads_to_it(self) -> None:
        again = replay(self.records)
        assert again.positions == self.engine.positions
        assert again.open_order == self.engine.open_order
        assert again.closed == self.engine.closed
        probe = TickDue(self.now_s, {XLARGE: 50_000})
        assert again.handle(probe) == deepcopy(self.engine).handle(probe)


EngineMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestEngine = EngineMachine.TestCase
