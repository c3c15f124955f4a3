"""An engine with an open job, and what its orders give."""

from dataclasses import replace

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.orders import Acquire
from proteus_spot.bidding.market.model import HOUR_S, Allocation, Tier
from tests.support.markets import START_S, TYPES, XLARGE, XLARGE_B, granted, opened

PRICES = {XLARGE: "0.05", XLARGE_B: "0.06"}
JOB = JobModel(allocation_vcpus=16, max_spot_vcpus=32, renewal_lead_s=240, cooldown_s=600)
TICK_S = 120


def engine_of(*allocations: Allocation, job: JobModel = JOB, policy: str = "proteus") -> BidEngine:
    """Return an engine whose job is open and holds `allocations`."""
    engine = BidEngine()
    engine.handle(opened(job, policy))
    for allocation in allocations:
        assert engine.handle(granted(allocation)) == ()
    return engine


def bought(order: Acquire, at_s: int) -> Allocation:
    """Return the allocation that carrying out `order` gives."""
    return Allocation(order.order_id, order.market, order.count, at_s, Tier.TRANSIENT, order.bid_micros)


def kinds(orders: tuple[object, ...]) -> list[str]:
    return [type(order).__name__ for order in orders]


ENDS_S = START_S + HOUR_S


def full(*allocations: Allocation, **more: object) -> BidEngine:
    """Return an engine that holds `allocations` and may not buy: they are all that it may hold."""
    vcpus = sum(a.count * TYPES[a.market.instance_type].vcpu for a in allocations if a.tier is Tier.TRANSIENT)
    return engine_of(*allocations, job=replace(JOB, max_spot_vcpus=vcpus, **more))
