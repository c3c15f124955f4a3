"""The decisions of the policy against the paper's equations once more, as plain loops, on random views."""

import math
from bisect import bisect_right
from dataclasses import replace

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from proteus_spot.bidding.market.model import Allocation, Market, Tier
from proteus_spot.bidding.policies.base import Choice, MarketView
from proteus_spot.bidding.policies.proteus import ProteusPolicy
from tests.support.markets import (
    DELTAS,
    PROPERTY,
    TYPES,
    views,
)

PROTEUS = ProteusPolicy()


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
