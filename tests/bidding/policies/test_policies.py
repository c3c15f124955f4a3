"""The policies: Fig. 6's transitions by hand, and the paper's equations once more as plain loops."""

import math
from bisect import bisect_right
from dataclasses import replace

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from bidding.economics.job_model import JobModel
from bidding.market.model import HOUR_S, Allocation, Market, Tier
from bidding.market.money import to_micros
from bidding.policies import POLICIES, policy
from bidding.policies.base import Choice, MarketView
from bidding.policies.footprint import held_part, per_work
from bidding.policies.proteus import ProteusPolicy
from tests.support.markets import (
    BIG,
    DELTAS,
    LARGE,
    MARKETS,
    PROPERTY,
    START_S,
    TYPES,
    XLARGE,
    XLARGE_B,
    reliable,
    spot,
    table,
    view,
    views,
)

PROTEUS = ProteusPolicy()

# -- Fig. 6 by hand: a required on-demand allocation without work (red), a spot one (yellow), a second one (green) -----

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


# -- what may be bought at all ----------------------------------------------------------------------------------------


def test_a_type_larger_than_an_allocation_is_not_bought():
    decision = PROTEUS.acquisition(view(RED, prices={BIG: "0.10"}, job=JobModel(allocation_vcpus=16)))
    assert decision.verdict is Choice.WAIT
    assert "larger than an allocation of 16 vCPUs" in decision.reason


def test_a_type_larger_than_what_is_left_is_not_bought():
    job = JobModel(allocation_vcpus=32, max_spot_vcpus=40)
    here = view(spot(count=4), prices={BIG: "0.10"}, job=job)  # 16 of 40 are held
    assert "larger than what may still be held" in PROTEUS.acquisition(here).reason


def test_the_last_allocation_is_cut_to_the_cap():
    here = view(RED, spot(count=4), prices={XLARGE_B: "0.01"}, job=JobModel(allocation_vcpus=16, max_spot_vcpus=30))
    assert PROTEUS.acquisition(here).chosen.count == 3  # 12 of the 14 vCPUs left


def test_at_the_cap_nothing_is_bought_and_the_reliable_tier_does_not_count():
    here = view(reliable(count=50), spot(count=4), prices={XLARGE_B: "0.01"}, job=JobModel(max_spot_vcpus=16))
    assert PROTEUS.acquisition(here).reason == "nothing can be bought: all of 16 spot vCPUs are held"


@pytest.mark.parametrize(("ceiling", "verdict"), [(True, Choice.WAIT), (False, Choice.ACQUIRE)])
def test_the_ceiling_keeps_out_of_markets_above_their_on_demand_price(ceiling, verdict):
    here = view(prices={XLARGE: "0.2001"}, job=JobModel(ceiling_on_demand=ceiling))
    decision = PROTEUS.acquisition(here)
    assert decision.verdict is verdict
    assert ("on-demand price" in decision.reason) is ceiling
    at_par = view(prices={XLARGE: "0.20"}, job=JobModel(ceiling_on_demand=ceiling))
    assert PROTEUS.acquisition(at_par).verdict is Choice.ACQUIRE


def test_a_market_that_refused_is_left_alone_and_the_next_best_is_bought():
    prices = {LARGE: "0.01", XLARGE: "0.05"}
    assert PROTEUS.acquisition(view(prices=prices)).chosen.market == LARGE
    assert PROTEUS.acquisition(view(prices=prices, cooling=frozenset({LARGE}))).chosen.market == XLARGE
    all_cool = PROTEUS.acquisition(view(prices=prices, cooling=frozenset({LARGE, XLARGE})))
    assert "left alone for a while" in all_cool.reason


def test_a_market_without_type_or_history_or_price_is_not_bought():
    stranger = Market("x9.huge", "us-east-1a")
    assert "catalogue" in PROTEUS.acquisition(view(prices={stranger: "0.01"})).reason
    assert PROTEUS.acquisition(view(prices={})).reason == "nothing can be bought: no market has a price"


# -- properties -------------------------------------------------------------------------------------------------------


