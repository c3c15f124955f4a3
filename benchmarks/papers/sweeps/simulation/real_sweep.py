"""A finished sweep as the input of a simulation: its curves, step times, prices and evictions, from its journal.

A simulation of these has the states and the best trial of the real sweep, unless its decisions were at the mercy of
seconds. So a simulation is checked against what it stands for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from proteus_spot.benchmarks.papers.sweeps.simulation.offers import NoEvictions
from proteus_spot.benchmarks.papers.sweeps.simulation.outcome import SweepOutcome
from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.benchmarks.papers.sweeps.simulation.simulate import SweepSimulator
from proteus_spot.benchmarks.papers.sweeps.simulation.simulated_machine import MachineTimes
from proteus_spot.benchmarks.papers.sweeps.simulation.sweep_prices import SweepPrices, sweep_prices
from proteus_spot.bidding.billing import SPOT_BILLING, BillingModel
from proteus_spot.bidding.engine.events import AllocationGone, AllocationGranted, BidEvent, MachineGone
from proteus_spot.bidding.market.model import EndCause, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.bidding.tuning.provisioning.step_cost import StepTimes
from proteus_spot.bidding.tuning.sweep_events import Offer, SweepOpened, SweepTick, TrialReported, TrialsProposed
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan

#: Maximum duration of a simulation, as a multiple of that of the real sweep; its last offers hold until then.
_LONGER = 4


@dataclass(frozen=True, slots=True)
class RecordedOffers:
    """The offers that a real sweep saw, at the times of its ticks; between them the last ones hold."""

    prices: SweepPrices
    at_s: Sequence[int]
    offers: Sequence[Mapping[Market, Offer]]

    def at(self, tick: int, decision: int) -> Mapping[Market, Offer]:
        """Return the offers of the newest tick that had any, at or before a tick of the simulation."""
        index = int(np.searchsorted(self.at_s, self.prices.tick_at_s(tick), side="right")) - 1
        return self.offers[max(index, 0)]


@dataclass(frozen=True, slots=True)
class RecordedEvictions:
    """The evictions of a real sweep: those of its orders, each in its market; no other machine is taken."""

    taken: Mapping[str, tuple[Market, int]]

    def takes_at_s(self, order_id: str, market: Market, bid_micros: int, launched_at_s: int) -> int | None:
        """Return when the machine of this order was taken, if it was bought in the same market."""
        recorded_market, at_s = self.taken.get(order_id, (None, 0))
        return at_s if recorded_market == market and at_s > launched_at_s else None


def simulate_real(events: Iterable[BidEvent], times: MachineTimes | None = None) -> SweepOutcome:
    """Return the outcome of the simulation of a finished sweep.

    Parameters
    ----------
    events : of the sweep's journal, in their order.
    times : how its machines behaved; None: the usual boot and checkpoints.

    Raises
    ------
    ValueError
        If the journal is of no sweep, or it has no tick with offers.
    """
    journal = list(events)
    opened = next((event for event in journal if isinstance(event, SweepOpened)), None)
    ticks = [event for event in journal if isinstance(event, SweepTick)]
    offered = [tick for tick in ticks if tick.offers]
    if opened is None or not offered:
        raise ValueError("the journal has no sweep that could buy anything")
    prices = _prices(opened, ticks, offered)
    record, step_s = _trials(opened, journal)
    simulator = SweepSimulator(
        record,
        opened.plan,
        prices,
        NoEvictions(),
        billing=_billing(opened.plan),
        evictions=RecordedEvictions(_evictions(journal)),
        times=times or MachineTimes(notice_s=opened.plan.notice_s),
        offers=RecordedOffers(prices, [tick.at_s for tick in offered], [tick.offers for tick in offered]),
        step_s=step_s,
        sweep_id=opened.sweep_id,
    )
    return simulator.run(prices.from_s, opened.plan.seed)


def _billing(plan: SweepPlan) -> BillingModel:
    options = {"price_micros": plan.flat_micros} if plan.billing == "flat" else {}
    return SPOT_BILLING[plan.billing](**options)


def _prices(opened: SweepOpened, ticks: Sequence[SweepTick], offered: Sequence[SweepTick]) -> SweepPrices:
    """Return the prices at the real ticks as those of a simulation whose ticks are as far apart."""
    from_s = ticks[0].at_s
    gaps = [later.at_s - earlier.at_s for earlier, later in pairwise(ticks)]
    tick_s = max(round(median(gaps)), 1) if gaps else 120
    seen: dict[Market, list[tuple[int, int]]] = {}
    for tick in offered:
        for market, offer in tick.offers.items():
            seen.setdefault(market, []).append((tick.at_s, offer.price_micros))
    traces = {
        market: Trace(
            np.array([min(at_s, from_s) if not row else at_s for row, (at_s, _) in enumerate(points)], dtype=np.int64),
            np.array([price for _, price in points], dtype=np.int64),
        )
        for market, points in seen.items()
    }
    until_s = from_s + _LONGER * max(ticks[-1].at_s - from_s, tick_s)
    return sweep_prices(TraceSet(traces), sorted(traces), opened.types, from_s, until_s, tick_s)


def _trials(opened: SweepOpened, journal: Sequence[BidEvent]) -> tuple[RecordedTrials, list[dict[str, float]]]:
    """Return the curves and sizes of the trials, and the seconds of a step by trial and type."""
    plan = opened.plan
    params: dict[int, Mapping[str, object]] = {}
    values = np.full((plan.trials, plan.max_trial_steps), np.nan)
    upload_s, state_bytes = np.zeros(plan.trials), np.zeros(plan.trials, dtype=np.int64)
    measured, types_by_order = StepTimes(opened.types, opened.step_seconds), {}
    for event in journal:
        match event:
            case TrialsProposed():
                params |= {setting.number: setting.params for setting in event.settings}
            case AllocationGranted():
                types_by_order[event.order_id] = event.allocation.market.instance_type
            case TrialReported():
                for step, value in event.values:
                    values[event.trial, step - 1] = np.nan if value is None else value
                if event.step_s is not None and event.deployment in types_by_order:
                    measured.measure(event.trial, types_by_order[event.deployment], event.step_s)
                if event.upload_s is not None:
                    upload_s[event.trial], state_bytes[event.trial] = event.upload_s, event.state_bytes or 0
    step_s = [{name: measured.seconds(number, name) for name in opened.types} for number in range(plan.trials)]
    record = RecordedTrials(
        application=opened.sweep_id,
        metric="metric",
        direction=plan.direction,
        settings=tuple(dict(params.get(number, {})) for number in range(plan.trials)),
        values=values,
        vcpus=np.array([1], dtype=np.int64),
        step_s=np.array([[min(row.values())] for row in step_s]),
        step_cov=np.zeros((plan.trials, 1)),
        state_bytes=state_bytes,
        upload_s=upload_s,
        restore_s=np.zeros(plan.trials),
    )
    return record, step_s


def _evictions(journal: Sequence[BidEvent]) -> dict[str, tuple[Market, int]]:
    markets = {
        event.allocation.allocation_id: event.allocation.market
        for event in journal
        if isinstance(event, AllocationGranted)
    }
    return {
        event.allocation_id: (markets[event.allocation_id], event.at_s)
        for event in journal
        if isinstance(event, AllocationGone | MachineGone)
        and event.cause is EndCause.EVICTED
        and event.allocation_id in markets
    }
