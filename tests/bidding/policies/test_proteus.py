"""The policy of the paper: Fig. 6's transitions by hand, renewals, and what a held allocation costs."""

import math
from dataclasses import replace

import pytest

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.market.model import HOUR_S, Allocation
from proteus_spot.bidding.market.money import to_micros
from proteus_spot.bidding.policies.base import Choice, MarketView
from proteus_spot.bidding.policies.footprint import held_part, per_work
from proteus_spot.bidding.policies.proteus import ProteusPolicy
from tests.support.markets import (
    DELTAS,
    START_S,
    XLARGE,
    XLARGE_B,
    reliable,
    spot,
    table,
    view,
)

PROTEUS = ProteusPolicy()
#: Fig. 6: a required on-demand allocation without work (red), a spot one (yellow), a second one (green).
FIG6_JOB = JobModel(
    resize_overhead_s=20, eviction_overhead_s=60, allocation_vcpus=32, max_spot_vcpus=48, reliable_works=False
)
FIG6_TABLE = table({XLARGE: ((0.5, 1800.0),) * 3, XLARGE_B: ((0.2, 600.0),) * 3})
RED, YELLOW = reliable(count=2), spot("yellow", XLARGE, 4, "0.06")
#: Red: C = 2 x 0.20 = 0.40. Yellow: C = 0.5 x 0.05 x 4 = 0.10, omega = 0.5 x 3600 + 0.5 x 1800 = 2700,
#: dt = 2700 - 0.5 x 60 = 2670, W = 16 x 2670 / 3600 vCPU-h.
PHASE_1 = 0.50 / (16 * 2670 / 3600)
#: Green: C = 0.8 x 0.04 x 8 = 0.256, omega = 0.8 x 3600 + 0.2 x 600 = 3000. One of the two is taken with
#: 1 - 0.5 x 0.8 = 0.6, so dt = 2700 - 36 - 20 = 2644 and 3000 - 36 - 20 = 2944.
PHASE_2 = 0.756 / ((16 * 2644 + 32 * 2944) / 3600)


def fig6(*footprint: Allocation, green: str = "0.04", now_s: int = START_S, **more: object) -> MarketView:
    """Return Fig. 6's market; `green` is the price of the second spot market, the only one that sells."""
    prices = {XLARGE: "0.05", XLARGE_B: green}
    job = replace(FIG6_JOB, **more)
    return view(*footprint, prices=prices, now_s=now_s, job=job, evictions=FIG6_TABLE, cooling=frozenset({XLARGE}))


def test_phase_1_an_on_demand_allocation_without_work_and_a_spot_one():
    here = fig6(RED, YELLOW)
    each, cost, work = per_work([held_part(here, a) for a in here.footprint], here, resized=False)
    assert (cost, work, each) == pytest.approx((0.50, 11.8666667, 0.0421348))
    assert each == pytest.approx(PHASE_1)


def test_phase_2_a_cheap_second_spot_allocation_amortises_the_on_demand_one():
    decision = PROTEUS.acquisition(fig6(RED, YELLOW))
    green = decision.chosen
    assert decision.verdict is Choice.ACQUIRE
    assert (green.market, green.count, green.price_micros) == (XLARGE_B, 8, 40_000)
    assert green.delta_micros == DELTAS[0]  # all deltas are alike: the lowest
    assert green.bid_micros == 40_100
    assert (green.cost_usd, green.work) == pytest.approx((0.756, 37.92))
    assert green.cost_per_work == pytest.approx(0.0199367) == pytest.approx(PHASE_2)
    assert decision.cost_per_work == pytest.approx(PHASE_1)


def test_an_on_demand_allocation_without_work_alone_makes_any_work_welcome():
    decision = PROTEUS.acquisition(fig6(RED, green="0.19"))
    assert decision.cost_per_work == math.inf
    assert decision.verdict is Choice.ACQUIRE
    assert "no work at all" in decision.reason


def test_an_on_demand_allocation_that_works_is_what_a_candidate_has_to_beat():
    # Red alone: 0.20 dollars an hour for 4 vCPUs.
    assert PROTEUS.acquisition(fig6(RED, reliable_works=True)).cost_per_work == pytest.approx(0.05)


def test_what_would_not_lower_the_cost_of_work_is_not_bought():
    # Green at 0.20: C = 0.5 + 0.8 x 0.2 x 8 = 1.78 over 37.92 vCPU-h is 0.0469, above phase 1's 0.0421.
    decision = PROTEUS.acquisition(fig6(RED, YELLOW, green="0.20"))
    assert decision.verdict is Choice.WAIT
    assert decision.chosen is None
    assert decision.candidates
    assert all(c.why_not.startswith("would not lower") for c in decision.candidates)
    assert decision.candidates[0].cost_per_work == pytest.approx(1.78 / 37.92)
    assert "$0.04694/vCPU-h" in decision.reason
    assert "$0.04213/vCPU-h" in decision.reason