def naive_cost_per_work(
    here: MarketView, parts: list[tuple[float, float, float, int, float, float]], resized: bool
) -> tuple[float, float, float]:
    """Return (E, C, W) of parts (β, median, price, k, ν, t_r) by equations (1)-(4), one number at a time."""
    cost = work = 0.0
    survive = 1.0
    for beta, *_ in parts:
        survive *= 1 - beta
    for beta, median_s, price_micros, k, nu, left_s in parts:
        cost += (1 - beta) * (price_micros / 1e6) * k * (left_s / 3600)
        omega = (1 - beta) * left_s + beta * min(median_s, left_s)
        dt = omega - (1 - survive) * here.job.eviction_overhead_s - (here.job.resize_overhead_s if resized else 0)
        work += k * max(dt, 0) / 3600 * nu
    work *= here.job.scaling_efficiency
    return (cost / work if work > 0 else math.inf), cost, work


def naive_held(
    here: MarketView, a: Allocation, left_s: int | None = None
) -> tuple[float, float, float, int, float, float]:
    kind = TYPES[a.market.instance_type]
    until_s = here.paid_until_s.get(a.allocation_id, here.now_s + 3600 - (here.now_s - a.launched_at_s) % 3600)
    left = until_s - here.now_s if left_s is None else left_s
    if a.bid_micros is None:
        return 0.0, 3600.0, kind.on_demand_micros, a.count, kind.vcpu * here.job.reliable_works, left
    price = here.prices.get(a.market, min(here.last_prices.get(a.market, a.bid_micros), a.bid_micros))
    if a.market not in here.evictions.rows:
        beta, median = 0.0, 3600.0
    elif price > a.bid_micros:
        beta, median = 1.0, 0.0
    else:
        beta, median = here.evictions.rows[a.market][max(bisect_right(DELTAS, a.bid_micros - price) - 1, 0)]
    return beta, median, price, a.count, kind.vcpu, left


