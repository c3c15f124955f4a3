"""The engine against a market that refuses, does not answer, evicts and repeats itself; and against its journal."""

from collections import Counter
from dataclasses import replace

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.allocations import AllocationState, MachineState
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import (
    AllocationGranted,
    AllocationRefused,
    BidEvent,
    JobClosed,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    MachinesUnlisted,
    NodesOffered,
    NoticeSeen,
    TickDue,
)
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Order, Wait
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.forecast import MarketFeatures
from proteus_spot.bidding.market.model import HOUR_S, Allocation, EndCause, Market, Tier
from tests.support.bid_engine_model import BidEngineModel, names_of, vcpus_of
from tests.support.forecasts import foresight_of
from tests.support.journalled_engine import JournalledEngine
from tests.support.markets import (
    MARKETS,
    START_S,
    XLARGE,
    allocations,
    gone,
    opened,
    price_maps,
    reliable,
    spot,
    table,
    tables,
)

JOBS = st.builds(
    JobModel,
    allocation_vcpus=st.integers(2, 32),
    max_spot_vcpus=st.integers(0, 96),
    renewal_lead_s=st.sampled_from([60, 240, 600]),
    cooldown_s=st.sampled_from([0, 600]),
    ceiling_on_demand=st.booleans(),
    reliable_works=st.booleans(),
)
PRICES = price_maps(600_000)
#: What `best` is told, of most markets: signals that tell nothing, and that half of the bids are taken.
FLAT = MarketFeatures(50_000, 40_000, 600, 1, 2, 50_000.0, 45_000.0, 40_000.5)
TOLD = dict.fromkeys(MARKETS[:-2], FLAT)
FORESIGHT = foresight_of(((0.2, 0.5), (0.1, 0.3), (0.01, 0.02)))


