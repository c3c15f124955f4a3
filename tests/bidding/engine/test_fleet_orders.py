"""Several purchases a decision, machines that are let go between hours, spot and on demand apart."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from proteus_spot.bidding.economics.budget import Spending
from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import AllocationRefused, MachineGone, TickDue
from proteus_spot.bidding.engine.orders import Acquire, Lapse, Order, Renew, Wait
from proteus_spot.bidding.market.model import HOUR_S, Allocation, EndCause, Market, Tier
from proteus_spot.bidding.market.money import to_micros
from tests.support.markets import LARGE, START_S, XLARGE, XLARGE_B, granted, opened, table

#: Machines work at once, so that the net needs some on demand and not all.
JOB = JobModel(
    allocation_vcpus=40,
    max_spot_vcpus=100,
    billing="per-second-first-hour-free",
    resize_overhead_s=0.0,
    boot_s=0.0,
)
PRICES = {XLARGE: "0.05", LARGE: "0.026", XLARGE_B: "0.06"}


def engine(job: JobModel = JOB) -> BidEngine:
    made = BidEngine()
    made.handle(opened(job, "deadline", table(beta=0.01)))
    return made


def decide(
    at: BidEngine, seconds: int = 0, vcpus: float = 0.0, prices: Mapping[Market, str] = PRICES, **more: Any
) -> tuple[Order, ...]:
    """Return the orders of a tick; the deadline in ten hours needs so many vCPUs on average."""
    now_s, left_s = START_S + seconds, 10 * HOUR_S
    if vcpus:
        more["time_left"] = TimeLeft(now_s + left_s, round(vcpus * left_s), 1.0, 0.0)
    return at.handle(TickDue(now_s, {market: to_micros(usd) for market, usd in prices.items()}, **more))


def bought(orders: tuple[Order, ...]) -> list[tuple[Market, int]]:
    return [(order.market, order.count) for order in orders if isinstance(order, Acquire)]


def grant(at: BidEngine, order: Acquire, count: int | None = None, seconds: int = 0) -> None:
    many = order.count if count is None else count
    at_s = START_S + seconds
    at.handle(granted(Allocation(order.order_id, order.market, many, at_s, Tier.TRANSIENT, order.bid_micros)))


def test_all_purchases_of_a_decision_are_repeated_until_each_is_answered() -> None:
    at = engine(replace(JOB, value_of_time_usd_per_h=5.0))
    orders = decide(at)
    assert bought(orders) == [(XLARGE, 10), (LARGE, 20), (XLARGE_B, 5)]
    assert [order.order_id for order in orders if isinstance(order, Acquire)] == ["j-buy-0", "j-buy-1", "j-buy-2"]
    assert decide(at, 120) == orders
    first, second, third = (order for order in orders if isinstance(order, Acquire))
    grant(at, first)
    at.handle(AllocationRefused(START_S + 130, third.order_id, "NoCapacity", ""))
    assert decide(at, 240) == (second,), "nothing is decided while one is unanswered"
    grant(at, second, count=15)
    at.validate()
    assert bought(decide(at, 360)) == [(XLARGE, 7)], "the others are left alone for a while"


def test_an_order_that_fits_in_no_more_waits_and_the_others_are_repeated() -> None:
    at = engine(replace(JOB, value_of_time_usd_per_h=5.0))
    first, second, third = decide(at)
    at.handle(granted(Allocation("stray", XLARGE, 10, START_S, Tier.TRANSIENT, 300_000)))
    again = decide(at, 120)
    assert again[0] == first
    assert isinstance(again[1], Wait), "40 that were found, and 40"
    assert again[2] == third
    assert isinstance(second, Acquire)
    assert second.order_id in again[1].decision.reason


def test_machines_of_no_worth_go_at_once_and_what_replaces_them_is_bought_in_the_same_tick() -> None:
    at = engine(replace(JOB, allocation_vcpus=100))
    (order,) = decide(at)
    assert isinstance(order, Acquire)
    grant(at, order)
    orders = decide(at, 600, prices={**PRICES, XLARGE_B: "0.02"})
    lapse, purchase = orders
    assert isinstance(lapse, Lapse)
    assert (lapse.before_s, lapse.instance_ids) == (START_S + 600, ())
    assert isinstance(purchase, Acquire)
    assert (purchase.market, purchase.count) == (XLARGE_B, 25)
    repeated = decide(at, 720, prices={**PRICES, XLARGE_B: "0.02"})
    assert repeated == (lapse, purchase), "each until it is answered"


def test_some_machines_of_an_allocation_go_and_the_rest_stays() -> None:
    at = engine(replace(JOB, allocation_vcpus=100))
    (order,) = decide(at)
    assert isinstance(order, Acquire)
    grant(at, order)
    orders = decide(at, 600, vcpus=86.5)
    lapse, purchase = orders
    assert isinstance(lapse, Lapse)
    assert isinstance(purchase, Acquire)
    assert purchase.bid_micros is None
    assert purchase.count * 2 <= len(lapse.instance_ids) * 4 < 40, "on demand takes their place"
    assert lapse.instance_ids == tuple(sorted(lapse.instance_ids))
    working = at.holdings.positions[lapse.allocation_id].working
    assert working is not None
    assert working.count == 25 - len(lapse.instance_ids)
    for name in lapse.instance_ids:
        at.handle(MachineGone(START_S + 610, lapse.allocation_id, name, EndCause.USER))
    assert at.holdings.spot_vcpus == 4 * working.count


def test_where_hours_are_paid_machines_stay_to_their_end() -> None:
    at = engine(replace(JOB, allocation_vcpus=100, billing="hourly-refund"))
    (order,) = decide(at)
    assert isinstance(order, Acquire)
    grant(at, order)
    cheaper = {**PRICES, XLARGE_B: "0.02"}
    (wait,) = decide(at, 600, prices=cheaper)
    assert isinstance(wait, Wait)
    lapse, *_ = decide(at, HOUR_S - 120, prices=cheaper)
    assert isinstance(lapse, Lapse)
    assert lapse.before_s == START_S + HOUR_S


def test_a_market_that_refuses_spot_sells_on_demand() -> None:
    at = engine()
    orders = decide(at, prices={LARGE: "0.026"})
    (order,) = orders
    assert isinstance(order, Acquire)
    at.handle(AllocationRefused(START_S, order.order_id, "InsufficientInstanceCapacity", ""))
    (purchase,) = decide(at, 120, vcpus=99, prices={LARGE: "0.026"})
    assert isinstance(purchase, Acquire)
    assert purchase.bid_micros is None
    at.handle(AllocationRefused(START_S + 120, purchase.order_id, "InsufficientInstanceCapacity", ""))
    assert at.holdings.on_demand_cooling == {purchase.market: START_S + 120 + JOB.cooldown_s}


def test_a_quota_for_spot_leaves_that_for_on_demand() -> None:
    at = engine(replace(JOB, allocation_vcpus=100))
    (order,) = decide(at)
    assert isinstance(order, Acquire)
    at.handle(AllocationRefused(START_S, order.order_id, "MaxSpotInstanceCountExceeded", ""))
    (half,) = decide(at, 120)
    assert bought((half,)) == [(XLARGE, 12)]
    assert isinstance(half, Acquire)
    grant(at, half)
    dear = decide(at, 240, vcpus=99)
    vcpus = sum(order.count * 2 for order in dear if isinstance(order, Acquire))
    assert vcpus == 100, "all of the cap"


def test_a_refusal_for_the_quota_of_spot_counts_what_is_held_of_spot() -> None:
    at = engine(replace(JOB, allocation_vcpus=40))
    (order,) = decide(at)
    assert isinstance(order, Acquire)
    at.handle(granted(Allocation("s", XLARGE_B, 5, START_S, Tier.TRANSIENT, 300_000)))
    at.handle(granted(Allocation("d", LARGE, 3, START_S, Tier.TRANSIENT)))
    at.handle(AllocationRefused(START_S, order.order_id, "MaxSpotInstanceCountExceeded", ""))
    assert at.holdings.quotas == {False: (20 + 4 * (order.count // 2), START_S + HOUR_S)}


def test_purchases_of_one_tick_share_the_quota_of_the_account() -> None:
    at = engine(replace(JOB, value_of_time_usd_per_h=5.0))
    orders = decide(at, left_vcpus={"L-34B43A08": 60})
    assert bought(orders) == [(XLARGE, 10), (LARGE, 10)]
    assert isinstance(orders[2], Wait)
    assert "quota" in orders[2].decision.reason


def test_hours_that_go_on_are_renewed() -> None:
    at = engine(replace(JOB, allocation_vcpus=100))
    (order,) = decide(at)
    assert isinstance(order, Acquire)
    grant(at, order)
    renew, _ = decide(at, HOUR_S - 120)
    assert isinstance(renew, Renew)


def limited(at: BidEngine, usd: str, spent: str = "0", seconds: int = 0, **more: Any) -> tuple[Order, ...]:
    spending = Spending(to_micros(usd), to_micros(spent), START_S + seconds + HOUR_S)
    return decide(at, seconds, on_demand_spending=spending, **more)


@pytest.mark.parametrize("name", ["deadline", "standard"])
def test_machines_on_demand_cost_no_more_than_the_job_allows(name: str) -> None:
    at = BidEngine()
    at.handle(opened(JOB, name, table(beta=0.01)))
    orders = limited(at, "1.05", vcpus=200)
    dear = [order for order in orders if isinstance(order, Acquire) and order.bid_micros is None]
    assert [order.count for order in dear] == [10], "of $0.10 for the hour until they can be ended"
    for order in orders:
        if isinstance(order, Acquire):
            grant(at, order)
    released = limited(at, "1.05", spent="1.25", seconds=120, vcpus=200)
    (lapse,) = (order for order in released if isinstance(order, Lapse) and "on_demand_usd" in order.decision.reason)
    assert len(lapse.instance_ids) == 2
    assert "the limit for machines on demand (on_demand_usd) of $1.0500 is spent" in lapse.decision.reason


def test_a_limit_that_leaves_no_machine_on_demand_is_named() -> None:
    risk, *others = limited(engine(), "0.05", vcpus=99)
    assert isinstance(risk, Wait)
    assert risk.decision.reason.startswith("the deadline is at risk: the deadline needs 100 vCPUs on demand")
    assert "the limit for machines on demand (on_demand_usd) of $0.0500 leaves $0.0500" in risk.decision.reason
    assert all(isinstance(order, Acquire) and order.bid_micros is not None for order in others)


@pytest.mark.parametrize("name", ["deadline", "standard", "best", "proteus", "just-above"])
@pytest.mark.parametrize("excluded", ["c4.xlarge/us-east-1a", "c4.xlarge", "us-east-1a"])
def test_nothing_is_bought_in_an_excluded_market(name: str, excluded: str) -> None:
    at = BidEngine()
    at.handle(opened(replace(JOB, exclude_markets=(excluded,)), name, table(beta=0.01)))
    only = {XLARGE: "0.05"}
    (wait,) = decide(at, prices=only)
    assert isinstance(wait, Wait)
    if name != "best":
        assert "markets are excluded by the job (exclude_markets)" in wait.decision.reason
    for order in decide(at, 120, vcpus=200, prices=only):
        assert isinstance(order, Acquire)
        assert order.market != XLARGE
        assert excluded not in (str(order.market), order.market.instance_type, order.market.zone)
