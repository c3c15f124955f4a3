"""The engine of a sweep against machines that are refused, evicted, late and lost; and against its journal."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proteus_spot.bidding.economics.budget import Spending
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationRefused,
    BidEvent,
    MachineSeen,
    MachinesUnlisted,
    NoticeSeen,
)
from proteus_spot.bidding.market.model import HOUR_S, Allocation, EndCause, Market
from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.sweep_events import (
    Offer,
    SamplerFailed,
    SweepClosed,
    SweepReopened,
    SweepStopRequested,
    SweepTick,
    TrialReported,
    TrialsProposed,
)
from proteus_spot.bidding.tuning.sweep_journal import from_record, replay, to_record
from proteus_spot.bidding.tuning.sweep_orders import Deploy, SweepOrder
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from proteus_spot.bidding.tuning.trials import SweepState, TrialState
from proteus_spot.bidding.tuning.views import result_view
from tests.support.markets import LARGE, XLARGE
from tests.support.sweep_model import Node, Seen, SweepModel
from tests.support.sweeps import offer_of, opened_sweep, settings_of

PLANS = st.builds(
    SweepPlan,
    trials=st.integers(1, 4),
    max_trial_steps=st.sampled_from([3, 12]),
    stop=st.sampled_from(["none", "earlycurve", "asha", "median"]),
    theta=st.sampled_from([0.5, 1.0]),
    mcnt=st.integers(1, 2),
    parallel=st.integers(1, 3),
    adaptive=st.booleans(),
    billing=st.sampled_from(["per-second-first-hour-free", "flat"]),
)
OFFERS = st.fixed_dictionaries(
    {},
    optional={
        market: st.builds(offer_of, st.sampled_from(["0.03", "0.2"]), st.sampled_from([0.0, 0.5, 1.0]))
        for market in (LARGE, XLARGE)
    },
)
STEADY: Mapping[Market, Offer] = {LARGE: offer_of("0.03"), XLARGE: offer_of("0.05")}
STEP_S = 60.0
#: What happens to a machine that trains.
TROUBLES = ("", "", "", "fails", "pauses", "is noticed", "is evicted", "ends")


def metric(trial: int, step: int) -> float | None:
    return None if (trial, step) == (2, 2) else trial + 1.0 / step


class SweepMachine(SweepModel, RuleBasedStateMachine):
    """Plays the clock, the market and the machines of a sweep."""

    @initialize(plan=PLANS)
    def open(self, plan: SweepPlan) -> None:
        self.begin(plan)
        #: `frugal` gets no offers at ticks that do not want any.
        self.engine, self.replayed, self.frugal = SweepEngine(), SweepEngine(), SweepEngine()
        self.records: list[dict[str, Any]] = []
        self.tell(opened_sweep(plan))
        self.propose()

    def tell(self, said: BidEvent, frugal: BidEvent | None = None) -> tuple[SweepOrder, ...]:
        orders = self.engine.handle(said)
        self.engine.validate()
        records = json.loads(json.dumps([to_record(item) for item in (said, *orders)], allow_nan=False))
        self.records += records
        again, *ordered = map(from_record, records)
        assert isinstance(again, BidEvent)
        assert self.replayed.handle(again) == tuple(ordered) == orders
        assert self.frugal.handle(frugal or said) == orders
        return orders

    # -- the clock --------------------------------------------------------------------------------------------

    @rule(
        seconds=st.sampled_from([0, 120, 300]),
        offers=OFFERS | st.just(STEADY),
        buy=st.sampled_from([True, True, False]),
    )
    def tick_soon(self, seconds: int, offers: dict[Market, Offer], buy: bool) -> None:
        self.tick(seconds, offers, buy=buy)

    @rule(hours=st.sampled_from([1, 3]))
    def tick_late(self, hours: int) -> None:
        self.tick(hours * HOUR_S, STEADY)

    @rule(left=st.sampled_from([0, 5_000, 10**6]), deadline_in_s=st.sampled_from([-60, 1000, 10**6]))
    def tick_within_limits(self, left: int, deadline_in_s: int) -> None:
        at_s = self.now_s + 120
        self.tick(
            120, STEADY, spending=Spending(left, 0, at_s + 240), time_left=TimeLeft(at_s + deadline_in_s, 0, 0.0, 60.0)
        )

    def tick(self, seconds: int, offers: Mapping[Market, Offer], **limits: Any) -> None:
        for name, node in self.nodes.items():
            if not node.is_late:
                self.read(name)
        self.now_s += seconds
        tick = SweepTick(self.now_s, offers, **limits)
        wants = self.engine.wants_offers(self.now_s)
        orders = self.tell(tick, tick if wants else replace(tick, offers={}))
        self.stopping = self.stopping or bool(self.engine.sweep.stopping)
        for order in orders:
            event(type(order).__name__)
            self.check(order)
        self.check_ends_are_ordered(orders)

    # Hypothesis leaves rules out at random: so there is one that does a bit of everything, on every machine.

    @rule(data=st.data(), seconds=st.sampled_from([120, 120, HOUR_S]))
    def have_troubles(self, data: st.DataObject, seconds: int) -> None:
        for order in list(self.open_orders.values()):
            self.answer_order(order, data.draw(st.integers(0, 5)) > 0)
        for name in self.working():
            steps, trouble = data.draw(st.integers(0, 6)), data.draw(st.sampled_from(TROUBLES))
            self.train_on(
                name, steps, data.draw(st.booleans()), trouble if trouble in ("fails", "pauses") else "goes on"
            )
            if trouble == "is noticed":
                self.notice_of(name)
            if trouble in ("is evicted", "ends"):
                self.lose(name, EndCause.EVICTED if trouble == "is evicted" else EndCause.USER)
        self.tick(seconds, STEADY)
        for name, node in self.nodes.items():
            if node.is_alive and name in self.released:
                self.lose(name, EndCause.USER)
        if data.draw(st.booleans()):
            self.read_late_reports()

    # -- machines ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.open_orders)
    @rule(data=st.data(), granted=st.sampled_from([True, True, True, False]))
    def answer(self, data: st.DataObject, granted: bool) -> None:
        order = data.draw(st.sampled_from(list(self.open_orders.values())))
        self.answer_order(order, granted)

    def answer_order(self, order: Deploy, granted: bool = True) -> None:
        del self.open_orders[order.order_id]
        if not granted:
            self.tell(AllocationRefused(self.now_s, order.order_id, "InsufficientInstanceCapacity", ""))
            return
        saved = max([0, *(node.saved for node in self.nodes.values() if node.order.trial == order.trial)])
        self.nodes[order.order_id] = Node(order, saved, saved)
        allocation = Allocation(order.order_id, order.market, 1, self.now_s, bid_micros=order.bid_micros)
        self.tell(AllocationGranted(self.now_s, order.order_id, allocation, (f"i-{order.order_id}",)))
        if self.engine.sweep.deployments[order.order_id].release_why:
            self.released.add(order.order_id)

    @precondition(lambda self: self.working())
    @rule(
        data=st.data(),
        steps=st.integers(1, 6),
        saves=st.booleans(),
        then=st.sampled_from(["goes on", "pauses", "fails"]),
    )
    def train(self, data: st.DataObject, steps: int, saves: bool, then: str) -> None:
        """Train on a machine; its report waits to be read."""
        self.train_on(data.draw(st.sampled_from(self.working())), steps, saves, then)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def read_a_report(self, data: st.DataObject) -> None:
        self.read(data.draw(st.sampled_from(list(self.nodes))))

    @precondition(lambda self: any(node.is_late for node in self.nodes.values()))
    @rule()
    def read_late_reports(self) -> None:
        for name in self.nodes:
            self.read(name)

    def read(self, name: str) -> None:
        """Read the report of a machine, if there is news in it; also of one that is gone."""
        node = self.nodes[name]
        if node.is_read:
            return
        node.is_read = True
        seen = self.trials[node.order.trial]
        trial = self.engine.sweep.trials[node.order.trial]
        repeated, had_ended = trial.repeated_steps, trial.has_ended
        values = tuple((step, metric(node.order.trial, step)) for step in range(node.from_step + 1, node.step + 1))
        is_present = seen.ordered[-1] == name or self.is_last(name)
        self.tell(
            TrialReported(
                self.now_s,
                node.order.trial,
                name,
                values,
                node.saved or None,
                STEP_S,
                node.ended,
                "boom" if node.ended else "",
            )
        )
        seen.saved = max(seen.saved, node.saved)
        assert trial.saved_step == seen.saved
        news = {step for step, _ in values if (is_present and not had_ended) or step <= node.saved}
        fresh = {step for step in news if step > node.reported}
        if is_present and not had_ended:
            assert trial.repeated_steps - repeated == len(fresh & seen.steps)
            node.reported = node.step
        else:
            assert trial.repeated_steps == repeated
        seen.steps |= news
        assert trial.curve.steps.tolist() == sorted(seen.steps)

    def is_last(self, name: str) -> bool:
        present = self.engine.sweep.trials[self.nodes[name].order.trial].present
        return present is not None and present.order_id == name

    @precondition(lambda self: any(node.is_alive for node in self.nodes.values()))
    @rule(data=st.data(), in_s=st.sampled_from([0, 120]))
    def notice(self, data: st.DataObject, in_s: int) -> None:
        self.notice_of(data.draw(st.sampled_from([name for name, node in self.nodes.items() if node.is_alive])), in_s)

    def notice_of(self, name: str, in_s: int = 120) -> None:
        self.tell(NoticeSeen(self.now_s, name, self.now_s + in_s))
        self.nodes[name].is_noticed = True

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), cause=st.sampled_from(EndCause), reads=st.booleans())
    def end(self, data: st.DataObject, cause: EndCause, reads: bool) -> None:
        """End a machine, also one that has ended; its last report is read before, or after, or never."""
        name = data.draw(st.sampled_from(list(self.nodes)))
        if reads:
            self.read(name)
        self.lose(name, cause)

    def lose(self, name: str, cause: EndCause) -> None:
        """End a machine; its last report is read late, or never."""
        self.tell(AllocationGone(self.now_s, name, cause))
        self.nodes[name].is_alive, self.nodes[name].is_late = False, True

    @precondition(lambda self: any(not node.is_alive for node in self.nodes.values()))
    @rule(data=st.data())
    def find_alive(self, data: st.DataObject) -> None:
        """See a machine whose end was reported; it is worth nothing if its trial has another."""
        name = data.draw(st.sampled_from([name for name, node in self.nodes.items() if not node.is_alive]))
        node = self.nodes[name]
        if self.finish is not None:
            return
        self.tell(MachineSeen(self.now_s, name, f"i-{name}"))
        node.is_alive, node.is_noticed, node.is_late = True, False, False
        if self.engine.sweep.deployments[name].release_why:
            self.released.add(name)

    # -- the sweep --------------------------------------------------------------------------------------------

    @rule()
    def propose(self) -> None:
        count = self.engine.wants_trials
        first = len(self.trials)
        wanted = settings_of(self.plan.trials)[: first + count]  # those before are ignored
        self.tell(TrialsProposed(self.now_s, wanted))
        for setting in wanted:
            self.trials.setdefault(setting.number, Seen())

    @precondition(lambda self: self.plan.adaptive and len(self.records) > 8)
    @rule()
    def fail_sampling(self) -> None:
        self.tell(SamplerFailed(self.now_s, "no more"))
        event("its sampler fails")

    @rule()
    def list_nothing(self) -> None:
        self.tell(MachinesUnlisted(self.now_s, 2))

    @precondition(lambda self: len(self.records) > 15)
    @rule()
    def stop(self) -> None:
        self.tell(SweepStopRequested(self.now_s, "stop"))
        self.stopping = bool(self.engine.sweep.stopping)

    @precondition(lambda self: self.finish is not None or len(self.records) > 60)
    @rule(reopens=st.booleans())
    def close(self, reopens: bool) -> None:
        self.tell(SweepClosed(self.now_s))
        self.closed = True
        if reopens:
            self.tell(SweepReopened(self.now_s))
            self.closed = self.stopping = False
            self.finish = None
            event("reopened")

    # -- always -----------------------------------------------------------------------------------------------

    @invariant()
    def no_trial_is_lost(self) -> None:
        assert list(self.engine.sweep.trials) == list(self.trials)
        assert dict(self.engine.sweep.open_orders) == self.open_orders
        for number, trial in self.engine.sweep.trials.items():
            seen = self.trials[number]
            assert trial.saved_step == seen.saved
            if trial.state is TrialState.FINISHED and trial.steps == self.plan.max_trial_steps:
                late = {
                    s
                    for n in self.nodes.values()
                    if n.order.trial == number and not n.is_read
                    for s in range(n.saved + 1)
                }
                assert seen.steps | late >= set(range(1, self.plan.max_trial_steps + 1)), "a step was not reported"

    def teardown(self) -> None:
        """Let the sweep go on without trouble: it ends, with every trial in its last state."""
        if not hasattr(self, "records"):
            return
        again = replay(self.records)
        assert result_view(again.sweep) == result_view(self.engine.sweep)
        if self.closed:
            return
        for _ in range(200):
            if self.finish is not None:
                break
            self.go_on()
        assert self.finish is not None, "it does not finish"
        result = result_view(self.engine.sweep)
        if result.state is SweepState.FINISHED:
            assert len(result.trials) == self.plan.trials or self.engine.sweep.sampler_failure
            ends = (TrialState.FINISHED, TrialState.STOPPED_EARLY, TrialState.FAILED)
            assert all(trial.state in ends for trial in result.trials)
        event(f"ends {result.state}")

    def go_on(self) -> None:
        self.propose()
        for order in list(self.open_orders.values()):
            self.answer_order(order)
        for name in self.working():
            self.train_on(name, 4, saves=True, then="pauses" if self.stopping else "goes on")
        self.tick(120, STEADY)
        for name, node in self.nodes.items():
            if node.is_alive and (node.ended or node.is_noticed or name in self.released):
                self.read(name)
                self.tell(AllocationGone(self.now_s, name, EndCause.EVICTED if node.is_noticed else EndCause.USER))
                node.is_alive = False


SweepMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestSweep = SweepMachine.TestCase