def test_the_second_purchase_may_not_be_worth_its_overhead():
    # What would lower E without sigma does not with one of half the hour.
    assert PROTEUS.acquisition(fig6(RED, YELLOW, resize_overhead_s=1800)).verdict is Choice.WAIT


GREEN = spot("green", XLARGE_B, 8, "0.10", launched_at_s=START_S - HOUR_S + 200)


def test_the_hours_end_renews_what_amortises_the_rest():
    decision = PROTEUS.renewal(fig6(RED, YELLOW, GREEN), GREEN)
    assert decision.verdict is Choice.RENEW
    # With green for an hour and no sigma: dt = 2700 - 36 and 3000 - 36.
    assert f"${0.756 / ((16 * 2664 + 32 * 2964) / 3600):.5f}/vCPU-h" in decision.reason
    # Without it, sigma is paid: dt = 2670 - 20.
    assert decision.cost_per_work == pytest.approx(0.50 / (16 * 2650 / 3600))
    assert f"${decision.cost_per_work:.5f}/vCPU-h" in decision.reason
    assert "$0.0400" in decision.reason


def test_the_hours_end_lets_go_what_has_become_dear():
    # At 0.5 under a bid of 1: C = 0.5 + 0.8 x 0.5 x 8 = 3.7 for 38.2 vCPU-h; without it 0.0424.
    dear = replace(GREEN, bid_micros=to_micros("1"))
    decision = PROTEUS.renewal(fig6(RED, YELLOW, dear, green="0.50"), dear)
    assert decision.verdict is Choice.LAPSE
    assert decision.cost_per_work == pytest.approx(0.0424528)


def test_the_price_at_which_renewal_turns_into_lapse_is_where_both_cost_the_same():
    without = 0.50 / (16 * 2650 / 3600)
    work = (16 * 2664 + 32 * 2964) / 3600
    turn = (without * work - 0.50) / (0.8 * 8)
    bid = replace(GREEN, bid_micros=to_micros("1"))
    for price, verdict in ((turn - 0.001, Choice.RENEW), (turn + 0.001, Choice.LAPSE)):
        assert PROTEUS.renewal(fig6(RED, YELLOW, bid, green=f"{price:.6f}"), bid).verdict is verdict


def test_a_tie_renews():
    # Two allocations alike, no overheads: with or without the second, work costs the same.
    twin = replace(YELLOW, allocation_id="twin")
    here = fig6(YELLOW, twin, resize_overhead_s=0, eviction_overhead_s=0)
    assert PROTEUS.renewal(here, twin).verdict is Choice.RENEW


def test_an_hour_without_any_useful_work_is_not_paid_for():
    here = fig6(YELLOW, eviction_overhead_s=36_000)  # every second is lost to evictions
    assert PROTEUS.renewal(here, YELLOW).verdict is Choice.LAPSE


def test_what_the_market_is_taking_is_left_to_it():
    outbid = replace(YELLOW, bid_micros=to_micros("0.01"))
    for footprint in ((outbid,), (RED, outbid), (RED, GREEN, outbid)):
        decision = PROTEUS.renewal(fig6(*footprint), outbid)
        assert decision.verdict is Choice.RENEW
        assert "$0.0500" in decision.reason
        assert "$0.0100" in decision.reason


def test_a_price_at_the_bid_takes_nothing():
    assert "passed the bid" not in PROTEUS.renewal(fig6(YELLOW, RED), replace(YELLOW, bid_micros=50_000)).reason
    assert "passed the bid" in PROTEUS.renewal(fig6(YELLOW, RED), replace(YELLOW, bid_micros=49_999)).reason


def test_a_held_allocation_is_judged_by_what_its_bid_stands_above_the_present_price():
    rows = table({XLARGE: ((0.9, 60.0), (0.5, 600.0), (0.1, 1800.0))})
    for price, beta in (("0.0999", 0.9), ("0.09", 0.5), ("0.0901", 0.9), ("0.1001", 1.0), ("0.1", 0.9)):
        here = view(prices={XLARGE: price}, evictions=rows)
        assert held_part(here, spot(bid="0.1")).beta == beta, price


@pytest.mark.parametrize(("last", "price"), [(None, 0.30), ("0.20", 0.20), ("0.50", 0.30)])
def test_a_held_allocation_whose_market_has_no_price_is_not_taken_for_outbid(last, price):
    last_prices = {XLARGE: to_micros(last)} if last else {}
    part = held_part(replace(view(prices={}), last_prices=last_prices), spot(bid="0.30"))
    assert part.beta == 0.25
    assert part.cost_usd == pytest.approx(0.75 * price * 4)


def test_the_cost_of_an_unpriced_holding_is_named_unknown():
    assert "unknown price" in PROTEUS.renewal(view(RED, YELLOW), YELLOW).reason