def naive_offers(here: MarketView) -> dict[tuple[Market, int], tuple[float, float, float]]:
    """Return (E, C, W) of the footprint with each market x delta that may be bought."""
    spot_vcpus = sum(a.count * TYPES[a.market.instance_type].vcpu for a in here.footprint if a.tier is Tier.TRANSIENT)
    left = min(here.job.allocation_vcpus, here.job.max_spot_vcpus - spot_vcpus)
    held = [naive_held(here, a) for a in here.footprint]
    offers = {}
    for market, price in here.prices.items():
        kind = TYPES[market.instance_type]
        above = here.job.ceiling_on_demand and price > kind.on_demand_micros
        if market not in here.evictions.rows or market in here.cooling or above or left < kind.vcpu:
            continue
        for delta, (beta, median) in zip(DELTAS, here.evictions.rows[market], strict=True):
            offer = (beta, median, price, left // kind.vcpu, kind.vcpu, 3600)
            offers[market, delta] = naive_cost_per_work(here, [*held, offer], resized=True)
    return offers


@PROPERTY
@given(views())
def test_a_decision_is_what_the_equations_say_number_by_number(here):
    decision = PROTEUS.acquisition(here)
    offers = naive_offers(here)
    held = [naive_held(here, a) for a in here.footprint]
    now = naive_cost_per_work(here, held, resized=False)[0]
    assert decision.cost_per_work == pytest.approx(now, rel=1e-9)
    event(decision.verdict)
    assert len(decision.candidates) == min(len({market for market, _ in offers}), 8)
    for c in decision.candidates:
        assert (c.cost_per_work, c.cost_usd, c.work) == pytest.approx(offers[c.market, c.delta_micros], rel=1e-9)
        assert c.cost_per_work <= min(e for (m, _), (e, _, _) in offers.items() if m == c.market) * (1 + 1e-9)
        assert c.eviction_prob == here.evictions.lookup(c.market, DELTAS.index(c.delta_micros))[0]
    each = [c.cost_per_work for c in decision.candidates]
    assert each == sorted(each)
    best = min((e for e, _, _ in offers.values()), default=math.inf)
    assume(abs(best - now) > 1e-9 * abs(now) if math.isfinite(best) and math.isfinite(now) else True)
    assert (decision.verdict is Choice.ACQUIRE) == (best < now)


@PROPERTY
@given(views())
def test_the_cap_the_ceiling_and_the_cooldown_hold(here):
    decision = PROTEUS.acquisition(here)
    for c in decision.candidates:
        kind = TYPES[c.market.instance_type]
        assert c.count >= 1
        assert c.count * kind.vcpu <= here.job.allocation_vcpus
        assert here.spot_vcpus + c.count * kind.vcpu <= here.job.max_spot_vcpus
        assert c.price_micros == here.prices[c.market]
        assert c.market not in here.cooling
        if here.job.ceiling_on_demand:
            assert c.price_micros <= kind.on_demand_micros


@PROPERTY
@given(views(), st.randoms(use_true_random=False))
def test_the_same_view_gets_the_same_decision_in_whatever_order_its_mappings_are(here, shuffle):
    prices, rows = list(here.prices.items()), list(here.evictions.rows.items())
    shuffle.shuffle(prices)
    shuffle.shuffle(rows)
    again = replace(here, prices=dict(prices), evictions=replace(here.evictions, rows=dict(rows)))
    assert PROTEUS.acquisition(again) == PROTEUS.acquisition(here) == PROTEUS.acquisition(here)
    for allocation in here.footprint:
        assert PROTEUS.renewal(again, allocation) == PROTEUS.renewal(here, allocation)


@PROPERTY
@given(views())
def test_a_reason_carries_its_numbers_and_every_loser_why_it_lost(here):
    decision = PROTEUS.acquisition(here)
    assert "\n" not in decision.reason
    assert "nan" not in decision.reason
    losers = decision.candidates[decision.verdict is Choice.ACQUIRE :]
    assert all(c.why_not for c in losers)
    if decision.chosen is not None:
        c = decision.chosen
        assert not c.why_not
        assert f"{c.count} x {c.market}" in decision.reason
        assert f"{c.price_micros / 1e6:.4f}" in decision.reason
        assert f"{c.bid_micros / 1e6:.4f}" in decision.reason
        assert f"{c.cost_per_work:.5f}" in decision.reason
    elif decision.candidates:
        assert str(decision.candidates[0].market) in decision.reason
    else:
        assert decision.reason.startswith("nothing can be bought: ")


@PROPERTY
@given(views())
def test_a_renewal_is_what_the_equations_say(here):
    for allocation in here.footprint:
        if allocation.tier is Tier.RELIABLE:
            continue
        others = [naive_held(here, a) for a in here.footprint if a is not allocation]
        renewed = naive_cost_per_work(here, [*others, naive_held(here, allocation, 3600)], resized=False)[0]
        without = naive_cost_per_work(here, others, resized=True)[0]
        decision = PROTEUS.renewal(here, allocation)
        assert decision.cost_per_work == pytest.approx(without, rel=1e-9)
        if here.prices.get(allocation.market, 0) > allocation.bid_micros:
            event("outbid")
            assert decision.verdict is Choice.RENEW
        elif math.isinf(renewed):
            event("no work")
            assert decision.verdict is Choice.LAPSE
        elif math.isinf(without) or abs(renewed - without) > 1e-9 * without:
            event(decision.verdict)
            assert (decision.verdict is Choice.RENEW) == (renewed < without)


def test_ties_go_to_the_first_market_and_the_lowest_delta():
    # Two zones of one type, alike in everything.
    for prices in ({XLARGE: "0.05", XLARGE_B: "0.05"}, {XLARGE_B: "0.05", XLARGE: "0.05"}):
        decision = PROTEUS.acquisition(view(RED, prices=prices))
        assert [c.market for c in decision.candidates] == [XLARGE, XLARGE_B]
        assert {c.delta_micros for c in decision.candidates} == {DELTAS[0]}
        assert "as cheap as the best" in decision.candidates[1].why_not


def test_ties_of_many_markets_keep_their_order():
    zones = [Market("c4.xlarge", f"us-east-1{letter}") for letter in "abcdefghijklmnopqrstuvwxyz"]
    rows = table({zone: ((0.2, 600.0),) * 3 for zone in zones})
    decision = PROTEUS.acquisition(view(RED, prices=dict.fromkeys(reversed(zones), "0.05"), evictions=rows))
    assert [c.market for c in decision.candidates] == zones[:8]


def test_at_most_eight_candidates_are_shown_and_the_best_is_among_them():
    prices = {market: "0.09" for market in MARKETS} | {LARGE: "0.001"}
    decision = PROTEUS.acquisition(view(prices=prices))
    assert len(decision.candidates) == 8
    assert decision.candidates[0].market == LARGE


# -- the others -------------------------------------------------------------------------------------------------------


@PROPERTY
@given(views())
def test_on_demand_never_holds_spot_machines(here):
    never = policy("on-demand")
    assert never.acquisition(here).verdict is Choice.WAIT
    assert all(never.renewal(here, a).verdict is Choice.LAPSE for a in here.footprint)


def test_an_unknown_policy_is_refused_with_those_there_are():
    with pytest.raises(
        ValueError, match=r"unknown policy 'prot'; there are best, fixed-delta:USD, just-above, on-demand, "
    ):
        policy("prot")
    assert all(policy(name) is not policy(name) for name in POLICIES)