class EngineMachine(BidEngineModel, RuleBasedStateMachine):
    """Plays the clock and the market; `purchases` may be answered once or again."""

    @initialize(
        job=JOBS,
        evictions=st.builds(table, beta=st.sampled_from([0.05, 0.5, 1.0])) | tables(),
        policy=st.sampled_from(["proteus", "proteus", "best", "best", "on-demand"]),
        found=st.builds(
            spot,
            market=st.sampled_from(MARKETS),
            count=st.integers(1, 8),
            bid=st.sampled_from(["0.05", "3"]),
            launched_at_s=st.integers(START_S - HOUR_S, START_S + 5),
        ),
    )
    def open(self, job: JobModel, evictions: EvictionTable, policy: str, found: Allocation) -> None:
        self.journalled = JournalledEngine()
        self.begin(job, foresees=policy == "best")
        self.tell(replace(opened(job, policy, evictions), foresight=FORESIGHT if self.foresees else None))
        self.tell(AllocationGranted(START_S, "red", reliable()))
        self.take_in(reliable())
        self.tell(AllocationGranted(START_S, "a", found))
        self.take_in(found)

    @property
    def engine(self) -> BidEngine:
        return self.journalled.engine

    def tell(self, told: BidEvent) -> tuple[Order, ...]:
        return self.journalled.tell(told)

    # -- the clock --------------------------------------------------------------------------------------------

    # Hypothesis leaves rules out at random: so there are several that tick, and the market's may be followed by a tick.

    @rule(seconds=st.sampled_from([0, 60, 120]), prices=PRICES, buy=st.sampled_from([True, True, False]))
    def tick_soon(self, seconds: int, prices: dict[Market, int], buy: bool) -> None:
        self.tick(self.now_s + seconds, prices, buy)

    @rule(seconds=st.sampled_from([HOUR_S, 3 * HOUR_S]), prices=PRICES)
    def tick_late(self, seconds: int, prices: dict[Market, int]) -> None:
        self.tick(self.now_s + seconds, prices)

    @rule(data=st.data(), before_s=st.sampled_from([0, 1, 60, 240, 241, 600]), prices=PRICES)
    def tick_at_an_hours_end(self, data: st.DataObject, before_s: int, prices: dict[Market, int]) -> None:
        allocation = self.allocations[data.draw(st.sampled_from(list(self.allocations)))]
        self.tick(max(allocation.hour_ends_at_s(self.now_s + 1) - before_s, self.now_s), prices)

    def tick(self, at_s: int, prices: dict[Market, int] | None, buy: bool = True) -> None:
        if prices is None:
            return
        self.now_s = at_s
        self.unlisted_since_s = None
        orders = self.tell(TickDue(self.now_s, prices, buy, signals=TOLD if self.foresees else {}))
        for order in orders:
            event(type(order).__name__)
            self.check(order, prices)
        due = [lapse for name, lapse in self.lapses.items() if self.ending(name)]
        last = {order.allocation_id: order for order in orders if isinstance(order, Lapse)}
        assert list(last.values()) == sorted(due, key=self.granted_at)
        buying = [order for order in orders if isinstance(order, Acquire | Wait)]
        assert len(buying) == (0 if self.closed or not buy else 1)
        if self.open_order is not None and any(isinstance(order, Wait) for order in buying):
            assert self.capped_vcpus() + vcpus_of(self.open_order) > self.job.max_spot_vcpus
        self.check_hours()

    # -- the market -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.purchases)
    @rule(data=st.data(), sold=st.booleans(), late_s=st.integers(0, 90), prices=st.none() | PRICES)
    def answer_a_purchase(self, data: st.DataObject, sold: bool, late_s: int, prices: dict[Market, int] | None) -> None:
        """Answer a purchase, the last or one before it, perhaps once more; what was refused was never sold."""
        order = data.draw(st.sampled_from(self.purchases[::-1]))
        name = order.order_id
        self.now_s += late_s
        if sold and not (name in self.answered and name not in self.allocations):
            new = Allocation(name, order.market, order.count, self.now_s, Tier.TRANSIENT, order.bid_micros)
            allocation = self.allocations.get(name, new)
            assert self.tell(AllocationGranted(self.now_s, name, allocation, names_of(allocation))) == ()
            self.take_in(allocation, named=True)
        else:
            assert self.tell(AllocationRefused(self.now_s, name, "NoCapacity", "")) == ()
            if self.open_order == order:
                self.cooling[order.market] = self.now_s + self.job.cooldown_s
        self.answer(name)
        self.tick(self.now_s, prices)

    @precondition(lambda self: self.open_order is None)
    @rule(allocation=allocations("stray"))
    def a_purchase_that_nobody_remembers_turns_up(self, allocation: Allocation) -> None:
        assert self.tell(AllocationGranted(self.now_s, "stray", allocation)) == ()
        self.take_in(allocation)

    @rule(
        data=st.data(),
        in_s=st.integers(-60, 120),
        end=st.none() | st.sampled_from(EndCause),
        prices=st.none() | PRICES,
    )
    def lose(self, data: st.DataObject, in_s: int, end: EndCause | None, prices: dict[Market, int] | None) -> None:
        """Announce the loss of an allocation, or carry it out; also of one that is gone."""
        name = data.draw(st.sampled_from([name for name in self.standing if name != "red"] or ["red"]))
        if end is not None:
            assert self.tell(gone(name, self.now_s, end)) == ()
            living = self.those(name, MachineState.HELD, MachineState.NOTICED)
            self.update(name, *living, to=MachineState.GONE)
        else:
            assert self.tell(NoticeSeen(self.now_s, name, self.now_s + in_s)) == ()
            self.update(name, *self.those(name, MachineState.HELD), to=MachineState.NOTICED)
        self.tick(self.now_s + 5, prices)

    @rule(
        data=st.data(),
        becomes=st.sampled_from(MachineState),
        end=st.sampled_from(EndCause),
        prices=st.none() | PRICES,
    )
    def observe_a_machine(
        self, data: st.DataObject, becomes: MachineState, end: EndCause, prices: dict[Market, int] | None
    ) -> None:
        """Announce the loss of one machine, or carry it out, or see it alive, also where it was given up."""
        name = data.draw(st.sampled_from([name for name in self.standing if name != "red"] or ["red"]))
        machine = data.draw(st.sampled_from(list(self.machines[name])))
        was = self.machines[name][machine]
        told: dict[MachineState, BidEvent] = {
            MachineState.HELD: MachineSeen(self.now_s, name, machine),
            MachineState.NOTICED: MachineNoticed(self.now_s, name, machine, self.now_s + 120),
            MachineState.GONE: MachineGone(self.now_s, name, machine, end),
        }
        assert self.tell(told[becomes]) == ()
        event(f"a machine that is {was} becomes {becomes}")
        self.unnamed[name].discard(machine)
        is_noticed_too_late = becomes is MachineState.NOTICED and was is MachineState.GONE
        self.update(name, machine, to=was if is_noticed_too_late else becomes)
        self.tick(self.now_s + 5, prices)

    @rule(data=st.data(), dead=st.booleans())
    def find_one_more_machine(self, data: st.DataObject, dead: bool) -> None:
        """Find a machine of a purchase that was not listed when the others were."""
        whole = [name for name in self.standing if name != "red" and not self.unnamed[name]]
        if not whole:
            return
        name = data.draw(st.sampled_from(whole))
        machine = f"i-{name}-{len(self.machines[name])}"
        found = (
            MachineGone(self.now_s, name, machine, EndCause.USER) if dead else MachineSeen(self.now_s, name, machine)
        )
        assert self.tell(found) == ()
        self.allocations[name] = replace(self.allocations[name], count=len(self.machines[name]) + 1)
        self.update(name, machine, to=MachineState.GONE if dead else MachineState.HELD)

    @rule(data=st.data(), used=st.sampled_from([0, 1, 3, None]), prices=PRICES)
    def offer_machines(self, data: st.DataObject, used: int | None, prices: dict[Market, int]) -> None:
        """Offer some machines of an allocation, or all; its hour ends soon."""
        name = data.draw(st.sampled_from(list(self.machines)[::-1]))
        for machine in sorted(self.unnamed[name].intersection(self.those(name, MachineState.HELD))):
            assert self.tell(MachineSeen(self.now_s, name, machine)) == ()  # it has joined the job, so it has a name
            self.unnamed[name].discard(machine)
        machines = list(self.machines[name])
        offered = tuple(machines[: data.draw(st.integers(1, len(machines)))])
        assert self.tell(NodesOffered(self.now_s, offered, used)) == ()
        self.offered, self.used = frozenset(offered), used
        self.tick(max(self.allocations[name].hour_ends_at_s(self.now_s + 1) - 30, self.now_s), prices)

    @rule(in_s=st.sampled_from([0, 120]))
    def list_nothing(self, in_s: int) -> None:
        self.now_s += in_s
        assert self.tell(MachinesUnlisted(self.now_s, 3)) == ()
        if self.unlisted_since_s is None:
            self.unlisted_since_s = self.now_s

    @precondition(lambda self: len(self.journalled.records) > 15)
    @rule()
    def close(self) -> None:
        assert self.tell(JobClosed(self.now_s)) == ()
        self.closed = True

    # -- always -----------------------------------------------------------------------------------------------

    @invariant()
    def what_it_believes_is_what_happened(self) -> None:
        self.engine.validate()
        open_order = self.open_order
        assert self.engine.holdings.open_orders == ({} if open_order is None else {open_order.order_id: open_order})
        assert self.engine.holdings.closed == self.closed
        positions = self.engine.holdings.positions
        assert {name: p.standing for name, p in positions.items()} == self.standing
        assert list(positions) == list(self.standing)
        assert {name: p.decided for name, p in positions.items()} == self.hours
        assert [(a.allocation_id, a.count) for a in self.engine.holdings.footprint] == [
            (name, len(self.working(name))) for name in self.standing if self.working(name)
        ]
        for name, position in positions.items():
            states = {machine: its.state for machine, its in position.machines.items()}
            assert Counter(states.values()) == Counter(self.machines[name].values())
            if not self.unnamed[name]:
                assert states == self.machines[name]
            assert position.allocation == self.allocations[name]
            assert (position.ended_at_s is None) == (position.standing is not AllocationState.GONE)
        assert self.engine.holdings.spot_vcpus == self.capped_vcpus()
        assert self.engine.holdings.unlisted_since_s == self.unlisted_since_s
        assert self.bought == [f"j-buy-{number}" for number in range(len(self.bought))]

    def teardown(self) -> None:
        if hasattr(self, "journalled"):
            self.journalled.check_replay(TickDue(self.now_s, {XLARGE: 50_000}))


EngineMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
TestEngine = EngineMachine.TestCase
