"""A small sweep for the tests of its engine: plan, offers, and a world that answers its orders."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from proteus_spot.bidding.engine.events import AllocationGone, AllocationGranted, BidEvent
from proteus_spot.bidding.market.model import Allocation, EndCause, Market
from proteus_spot.bidding.market.money import to_micros
from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.sweep_events import (
    Offer,
    Setting,
    SweepOpened,
    SweepTick,
    TrialReported,
    TrialsProposed,
)
from proteus_spot.bidding.tuning.sweep_orders import Deploy, Finish, PauseTrial, Release, SweepOrder
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from tests.support.markets import LARGE, MARKETS, START_S, TYPES, XLARGE

TICK_S = 120
#: The metric of a trial at a step.
Metric = Callable[[int, int], float | None]


def plan_of(**changes: object) -> SweepPlan:
    """Return a plan of four trials of ten steps, each to its end."""
    plan = SweepPlan(trials=4, max_trial_steps=10, stop="none", parallel=4)
    return replace(plan, **changes)  # type: ignore[arg-type]


def offer_of(price: str = "0.05", p_evicted: float = 0.2, on_demand: str = "0.20", bid: str = "0.10") -> Offer:
    """Return an offer whose price did not change within the hour; prices are dollars."""
    return Offer(to_micros(price), to_micros(price), to_micros(bid), p_evicted, to_micros(on_demand))


OFFERS: Mapping[Market, Offer] = {
    LARGE: offer_of("0.03", on_demand="0.10"),
    XLARGE: offer_of("0.05", on_demand="0.20"),
}


def settings_of(count: int) -> tuple[Setting, ...]:
    """Return the settings of `count` trials."""
    return tuple(Setting(number, {"alpha": 10.0**-number}) for number in range(count))


def opened_sweep(plan: SweepPlan, step_seconds: Mapping[str, float] | None = None, sweep_id: str = "s") -> SweepOpened:
    """Return the event that opens a sweep over all of `MARKETS`."""
    return SweepOpened(START_S, sweep_id, plan, TYPES, MARKETS, step_seconds or {})


@dataclass
class SweepWorld:
    """Grants every order at once, trains a step a tick on each machine, and carries out pauses and releases."""

    plan: SweepPlan
    metric: Metric = lambda trial, step: 1.0 / step + trial
    steps_a_tick: int = 1
    #: Number of trials that are proposed; None: all of them.
    proposes: int | None = None
    engine: SweepEngine = field(default_factory=SweepEngine)
    now_s: int = START_S
    orders: list[SweepOrder] = field(default_factory=list)
    #: Deployment -> (trial, step, until), of those that train.
    training: dict[str, list[int]] = field(default_factory=dict)
    finish: Finish | None = None

    def __post_init__(self) -> None:
        self.tell(opened_sweep(self.plan))
        self.tell(TrialsProposed(START_S, settings_of(self.plan.trials if self.proposes is None else self.proposes)))

    def tell(self, event: BidEvent) -> tuple[SweepOrder, ...]:
        """Pass an event to the engine, and check it."""
        orders = self.engine.handle(event)
        self.engine.validate()
        self.orders += orders
        return orders

    def tick(self, offers: Mapping[Market, Offer] = OFFERS, **limits: object) -> tuple[SweepOrder, ...]:
        """Train, then decide, and carry the orders out."""
        self.train()
        self.now_s += TICK_S
        orders = self.tell(SweepTick(self.now_s, offers, **limits))  # type: ignore[arg-type]
        self.carry_out(orders)
        return orders

    def run(self, most_ticks: int = 200) -> Finish:
        """Tick until the sweep finishes."""
        while self.finish is None:
            assert most_ticks > 0, "the sweep does not finish"
            most_ticks -= 1
            self.tick()
        return self.finish

    def carry_out(self, orders: Sequence[SweepOrder]) -> None:
        """Grant deployments, pause trials and end machines."""
        for order in orders:
            match order:
                case Deploy():
                    self.grant(order)
                case PauseTrial():
                    self.pause(order.deployment)
                case Release():
                    self.end(order.allocation_id, EndCause.USER)
                case Finish():
                    self.finish = order

    def grant(self, order: Deploy) -> None:
        """Grant a deployment; its trial begins after the newest state."""
        allocation = Allocation(order.order_id, order.market, 1, self.now_s, bid_micros=order.bid_micros)
        self.tell(AllocationGranted(self.now_s, order.order_id, allocation, (f"i-{order.order_id}",)))
        self.training[order.order_id] = [order.trial, order.from_step, order.until_step]

    def train(self) -> None:
        """Train each machine's trial, and report its steps; a trial that is at its target ends."""
        for name, (trial, step, until) in list(self.training.items()):
            last = min(step + self.steps_a_tick, until)
            values = tuple((at, self.metric(trial, at)) for at in range(step + 1, last + 1))
            self.training[name][1] = last
            if last < until:
                self.report(name, values)
            else:
                self.report(
                    name, values, saved=last, ended="finished" if last == self.plan.max_trial_steps else "paused"
                )

    def report(
        self,
        name: str,
        values: Sequence[tuple[int, float | None]] = (),
        saved: int | None = None,
        ended: str | None = None,
    ) -> None:
        """Report of a deployment."""
        trial = self.engine.sweep.deployments[name].trial
        if ended is not None:
            self.training.pop(name, None)
        self.tell(TrialReported(self.now_s, trial, name, tuple(values), saved, float(TICK_S), ended))

    def pause(self, name: str) -> None:
        """Save the state of a trial and stop it."""
        if name in self.training:
            self.report(name, saved=self.training[name][1], ended="paused")

    def end(self, name: str, cause: EndCause) -> None:
        """End a machine."""
        self.training.pop(name, None)
        self.tell(AllocationGone(self.now_s, name, cause))
