"""The policy `deadline` as a live job follows it: one that machines on demand finish in time is never late by spot."""

from dataclasses import dataclass, field
from math import ceil

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import AllocationGranted, AllocationRefused, MachineGone, NoticeSeen, TickDue
from proteus_spot.bidding.engine.orders import Acquire, Lapse
from proteus_spot.bidding.market.model import HOUR_S, Allocation, EndCause, Market, Tier
from tests.support.markets import START_S, TYPES, opened, price_maps, reliable, table

TICK_S, NOTICE_S = 120, 120


@dataclass(frozen=True)
class Step:
    """What happens until a tick, and what the market answers to it."""

    seconds: int
    prices: dict[Market, int]
    #: Share of each order for spot machines that is granted.
    share: float
    #: Allocations of spot machines, by their place among those that live, that the market takes.
    takes: list[int]
    with_notice: bool


STEPS = st.lists(
    st.builds(
        Step,
        seconds=st.sampled_from([60, TICK_S]),
        prices=price_maps(60_000),
        share=st.sampled_from([0.0, 0.5, 1.0, 1.0]),
        takes=st.lists(st.integers(0, 3), max_size=2),
        with_notice=st.booleans(),
    ),
    max_size=25,
)


@dataclass
class Trainer:
    """The machines of a job, and the work that they have left; those on demand are granted at once."""

    job: JobModel
    deadline_s: int
    left_vcpu_s: float
    margin: float
    now_s: int = START_S
    #: Of each machine that lives: its allocation and when it begins to work.
    machines: dict[str, tuple[Allocation, float]] = field(default_factory=dict)
    taken_s: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = BidEngine()
        self.engine.handle(opened(self.job, "deadline", table(beta=0.2)))
        self.engine.handle(AllocationGranted(START_S, "red", reliable()))

    def work(self, seconds: int) -> None:
        until_s = self.now_s + seconds
        for name, (allocation, works_s) in self.machines.items():
            end_s = min(until_s, self.taken_s.get(name, until_s))
            worked_s = max(end_s - max(works_s, self.now_s), 0.0)
            self.left_vcpu_s -= worked_s * TYPES[allocation.market.instance_type].vcpu
        self.now_s = until_s
        for name in [name for name, at_s in self.taken_s.items() if at_s <= until_s]:
            self.end(name, EndCause.EVICTED)

    def end(self, name: str, cause: EndCause) -> None:
        allocation, _ = self.machines.pop(name)
        self.taken_s.pop(name, None)
        self.engine.handle(MachineGone(self.now_s, allocation.allocation_id, name, cause))

    def take(self, places: list[int], with_notice: bool) -> None:
        """Have the market take spot allocations."""
        spot = sorted({a.allocation_id for a, _ in self.machines.values() if a.bid_micros is not None})
        for name in {spot[place] for place in places if place < len(spot)}:
            living = [machine for machine, (a, _) in self.machines.items() if a.allocation_id == name]
            if with_notice:
                self.engine.handle(NoticeSeen(self.now_s, name, self.now_s + NOTICE_S))
            for machine in living:
                if with_notice:
                    self.taken_s.setdefault(machine, self.now_s + NOTICE_S)
                else:
                    self.end(machine, EndCause.EVICTED)

    def tick(self, prices: dict[Market, int], share: float) -> None:
        """Decide, and carry the orders out."""
        left = TimeLeft(self.deadline_s, max(ceil(self.left_vcpu_s), 0), 1.0, 0.0, self.margin)
        for order in self.engine.handle(TickDue(self.now_s, prices, time_left=left)):
            if isinstance(order, Lapse):
                names = [n for n, (a, _) in self.machines.items() if a.allocation_id == order.allocation_id]
                for name in names:
                    if (not order.instance_ids or name in order.instance_ids) and name not in self.taken_s:
                        self.end(name, EndCause.USER)
            elif isinstance(order, Acquire):
                self.answer(order, order.count if order.bid_micros is None else int(order.count * share))

    def answer(self, order: Acquire, count: int) -> None:
        event("on demand is bought" if order.bid_micros is None else "spot is bought")
        if not count:
            self.engine.handle(AllocationRefused(self.now_s, order.order_id, "InsufficientInstanceCapacity", ""))
            return
        new = Allocation(order.order_id, order.market, count, self.now_s, Tier.TRANSIENT, order.bid_micros)
        names = tuple(f"{order.order_id}-{number}" for number in range(count))
        self.engine.handle(AllocationGranted(self.now_s, order.order_id, new, names))
        self.machines |= dict.fromkeys(names, (new, self.now_s + self.job.boot_s + self.job.resize_overhead_s))


@settings(max_examples=40, deadline=None)
@given(
    cap=st.sampled_from([2, 8, 40]),
    boot_s=st.sampled_from([0.0, 60.0, 240.0]),
    hours=st.floats(0.4, 1.5),
    need=st.floats(0.05, 1.0),
    billing=st.sampled_from(["per-second-first-hour-free", "flat"]),
    steps=STEPS,
)
@example(cap=8, boot_s=240.0, hours=1.0, need=1.0, billing="flat", steps=[Step(60, {}, 0.0, [], False)])
def test_a_job_that_machines_on_demand_finish_in_time_is_in_time_whatever_spot_does(
    cap: int, boot_s: float, hours: float, need: float, billing: str, steps: list[Step]
) -> None:
    """After the steps all spot is lost, and none is sold any more."""
    job = JobModel(
        max_spot_vcpus=cap, billing=billing, boot_s=boot_s, resize_overhead_s=0.0, reliable_works=False, cooldown_s=0
    )
    seconds = round(hours * HOUR_S)
    of_machines_on_demand = cap * (seconds - boot_s)
    trainer = Trainer(job, START_S + seconds, need * of_machines_on_demand, 0.0)
    trainer.tick({}, 0.0)
    for step in steps:
        trainer.work(min(step.seconds, trainer.deadline_s - trainer.now_s))
        trainer.take(step.takes, step.with_notice)
        trainer.tick(step.prices, step.share)
    trainer.take([*range(99)], with_notice=False)
    while trainer.now_s < trainer.deadline_s:
        trainer.work(min(TICK_S, trainer.deadline_s - trainer.now_s))
        trainer.tick({}, 0.0)
    assert trainer.left_vcpu_s <= 1e-6
