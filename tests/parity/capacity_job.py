"""One job through the live engine, policy `deadline`, on a record of availability, as the compiled backtest runs it."""

from dataclasses import dataclass, field
from math import exp

import numpy as np

from proteus_spot.bidding.backtest.capacity.job import CapacityJob, JobFigure
from proteus_spot.bidding.backtest.capacity.record import CapacityRecord, Floats
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import AllocationGranted, BidEvent, JobOpened, MachineGone, TickDue
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Order
from proteus_spot.bidding.evictions.table import DELTAS_MICROS, EvictionTable
from proteus_spot.bidding.facts.known import DatedFigure, MarketKnown
from proteus_spot.bidding.facts.learning import prior_known
from proteus_spot.bidding.facts.records import Source
from proteus_spot.bidding.market.model import HOUR_S, Allocation, EndCause, InstanceType, Market, Tier
from proteus_spot.bidding.market.money import MICROS_PER_DOLLAR

#: Seconds after which what was seen of a zone counts as much as what was fitted; as in the backtest.
FORGETS_S = 12.0 * HOUR_S


@dataclass
class LiveJob:
    """A job of machines that are one vCPU each; each decision is at a step of the record."""

    record: CapacityRecord
    job: CapacityJob
    start: int
    fit_steps: int
    engine: BidEngine = field(default_factory=BidEngine)
    told: list[BidEvent | Order] = field(default_factory=list)
    #: Machine -> the step at which it was bought.
    bought: dict[str, int] = field(default_factory=dict)

    def run(self) -> Floats:
        """Return the job's figures, as a row of the compiled backtest."""
        record, job, step_s = self.record, self.job, self.record.step_s
        self._open()
        row, left_s = np.zeros(len(JobFigure)), job.work_s
        row[JobFigure.FINISHED_S] = np.inf
        usual = np.minimum(record.counts[: self.fit_steps], job.machines).mean(axis=0)
        for step in range(len(record.counts) - self.start):
            there = np.minimum(record.counts[self.start + step], job.machines)
            row[JobFigure.LOST] += self._lose(step, there)
            usual += (there - usual) * (step_s / FORGETS_S)
            row[JobFigure.STARTED] += self._decide(step, left_s, there, usual)
            new = sum(at == step for at in self.bought.values())
            old, late_s = len(self.bought) - new, min(job.restart_s, step_s)
            done_s, used_s = old * late_s + (old + new) * (step_s - late_s), float(step_s)
            if done_s >= left_s:
                early = old * late_s
                used_s = left_s / old if early >= left_s else late_s + (left_s - early) / (old + new)
            for allocation in self.engine.holdings.footprint:
                market, on_demand = allocation.market, allocation.bid_micros is None
                price = record.on_demand.min() if on_demand else record.spot[record.zones.index(market.zone)]
                row[JobFigure.COST_USD] += price / HOUR_S * allocation.count * used_s
                row[JobFigure.ON_DEMAND_S if on_demand else JobFigure.SPOT_S] += allocation.count * used_s
            left_s -= done_s
            if left_s <= 1e-6:
                row[JobFigure.FINISHED_S] = step * step_s + used_s
                break
        return row

    def tell(self, event: BidEvent) -> tuple[Order, ...]:
        orders = self.engine.handle(event)
        self.told += [event, *orders]
        return orders

    @property
    def markets(self) -> tuple[Market, ...]:
        return tuple(Market("gpu", zone) for zone in self.record.zones)

    def _open(self) -> None:
        record, job = self.record, self.job
        fitted = np.minimum(record.counts[: self.fit_steps], job.machines)
        falls = np.maximum(-np.diff(fitted, axis=0), 0).sum(axis=0)
        losses = (falls + 0.5) / ((fitted.sum(axis=0) + 1.0) * record.step_s)
        rows = {m: ((1 - exp(-loss * HOUR_S), 1800.0),) for m, loss in zip(self.markets, losses, strict=True)}
        model = JobModel(
            resize_overhead_s=0.0,
            eviction_overhead_s=0.0,
            allocation_vcpus=job.machines,
            max_spot_vcpus=job.machines,
            cooldown_s=0,
            billing="per-second-first-hour-free",
            boot_s=job.restart_s,
            gap_s=record.step_s,
        )
        kind = InstanceType("gpu", 1, 1.0, round(record.on_demand.min() * MICROS_PER_DOLLAR))
        table = EvictionTable(DELTAS_MICROS[-1:], rows, bids_decide=False)
        self.tell(JobOpened(0, "job", model, "deadline", {"gpu": kind}, self.markets, table))

    def _lose(self, step: int, there: Floats) -> int:
        lost = 0
        for market, count in zip(self.markets, there, strict=True):
            held = [
                (name, machine)
                for name, position in self.engine.holdings.positions.items()
                if position.allocation.market == market and position.allocation.bid_micros is not None
                for machine in position.held()
            ]
            for name, machine in held[: max(len(held) - int(count), 0)]:
                self._end(step, name, machine, EndCause.EVICTED)
                lost += 1
        return lost

    def _decide(self, step: int, left_s: float, there: Floats, usual: Floats) -> int:
        now_s, job = step * self.record.step_s, self.job
        known = dict(prior_known(self.markets, now_s))
        for market, count, mean in zip(self.markets, there, usual, strict=True):
            known[market] = self._seen(known[market], now_s, float(count), float(mean))
        prices = {
            market: round(usd * MICROS_PER_DOLLAR) for market, usd in zip(self.markets, self.record.spot, strict=True)
        }
        assert left_s == int(left_s)
        left = TimeLeft(int(job.deadline_s), int(left_s), 1.0, job.restart_s + self.record.step_s, margin=0.0)
        started = 0
        for order in self.tell(TickDue(now_s, prices, time_left=left, known=known)):
            if isinstance(order, Lapse):
                position = self.engine.holdings.positions[order.allocation_id]
                for machine in order.instance_ids or position.held():
                    self._end(step, order.allocation_id, machine, EndCause.USER)
            elif isinstance(order, Acquire):
                names = tuple(f"i-{order.order_id}-{at}" for at in range(order.count))
                bought = Allocation(order.order_id, order.market, order.count, now_s, Tier.TRANSIENT, order.bid_micros)
                self.tell(AllocationGranted(now_s, order.order_id, bought, names))
                self.bought.update(dict.fromkeys(names, step))
                started += order.count if order.bid_micros is not None else 0
        return started

    def _seen(self, known: MarketKnown, now_s: int, count: float, mean: float) -> MarketKnown:
        there, usual = DatedFigure(count, Source.TRACES, now_s), DatedFigure(mean, Source.TRACES, now_s)
        return MarketKnown(
            known.market, now_s, known.grant, known.survival, known.bursts, there=there, usually_there=usual
        )

    def _end(self, step: int, name: str, machine: str, cause: EndCause) -> None:
        self.tell(MachineGone(step * self.record.step_s, name, machine, cause))
        del self.bought[machine]
