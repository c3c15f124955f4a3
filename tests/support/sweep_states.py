"""A sweep in a state database, as its ticks leave it: journal, machines, ledger."""

from dataclasses import dataclass, field
from typing import Any

from proteus_spot.bidding.engine.events import AllocationGone, AllocationGranted, BidEvent
from proteus_spot.bidding.market.model import EndCause
from proteus_spot.bidding.tuning.sweep_events import Setting, TrialsProposed
from proteus_spot.bidding.tuning.sweep_journal import to_record
from proteus_spot.bidding.tuning.sweep_orders import SweepOrder
from proteus_spot.infra.state.records import Entry, JobKind, JobState, LedgerKind, LedgerLine
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec, parse_sweep
from tests.support.markets import START_S
from tests.support.sweeps import SweepWorld, opened_sweep, plan_of

SWEEP = "digits-1"
DESCRIPTION: dict[str, Any] = {
    "sweep": "digits",
    "sweep_id": SWEEP,
    "trial": "mlr",
    "space": {"step": {"log": [1e-3, 1.0], "points": 2}, "gamma": {"choice": [0.0, 0.1]}},
    "metric": {"name": "loss"},
    "max_trial_steps": 10,
    "stop": "none",
    "parallel": 4,
    "budget_usd": 5.0,
}


@dataclass
class RecordedSweep(SweepWorld):
    """A small world whose events and orders are written to `store`, with the machines and their charges."""

    store: Store = field(kw_only=True)
    spec: SweepSpec = field(default_factory=lambda: parse_sweep(DESCRIPTION), kw_only=True)
    _length: int = 0

    def __post_init__(self) -> None:
        self.store.jobs.create_job(SWEEP, self.spec.model_dump(mode="json"), START_S, JobKind.SWEEP)
        settings = tuple(Setting(number, params) for number, params in enumerate(self.spec.settings))
        self.tell(opened_sweep(self.plan, sweep_id=SWEEP))
        self.tell(TrialsProposed(START_S, settings))

    def tell(self, event: BidEvent) -> tuple[SweepOrder, ...]:
        """Pass an event to the engine, and write it and its orders down."""
        orders = super().tell(event)
        entries = [Entry("event", event.at_s, event.at_s, to_record(event))]
        entries += [Entry("order", event.at_s, event.at_s, to_record(order)) for order in orders]
        self._length = self.store.journals.append(SWEEP, self._length, entries)
        match event:
            case AllocationGranted(allocation=allocation):
                self.store.purchases.plan(event.order_id, SWEEP, "acquire", f"token-{event.order_id}", {}, event.at_s)
                self.store.purchases.record_allocation(SWEEP, event.order_id, allocation, event.instance_ids)
                self.pay(allocation.allocation_id, LedgerKind.CHARGE, 30_000)
            case AllocationGone():
                self.store.purchases.end_allocation(event.allocation_id, event.at_s, event.cause)
                if event.cause is EndCause.EVICTED:
                    self.pay(event.allocation_id, LedgerKind.REFUND, -30_000)
        return orders

    def pay(self, allocation_id: str, kind: LedgerKind, amount: int) -> None:
        """Book a line of the first hour."""
        self.store.purchases.add_lines([LedgerLine(SWEEP, allocation_id, 0, kind, self.now_s, 30_000, amount)])


def record_sweep(store: Store) -> RecordedSweep:
    """Record a sweep of four trials; the first has lost a machine, and it goes on."""
    world = RecordedSweep(plan_of(), store=store)
    for _ in range(3):
        world.tick()
    world.end(f"{SWEEP}-t0-0", EndCause.EVICTED)
    for _ in range(2):
        world.tick()
    return world


def finish_sweep(world: RecordedSweep) -> None:
    """Run a recorded sweep to its end."""
    world.run()
    world.store.jobs.move_job(SWEEP, JobState.FINISHED, world.now_s, result={})
