"""A whole sweep over recorded prices, decided by the engine of a live sweep.

The trials are recorded ones, so that nothing is trained. The simulation goes from one tick at which something can
change to the next: a trial ends, a notice is given, a machine ends, an hour is over, or a trial waits for a machine. At
these ticks the engine receives what a live flow would read at them. Ticks in between change nothing; `every_tick`
visits them nevertheless, for rules that stop trials in the middle of a run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, inf, isnan
from typing import Protocol

import numpy as np

from proteus_spot.benchmarks.papers.sweeps.simulation.bills import MachineBill, bill_of, on_demand_billing
from proteus_spot.benchmarks.papers.sweeps.simulation.evictions import Evictions, EvictionsByPrice
from proteus_spot.benchmarks.papers.sweeps.simulation.offers import OfferSource, OfferTable, Probabilities
from proteus_spot.benchmarks.papers.sweeps.simulation.outcome import SweepOutcome, TrialOutcome
from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.benchmarks.papers.sweeps.simulation.simulated_machine import MachineTimes, SimulatedMachine
from proteus_spot.benchmarks.papers.sweeps.simulation.sweep_prices import SweepPrices
from proteus_spot.benchmarks.papers.sweeps.simulation.watched_steps import WatchedSteps, watched_steps
from proteus_spot.benchmarks.papers.sweeps.simulation.worst_case import spending_at
from proteus_spot.bidding.billing import BillingModel, PerSecondFirstHourFree
from proteus_spot.bidding.economics.budget import Spending
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.engine.events import (
    AllocationGone,
    AllocationGranted,
    AllocationRefused,
    BidEvent,
    NoticeSeen,
)
from proteus_spot.bidding.market.model import Allocation, Market, Tier
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.tuning.stopping.base import TrialStoppingRule
from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.sweep_events import (
    Offer,
    Setting,
    SweepClosed,
    SweepOpened,
    SweepTick,
    TrialReported,
    TrialsProposed,
)
from proteus_spot.bidding.tuning.sweep_orders import Deploy, Finish, PauseTrial, Release, SweepOrder
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from proteus_spot.bidding.tuning.sweep_record import SweepRecord
from proteus_spot.bidding.tuning.views import best_trial

#: The market's code of a refusal.
_REFUSED = "InsufficientInstanceCapacity"
#: Seconds that the end of a sweep takes, as a live tick counts it.
_END_S = 240.0


class SettingSource(Protocol):
    """A sampler whose settings are those of recorded trials."""

    def propose(self, sweep: SweepRecord, count: int) -> Sequence[int]:
        """Return the rows of the record that the next trials train, at most `count`; a row may come again."""
        ...


class InOrder:
    """The settings as they were recorded, each once."""

    def propose(self, sweep: SweepRecord, count: int) -> Sequence[int]:
        """Return the next rows."""
        return range(len(sweep.trials), len(sweep.trials) + count)


class SweepSimulator:
    """Simulates sweeps of one application on one set of prices, each from a start and a seed.

    Parameters
    ----------
    record : the application.
    plan : of the sweep; its steps and direction are those of the record, its notice that of `times`. Without a `source`
        its trials are those of the record.
    prices : the markets.
    probabilities : the predictor.
    billing : of spot machines; None: per second, the first hour free if evicted.
    evictions : None: by price.
    times : how machines behave.
    rule : the stopping rule; None: the plan's, by its name.
    watched : steps at which the rule may act while a trial runs.
    every_tick : whether ticks are visited at which nothing can change.
    refused_share : share of the requests that the market refuses for lack of capacity, drawn from the sweep's seed.
    budget_micros : what a sweep may spend; None: no limit. Every tick is visited where there is one.
    deadline_s : seconds after its start by which a sweep should end; None: no deadline. As for the budget.
    source : the sampler; None: the trials of the record, in their order.
    offers : what the markets offer; None: bids drawn from the sweep's seed, and the answers of `probabilities`.
    step_s : seconds of a step by trial and instance type; None: those of the record, by vCPUs.
    sweep_id : begins the order ids.
    """

    def __init__(
        self,
        record: RecordedTrials,
        plan: SweepPlan,
        prices: SweepPrices,
        probabilities: Probabilities,
        *,
        billing: BillingModel | None = None,
        evictions: Evictions | None = None,
        times: MachineTimes | None = None,
        rule: TrialStoppingRule | None = None,
        watched: WatchedSteps | None = None,
        every_tick: bool = False,
        refused_share: float = 0.0,
        budget_micros: Micros | None = None,
        deadline_s: int | None = None,
        source: SettingSource | None = None,
        offers: OfferSource | None = None,
        step_s: Sequence[Mapping[str, float]] | None = None,
        sweep_id: str = "sweep",
    ) -> None:
        self.times = times or MachineTimes()
        self.record, self.prices, self.probabilities = record, prices, probabilities
        self.plan = replace(
            plan,
            trials=record.trials if source is None else plan.trials,
            max_trial_steps=record.steps,
            direction=record.direction,
            notice_s=self.times.notice_s,
        )
        self.billing = billing or PerSecondFirstHourFree()
        self.evictions = evictions or EvictionsByPrice(prices.traces)
        self.rule, self.watched = rule, watched or watched_steps(self.plan, record)
        self.every_tick = every_tick or budget_micros is not None or deadline_s is not None
        self.refused_share, self.source = refused_share, source or InOrder()
        self.budget_micros, self.deadline_s = budget_micros, deadline_s
        self.offers, self.sweep_id = offers, sweep_id
        names = sorted(prices.types)
        vcpus = np.array([prices.types[name].vcpu for name in names], dtype=np.int64)
        seconds = record.seconds_per_step(vcpus).tolist()
        #: Seconds of a step by row of the record, then by type.
        self.step_s = step_s or [dict(zip(names, row, strict=True)) for row in seconds]
        #: (step, value) of every step by row; None where the value is not a number.
        self.reports: list[list[tuple[int, float | None]]] = [
            [(step, None if isnan(value) else value) for step, value in enumerate(row, start=1)]
            for row in record.values.tolist()
        ]

    def run(self, start_s: int, seed: int = 0, journal: list[BidEvent] | None = None) -> SweepOutcome:
        """Return the outcome of the sweep that starts at the first tick at or after `start_s`.

        Parameters
        ----------
        seed : of its bids; and of its refusals.
        journal : receives every event, in order.

        Raises
        ------
        ValueError
            If the prices begin after `start_s`, or end before it.
        """
        first = self.prices.tick_index(start_s)
        if not 0 <= first < len(self.prices.prices_micros):
            raise ValueError(f"no prices at {start_s}: they are those of [{self.prices.from_s}, {self.prices.until_s}]")
        return _Run(self, first, seed, journal).outcome()


class _Run:
    """One sweep: the engine, and the machines that it has bought."""

    def __init__(self, simulator: SweepSimulator, first: int, seed: int, journal: list[BidEvent] | None) -> None:
        self._sim, self._first, self._seed, self._journal = simulator, first, seed, journal
        self._engine = SweepEngine(simulator.rule)
        self._offers = simulator.offers or OfferTable(simulator.prices, simulator.probabilities, seed)
        self._machines: dict[str, SimulatedMachine] = {}
        self._living: dict[str, SimulatedMachine] = {}
        self._bills: dict[int, list[MachineBill]] = {number: [] for number in range(simulator.plan.trials)}
        #: Row of the record by trial.
        self._rows: list[int] = []
        self._refusals = np.random.default_rng(seed)
        self._ticks = 0

    def outcome(self) -> SweepOutcome:
        sim, engine = self._sim, self._engine
        start_s = now_s = sim.prices.tick_at_s(self._first)
        plan = replace(sim.plan, seed=self._seed)
        self._handle(SweepOpened(start_s, sim.sweep_id, plan, sim.prices.types, sim.prices.markets))
        tick: int | None = self._first
        while tick is not None:
            now_s = sim.prices.tick_at_s(tick)
            proposed = self._proposed(now_s)  # by what the sweep knew before, as in a live tick
            self._observe(now_s)
            if proposed is not None:
                self._handle(proposed)
            offers = self._offers.at(tick, tick - self._first) if engine.wants_offers(now_s) else {}
            for order in self._handle(self._tick_event(now_s, start_s, offers)):
                self._carry_out(order, now_s)
            self._ticks += 1
            if engine.sweep.closed:
                break
            tick = self._next_tick(tick, now_s)
        self._end_all(now_s)
        return self._summary(start_s, now_s)

    def _handle(self, event: BidEvent) -> tuple[SweepOrder, ...]:
        if self._journal is not None:
            self._journal.append(event)
        return self._engine.handle(event)

    def _tick_event(self, now_s: int, start_s: int, offers: Mapping[Market, Offer]) -> SweepTick:
        sim, left = self._sim, None
        if sim.deadline_s is not None:
            left = TimeLeft(start_s + sim.deadline_s, 0, 0.0, 2 * sim.prices.tick_s + _END_S)
        return SweepTick(now_s, offers, spending=self._spending(now_s), time_left=left)

    def _proposed(self, now_s: int) -> TrialsProposed | None:
        engine, record = self._engine, self._sim.record
        if not (count := engine.wants_trials):
            return None
        first, rows = len(self._rows), list(self._sim.source.propose(engine.sweep, count))
        self._rows += rows
        settings = (Setting(number, dict(record.settings[row])) for number, row in enumerate(rows, start=first))
        return TrialsProposed(now_s, tuple(settings))

    # -- what the engine sees ---------------------------------------------------------------------------------

    def _observe(self, now_s: int) -> None:
        """Send what has happened by now: notices, reports, ends; machine by machine."""
        handle = self._handle
        for name, machine in list(self._living.items()):
            end = machine.end
            is_over = end is not None and end[0] <= now_s
            if not machine.is_noticed and machine.notice_s <= now_s and not is_over:
                machine.is_noticed = True
                handle(NoticeSeen(now_s, name, int(machine.takes_s or 0)))
            self._report(name, machine, now_s)
            if end is not None and is_over:
                handle(AllocationGone(end[0], name, end[1]))
                del self._living[name]
                self._bill(machine)

    def _report(self, name: str, machine: SimulatedMachine, now_s: int) -> None:
        if machine.is_ended:
            return
        step, saved, has_ended = machine.step_at(now_s), machine.saved_at(now_s), machine.has_reported_end(now_s)
        ended = None
        if has_ended:
            machine.is_ended = True
            ended = "finished" if step >= self._sim.plan.max_trial_steps else "paused"
        elif (step, saved) == (machine.reported_step, machine.reported_saved) and (
            machine.has_reported or now_s < machine.starts_s
        ):
            return
        machine.has_reported = True
        row = self._rows[machine.trial]
        values = self._sim.reports[row][machine.reported_step : step]
        machine.reported_step, machine.reported_saved = step, saved
        self._handle(
            TrialReported(
                at_s=now_s,
                trial=machine.trial,
                deployment=name,
                values=tuple(values),
                saved_step=saved,
                step_s=machine.step_s if step > machine.from_step else None,
                ended=ended,
                state_bytes=int(self._sim.record.state_bytes[row]) if saved is not None else None,
                upload_s=machine.upload_s if saved is not None else None,
            )
        )

    # -- what the engine orders -------------------------------------------------------------------------------

    def _carry_out(self, order: SweepOrder, now_s: int) -> None:
        match order:
            case Deploy():
                self._deploy(order, now_s)
            case PauseTrial():
                if order.deployment in self._living:
                    self._living[order.deployment].pause(now_s)
            case Release():
                if order.allocation_id in self._living:
                    self._living[order.allocation_id].release(now_s)
            case Finish():
                self._handle(SweepClosed(now_s))

    def _deploy(self, order: Deploy, now_s: int) -> None:
        sim, market = self._sim, order.market
        price = sim.prices.traces[market].price_at(now_s)
        refused = sim.refused_share > 0 and self._refusals.random() < sim.refused_share
        if refused or (order.bid_micros is not None and (price is None or price > order.bid_micros)):
            self._handle(AllocationRefused(now_s, order.order_id, _REFUSED, "no capacity"))
            return
        takes_s = None
        if order.bid_micros is not None:
            takes_s = sim.evictions.takes_at_s(order.order_id, market, order.bid_micros, now_s)
            if sim.billing.max_life_s is not None:
                takes_s = min(takes_s or now_s + sim.billing.max_life_s, now_s + sim.billing.max_life_s)
        tier = Tier.RELIABLE if order.bid_micros is None else Tier.TRANSIENT
        allocation = Allocation(order.order_id, market, 1, now_s, tier, order.bid_micros)
        from_step, row = self._engine.sweep.trials[order.trial].saved_step, self._rows[order.trial]
        machine = SimulatedMachine(
            allocation,
            order.trial,
            from_step,
            order.until_step,
            sim.step_s[row][market.instance_type],
            float(sim.record.restore_s[row]) if from_step else 0.0,
            float(sim.record.upload_s[row]),
            takes_s,
            sim.times,
        )
        self._machines[order.order_id] = self._living[order.order_id] = machine
        self._handle(AllocationGranted(now_s, order.order_id, allocation))

    # -- time -------------------------------------------------------------------------------------------------

    def _next_tick(self, tick: int, now_s: int) -> int | None:
        """Return the next tick at which something can change; None where the prices end before it."""
        prices, last = self._sim.prices, len(self._sim.prices.prices_micros) - 1
        engine = self._engine
        if self._sim.every_tick or engine.wants_trials or engine.wants_offers(now_s + prices.tick_s):
            return tick + 1 if tick < last else None
        soonest = inf
        for machine in self._living.values():
            moments = (machine.next_change_s(now_s), self._watched_s(machine, now_s), *self._limits_s(machine))
            soonest = min([soonest, *(moment for moment in moments if moment > now_s)])
        following = tick + 1 if soonest == inf else max(prices.tick_index(ceil(soonest)), tick + 1)
        return following if following <= last else None

    def _limits_s(self, machine: SimulatedMachine) -> tuple[float, float]:
        """Return when it may be left for another, and when the engine gives up waiting for its pause."""
        after_s, launched_s = self._engine.sweep.plan.redeploy_after_s, machine.allocation.launched_at_s
        first_step_s = machine.time_of_step(machine.from_step + 1)
        over_s = inf if after_s is None else max(launched_s + after_s, first_step_s)
        patience_s = self._engine.sweep.deployments[machine.allocation.allocation_id].patience_s
        return over_s, inf if machine.paused_s is None else machine.paused_s + patience_s

    def _watched_s(self, machine: SimulatedMachine, now_s: int) -> float:
        step = self._sim.watched.next_step(self._rows[machine.trial], machine.step_at(now_s))
        return inf if step is None else max(machine.time_of_step(step), now_s + 1)

    # -- the end ----------------------------------------------------------------------------------------------

    def _end_all(self, now_s: int) -> None:
        for machine in self._living.values():
            machine.release(now_s)
            self._bill(machine)

    def _bill(self, machine: SimulatedMachine) -> None:
        trace = self._sim.prices.traces[machine.allocation.market]
        self._bills[machine.trial].append(bill_of(machine, trace, self._billing(machine)))

    def _billing(self, machine: SimulatedMachine) -> BillingModel:
        if machine.allocation.bid_micros is not None:
            return self._sim.billing
        return on_demand_billing(self._sim.billing, self._on_demand_micros(machine))

    def _on_demand_micros(self, machine: SimulatedMachine) -> Micros:
        return self._sim.prices.types[machine.allocation.market.instance_type].on_demand_micros

    def _spending(self, now_s: int) -> Spending | None:
        sim = self._sim
        if sim.budget_micros is None:
            return None
        spent = sum(bill.micros for bills in self._bills.values() for bill in bills)
        living = (
            (
                machine,
                sim.prices.traces[machine.allocation.market],
                self._billing(machine),
                machine.allocation.bid_micros or self._on_demand_micros(machine),
            )
            for machine in self._living.values()
        )
        return spending_at(sim.budget_micros, spent, living, now_s, 2 * sim.prices.tick_s)

    def _summary(self, start_s: int, ended_s: int) -> SweepOutcome:
        engine = self._engine
        trials = tuple(
            TrialOutcome(
                number,
                trial.params,
                trial.state,
                trial.steps,
                trial.repeated_steps,
                trial.value,
                trial.predicted,
                tuple(self._bills[number]),
            )
            for number, trial in sorted(engine.sweep.trials.items())
        )
        finish = engine.sweep.outcome
        return SweepOutcome(
            state=engine.sweep.state,
            why=finish.why if finish is not None else "the prices end before the sweep does",
            started_s=start_s,
            ended_s=ended_s,
            trials=trials,
            best_trial=best_trial(engine.sweep),
            ticks=self._ticks,
        )
