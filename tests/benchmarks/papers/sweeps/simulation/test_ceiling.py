"""No purchase of a sweep is above on demand, whatever the markets do."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proteus_spot.benchmarks.papers.sweeps.simulation.generated_curves import generate_trials
from proteus_spot.benchmarks.papers.sweeps.simulation.offers import NoEvictions, TableProbabilities
from proteus_spot.benchmarks.papers.sweeps.simulation.simulate import SweepSimulator
from proteus_spot.benchmarks.papers.sweeps.simulation.sweep_prices import sweep_prices
from proteus_spot.bidding.billing import SPOT_BILLING, BillingModel, HourlyRefund, PerSecondFirstHourFree
from proteus_spot.bidding.engine.events import AllocationGranted, BidEvent
from proteus_spot.bidding.evictions.table import fit
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, InstanceType, Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.synthetic.renewal_market import MarketClimate, generate
from proteus_spot.bidding.tuning.sweep_plan import SweepPlan
from proteus_spot.bidding.tuning.trials import SweepState
from tests.benchmarks.papers.sweeps.simulation.markets import TYPES, prices_of, trace, trials_of

ON_DEMAND = TYPES["small"].on_demand_micros
BILLINGS: tuple[BillingModel, ...] = (PerSecondFirstHourFree(), HourlyRefund())
#: Spikes to several times on demand every two hours, for up to 40 minutes: a market is often above it.
DEAR = MarketClimate(spike_every_s=2.0 * HOUR_S, spike_s=(300.0, 2400.0), spike_height=(1.5, 9.0), spike_spread=0.3)


def simulator(prices: Any, record: Any, billing: BillingModel, **changes: Any) -> SweepSimulator:
    probabilities = changes.pop("probabilities", NoEvictions())
    name = next(name for name in SPOT_BILLING if SPOT_BILLING[name] is type(billing))
    plan = SweepPlan(**({"trials": 1, "max_trial_steps": 1, "stop": "none", "billing": name} | changes.pop("plan", {})))
    return SweepSimulator(record, plan, prices, probabilities, billing=billing, **changes)


def purchases(sim: SweepSimulator, start_s: int, seed: int = 0) -> int:
    """Run a sweep, check what each machine was bought and charged at, and return the number of machines."""
    events: list[BidEvent] = []
    outcome = sim.run(start_s, seed, events)
    bills = {bill.order_id: bill for bill in outcome.bills}
    for event in events:
        if not isinstance(event, AllocationGranted):
            continue
        allocation, bill = event.allocation, bills[event.order_id]
        on_demand = sim.prices.types[allocation.market.instance_type].on_demand_micros
        if allocation.bid_micros is not None:
            price = sim.prices.traces[allocation.market].price_at(allocation.launched_at_s) or 0
            assert price <= allocation.bid_micros <= on_demand, allocation
        for charge in bill.charges:  # later hours have prices of their own
            assert charge.amount_micros <= on_demand * charge.paid_s / HOUR_S + 1, (allocation, charge)
    return len(bills)


def check_generated(types: dict[str, InstanceType], zones: str, seed: int) -> int:
    markets = [Market(name, zone) for name in types for zone in zones]
    on_demand = {market: types[market.instance_type].on_demand_micros for market in markets}
    traces = TraceSet(generate(on_demand, 0, 3 * DAY_S, np.random.default_rng(seed), climate=DEAR))
    prices = sweep_prices(traces, markets, types, DAY_S, 3 * DAY_S)
    probabilities = TableProbabilities(fit(traces, 0, DAY_S), prices.markets)
    record = generate_trials(seed, trials=6, steps=20, step_s=600.0)
    return sum(
        purchases(simulator(prices, record, billing, probabilities=probabilities), DAY_S, seed) for billing in BILLINGS
    )


def test_in_200_generated_markets_no_purchase_is_above_on_demand() -> None:
    found = [check_generated(TYPES, "abcde", seed) for seed in range(20)]
    assert min(found) >= 12


@pytest.mark.storm
@pytest.mark.parametrize("hundred", range(3))
def test_storm_of_markets(hundred: int) -> None:
    for seed in range(100 * (hundred + 1), 100 * (hundred + 2)):
        assert check_generated(TYPES, "abcde"[: 1 + seed % 5], seed) >= 12


@pytest.mark.slow
@pytest.mark.skipif("PROTEUS_TRACES" not in os.environ, reason="PROTEUS_TRACES names no folder of real price files")
@pytest.mark.parametrize("name", ["spring", "early-summer-m4"])
def test_in_the_recorded_markets_no_purchase_is_above_on_demand(name: str) -> None:
    from proteus_spot.infra.market_data.catalogs import read_catalog
    from proteus_spot.infra.market_data.price_files import read_prices

    traces = read_prices(Path(os.environ["PROTEUS_TRACES"]) / f"us-east-1-2016-{name}.csv.gz")
    begin_s = traces.first_s + 2 * DAY_S
    known = read_catalog(None)
    day = np.datetime64(begin_s, "s").astype("datetime64[D]").item()
    types = {m.instance_type: kind for m in traces.markets if (kind := known.find(m, day)) is not None}
    markets = [market for market in traces.markets if market.instance_type in types]
    record = generate_trials(0, trials=6, steps=20, step_s=600.0)
    for start_s in range(begin_s, traces.last_s - 4 * DAY_S, 5 * DAY_S):
        prices = sweep_prices(traces, markets, types, start_s, start_s + 3 * DAY_S)
        for billing in BILLINGS:
            assert purchases(simulator(prices, record, billing), start_s) >= 6


def test_a_sweep_waits_while_its_only_market_is_above_on_demand() -> None:
    # The mean of the hour before the start is low; the price of the launch is not.
    prices = prices_of(small=trace((-3600, 1_000), (-60, 3 * ON_DEMAND), (5000, ON_DEMAND)))
    outcome = simulator(prices, trials_of([[3.0, 2.0, 1.0]]), BILLINGS[0]).run(0)
    assert [bill.launched_at_s for bill in outcome.bills] == [5040]
    assert outcome.state is SweepState.FINISHED


def test_a_sweep_that_may_buys_on_demand_instead_of_waiting() -> None:
    prices = prices_of(small=trace((0, 3 * ON_DEMAND)), large=trace((0, 2_000_000)))
    sim = simulator(prices, trials_of([[3.0, 2.0, 1.0]]), BILLINGS[0], plan={"on_demand": True})
    events: list[BidEvent] = []
    outcome = sim.run(0, 0, events)
    (bill,) = outcome.bills
    (grant,) = [event.allocation for event in events if isinstance(event, AllocationGranted)]
    on_demand = TYPES[grant.market.instance_type].on_demand_micros
    assert (grant.bid_micros, bill.launched_at_s) == (None, 0)
    assert bill.micros == -(-on_demand * bill.machine_s // HOUR_S)


def test_with_a_deadline_the_first_step_does_not_wait_for_a_market() -> None:
    prices = prices_of(small=trace((0, 3 * ON_DEMAND)))
    outcome = simulator(prices, trials_of([[3.0, 2.0, 1.0]]), BILLINGS[0], deadline_s=3 * HOUR_S).run(0)
    assert (outcome.state, [bill.launched_at_s for bill in outcome.bills]) == (SweepState.FINISHED, [0])
