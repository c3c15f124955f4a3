"""One decision of the engine over many candidates, for a job that holds many allocations."""

from functools import partial

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure, seconds
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import AllocationGranted, JobOpened, TickDue
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Order, Renew
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.market.model import HOUR_S, Allocation, InstanceType, Market, Tier
from proteus_spot.bidding.market.money import Micros

#: Instance types in each of `ZONES`, each with as many bid deltas as `DELTAS`.
TYPES = 2400
ZONES = tuple(f"us-east-1{letter}" for letter in "abcdef")
DELTAS = tuple(100 * 2**power for power in range(10))
HELD = 50
_BEGIN_S = 1_464_739_200
#: The limit of the requirement, seconds.
LIMIT_S = 0.1


def job(types: int = TYPES, held: int = HELD) -> tuple[BidEngine, dict[Market, Micros]]:
    """Return the engine of a job that holds allocations, all of one hour, and the prices of all markets."""
    rng = np.random.default_rng(0)
    kinds = {
        name: InstanceType(name, int(2 ** rng.integers(1, 6)), 8.0, int(rng.integers(50_000, 2_000_000)))
        for name in (f"t{number:04}" for number in range(types))
    }
    markets = tuple(sorted(Market(name, zone) for name in kinds for zone in ZONES))
    rows = {
        market: tuple((beta, 1200.0) for beta in np.sort(rng.random(len(DELTAS)))[::-1].tolist()) for market in markets
    }
    engine = BidEngine()
    model = JobModel(allocation_vcpus=32, max_spot_vcpus=100_000)
    engine.handle(JobOpened(_BEGIN_S, "bench", model, "proteus", kinds, markets, EvictionTable(DELTAS, rows)))
    reliable = Allocation("reliable", markets[0], 1, _BEGIN_S, Tier.RELIABLE)
    engine.handle(AllocationGranted(_BEGIN_S, "reliable", reliable, ("i-reliable",)))
    for number in range(held):
        market, name = markets[int(rng.integers(len(markets)))], f"bench-buy-{number}"
        allocation = Allocation(name, market, 4, _BEGIN_S, Tier.TRANSIENT, 2_000_000)
        engine.handle(AllocationGranted(_BEGIN_S, name, allocation, tuple(f"i-{number}-{each}" for each in range(4))))
    shares = rng.uniform(0.2, 0.6, len(markets))
    prices = {
        market: int(kinds[market.instance_type].on_demand_micros * share)
        for market, share in zip(markets, shares.tolist(), strict=True)
    }
    return engine, prices


def decide_on(engine: BidEngine, prices: dict[Market, Micros]) -> tuple[Order, ...]:
    """Have the engine decide when the hour of every allocation ends."""
    orders = engine.handle(TickDue(_BEGIN_S + HOUR_S - 120, prices))
    ends = sum(isinstance(order, Renew | Lapse) for order in orders)
    assert ends == len(engine.holdings.positions) - 1, "every hour's end is decided on"
    assert isinstance(orders[-1], Acquire), "and every candidate is weighed"
    return orders


def run(rounds: int = 5, types: int = TYPES, held: int = HELD) -> Figure:
    """Measure decisions of fresh engines over all candidates; the first, which compiles the kernels, is left out."""
    taken = [seconds(partial(decide_on, *job(types, held))) for _ in range(1 + rounds)][1:]
    candidates = types * len(ZONES) * len(DELTAS)
    what = f"{candidates:,} candidates and {held} allocations, all at their hour's end: one decision"
    note = "reconciled facts in, orders out: no database, no market"
    return figure("tick", what, "s", taken, [LIMIT_S], f"the limit of {LIMIT_S * 1000:g} ms", note)
