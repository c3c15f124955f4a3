"""The engine against a market that refuses, does not answer, evicts and repeats itself; and against its journal."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bidding.economics.job_model import JobModel
from bidding.engine.allocations import AllocationState, MachineState
from bidding.engine.engine import BidEngine
from bidding.engine.events import (
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
from bidding.engine.journal import from_record, replay, to_record
from bidding.engine.orders import Acquire, Lapse, Order, Renew, Wait
from bidding.engine.snapshot import from_snapshot, to_snapshot
from bidding.evictions.table import EvictionTable
from bidding.forecast import MarketFeatures
from bidding.market.model import HOUR_S, Allocation, EndCause, Market, Tier
from tests.support.forecasts import foresight_of
from tests.support.markets import (
    MARKETS,
    START_S,
    TYPES,
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


def names_of(allocation: Allocation) -> tuple[str, ...]:
    return tuple(f"i-{allocation.allocation_id}-{number}" for number in range(allocation.count))


def vcpus_of(order: Acquire) -> int:
    return order.count * TYPES[order.market.instance_type].vcpu


class EngineMachine(RuleBasedStateMachine):
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
        self.engine, self.replayed, self.restored = BidEngine(), BidEngine(), BidEngine()
        self.records: list[dict[str, Any]] = []
        self.now_s = START_S
        self.job = job
        self.closed = False
        #: the model: what was answered, decided and held, told by the orders and answers alone
        self.open_order: Acquire | None = None
        self.answered: set[str] = set()
        self.bought: list[str] = []
        self.purchases: list[Acquire] = []
        self.hours: dict[str, set[int]] = {}
        self.lapses: dict[str, Lapse] = {}
        self.standing: dict[str, AllocationState] = {}
        self.allocations: dict[str, Allocation] = {}
        #: the state of each machine, by its allocation; of some the grant did not say which they are
        self.machines: dict[str, dict[str, MachineState]] = {}
        self.unnamed: dict[str, set[str]] = {}
        self.unlisted_since_s: int | None = None
        self.cooling: dict[Market, int] = {}
        #: the machines that the job offers for release, and the number that it has a use for
        self.offered: frozenset[str] = frozenset()
        self.used: int | None = None
        self.foresees = policy == "best"
        self.tell(replace(opened(job, policy, evictions), foresight=FORESIGHT if self.foresees else None))
        self.tell(AllocationGranted(START_S, "red", reliable()))
        self.take_in(reliable())
        self.tell(AllocationGranted(START_S, "a", found))
        self.take_in(found)

    def tell(self, told: BidEvent) -> tuple[Order, ...]:
        orders = self.engine.handle(told)
        records = json.loads(json.dumps([to_record(item) for item in (told, *orders)], allow_nan=False))
        self.records += records
        again, *ordered = map(from_record, records)
        assert self.replayed.handle(again) == tuple(ordered) == orders  # type: ignore[arg-type]
        assert self.restored.handle(again) == orders  # type: ignore[arg-type]
        snapshot = json.loads(json.dumps(to_snapshot(self.restored), allow_nan=False))
        self.restored = from_snapshot(snapshot, self.replayed.opened)
        states = [{**vars(engine), "_policy": None} for engine in (self.restored, self.replayed, self.engine)]
        assert states[0] == states[1] == states[2]
        return orders

    def take_in(self, allocation: Allocation, *, named: bool = False) -> None:
        name = allocation.allocation_id
        if name not in self.standing:
            self.standing[name], self.allocations[name] = AllocationState.HELD, allocation
            self.hours[name] = {0}
            self.machines[name] = dict.fromkeys(names_of(allocation), MachineState.HELD)
            self.unnamed[name] = set() if named else set(self.machines[name])

    def update(self, name: str, *machines: str, to: MachineState) -> None:
        """Note the new state of machines, and what follows for their allocation."""
        self.machines[name].update(dict.fromkeys(machines, to))
        states = set(self.machines[name].values())
        if self.working(name):
            self.standing[name] = AllocationState.HELD
        elif MachineState.HELD in states:
            self.standing[name] = AllocationState.LAPSING
        else:
            noticed = MachineState.NOTICED in states
            self.standing[name] = AllocationState.NOTICED if noticed else AllocationState.GONE

    def those(self, name: str, *states: MachineState) -> list[str]:
        return [machine for machine, state in self.machines[name].items() if state in states]

    def ending(self, name: str) -> list[str]:
        """Return the machines of an allocation that are held until their paid hour ends."""
        held, lapse = self.those(name, MachineState.HELD), self.lapses.get(name)
        if lapse is None or not lapse.instance_ids:
            return [] if lapse is None else held
        return [machine for machine in held if machine in lapse.instance_ids]

    def working(self, name: str) -> list[str]:
        """Return the machines of an allocation that are held, and whose end is not ordered."""
        ending = self.ending(name)
        return [machine for machine in self.those(name, MachineState.HELD) if machine not in ending]

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

    def granted_at(self, lapse: Lapse) -> int:
        return list(self.standing).index(lapse.allocation_id)

    def check(self, order: Order, prices: dict[Market, int]) -> None:
        match order:
            case Acquire() if self.open_order is not None:
                assert order == self.open_order
                assert self.capped_vcpus() + vcpus_of(order) <= self.job.max_spot_vcpus
            case Acquire():
                assert not self.closed
                assert order.order_id not in self.bought
                self.bought.append(order.order_id)
                self.purchases.append(order)
                kind = TYPES[order.market.instance_type]
                assert order.bid_micros > prices[order.market] - self.foresees  # `best` may bid the very price
                assert not self.job.ceiling_on_demand or prices[order.market] <= kind.on_demand_micros
                assert self.cooling.get(order.market, 0) <= self.now_s
                assert 0 < order.count * kind.vcpu <= self.job.allocation_vcpus
                assert self.capped_vcpus() + vcpus_of(order) <= self.job.max_spot_vcpus
                assert self.used is None or self.working_machines() + order.count <= self.used
                self.open_order = order
            case Renew():
                self.decided(order)
                assert not self.closed
                is_late = "paid for" in order.decision.reason  # it has begun
                assert is_late or self.capped_vcpus() <= self.job.max_spot_vcpus, "what was found is let go first"
                named = set(self.working(order.allocation_id)) - self.unnamed[order.allocation_id]
                assert is_late or "on demand" in order.decision.reason or named.isdisjoint(self.offered)
            case Lapse() if order == self.lapses.get(order.allocation_id):
                assert self.ending(order.allocation_id)
            case Lapse():
                name, released = order.allocation_id, set(order.instance_ids)
                if released:
                    assert not self.closed
                    event("some machines of an allocation are released")
                    before = set(self.ending(name))
                    assert before < released <= {*before, *self.working(name)}
                    assert released - before <= self.offered - self.unnamed[name]
                    self.due(order)
                    self.lapses[name] = order
                    self.update(name, to=MachineState.HELD)
                    assert self.working(name), "the allocation goes on"
                    return
                if self.closed:  # hours that began undecided are paid for; one that was renewed is taken back
                    self.hours[order.allocation_id].update(range(1, order.hour))
                    self.hours[order.allocation_id].discard(order.hour)
                self.decided(order)
                self.due(order)
                self.lapses[order.allocation_id] = order
                self.update(order.allocation_id, to=MachineState.HELD)  # of no machine: the whole lapses

    def due(self, order: Lapse) -> None:
        assert 0 < order.before_s - self.now_s <= self.job.renewal_lead_s
        assert order.before_s == self.allocations[order.allocation_id].launched_at_s + order.hour * HOUR_S

    def decided(self, order: Renew | Lapse) -> None:
        name = order.allocation_id
        assert self.standing[name] is AllocationState.HELD
        assert self.allocations[name].tier is Tier.TRANSIENT
        assert order.hour not in self.hours[name]
        self.hours[name].add(order.hour)

    def check_hours(self) -> None:
        """Assert that after a tick no hour of a held allocation is undecided, up to the one that is due."""
        for name, allocation in self.allocations.items():
            if self.standing[name] is AllocationState.HELD and allocation.tier is Tier.TRANSIENT:
                if self.closed:  # what ends soon is let go; hours that began after the end are nobody's decision
                    now_s = max(self.now_s, allocation.launched_at_s)
                    assert allocation.hour_ends_at_s(now_s) - now_s > self.job.renewal_lead_s
                    self.hours[name].update(range(1, allocation.hour_index(self.now_s) + 1))
                due = max(self.now_s + self.job.renewal_lead_s - allocation.launched_at_s, 0) // HOUR_S
                assert self.hours[name] == set(range(due + 1))

    def capped_vcpus(self) -> int:
        """Return the spot vCPUs that the limit is for: those held, and those noticed until they are gone."""
        return sum(
            TYPES[a.market.instance_type].vcpu
            for name, a in self.allocations.items()
            for _ in [*self.working(name), *self.those(name, MachineState.NOTICED)]
            if a.tier is Tier.TRANSIENT
        )

    def working_machines(self) -> int:
        """Return the number of spot machines that are held and do not lapse."""
        return sum(len(self.working(name)) for name, a in self.allocations.items() if a.tier is Tier.TRANSIENT)

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

    def answer(self, order_id: str) -> None:
        self.answered.add(order_id)
        if self.open_order is not None and self.open_order.order_id == order_id:
            self.open_order = None

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

    @precondition(lambda self: len(self.records) > 15)
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
        assert [(a.allocation_id, a.count) for a in self.engine.footprint] == [
            (name, len(self.working(name))) for name in self.standing if self.working(name)
        ]
        for name, position in positions.items():
            states = {machine: its.state for machine, its in position.machines.items()}
            assert Counter(states.values()) == Counter(self.machines[name].values())
            if not self.unnamed[name]:
                assert states == self.machines[name]
            assert position.allocation == self.allocations[name]
            assert (position.ended_at_s is None) == (position.standing is not AllocationState.GONE)
        assert self.engine.spot_vcpus == self.capped_vcpus()
        assert self.engine.unlisted_since_s == self.unlisted_since_s
        assert self.bought == [f"j-buy-{number}" for number in range(len(self.bought))]

    @invariant()
    def what_its_journal_leads_to_is_the_same(self) -> None:
        self.compare(self.replayed)

    def teardown(self) -> None:
        if hasattr(self, "records"):
            again = replay(self.records)
            self.compare(again)
            probe = TickDue(self.now_s, {XLARGE: 50_000})
            assert again.handle(probe) == self.engine.handle(probe)

    def compare(self, other: BidEngine) -> None:
        assert other.positions == self.engine.positions
        assert other.open_order == self.engine.open_order
        assert other.closed == self.engine.closed


EngineMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
TestEngine = EngineMachine.TestCase
