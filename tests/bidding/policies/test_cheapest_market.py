"""The policies that buy the cheapest market: the standard strategy, and bids just above the price."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from proteus_spot.bidding.backtest.schemes.scheme_registry import SCHEMES, scheme
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.policies import AT_ONCE, FORECAST_POLICIES, NAMES, policy
from proteus_spot.bidding.policies.base import Choice, MarketView, Policy
from proteus_spot.bidding.policies.fixed_delta import delta_of, name_of
from proteus_spot.bidding.policies.just_above import AbovePolicy
from proteus_spot.bidding.policies.standard import StandardPolicy
from tests.support.markets import (
    BIG,
    LARGE,
    PROPERTY,
    XLARGE,
    XLARGE_B,
    reliable,
    spot,
    view,
    views,
)

STANDARD, ABOVE = StandardPolicy(), AbovePolicy(10_000)
JOB = JobModel(allocation_vcpus=64, max_spot_vcpus=100)
#: A large one is half as dear as an xlarge one, and half as large.
PRICES = {LARGE: "0.026", XLARGE: "0.05", XLARGE_B: "0.06"}


def test_the_standard_strategy_bids_on_demand_in_the_market_that_costs_least_per_vcpu() -> None:
    decision = STANDARD.acquisition(view(reliable(), prices=PRICES, job=JOB))
    best = decision.chosen
    assert best is not None
    assert (best.market, best.count, best.price_micros, best.bid_micros) == (XLARGE, 16, 50_000, 200_000)
    assert (best.eviction_prob, best.cost_usd, best.work, best.cost_per_work) == (0.25, 0.8, 64.0, 0.0125)
    assert decision.reason == (
        f"16 x {XLARGE} at $0.0500, $0.01250/vCPU-h, the least of 3 markets; bid $0.2000 (eviction within the hour 25%)"
    )
    assert [(c.market, c.why_not) for c in decision.candidates[1:]] == [
        (LARGE, "4.0% dearer than the best"),
        (XLARGE_B, "20.0% dearer than the best"),
    ]


def test_the_standard_strategy_buys_once_as_much_as_the_cap_and_an_allocation_may_be() -> None:
    for allocation, cap, count in ((64, 100, 16), (64, 60, 15), (10, 100, 2)):
        job = replace(JOB, allocation_vcpus=allocation, max_spot_vcpus=cap)
        best = STANDARD.acquisition(view(prices={XLARGE: "0.05"}, job=job)).chosen
        assert best is not None
        assert best.count == count
    held = STANDARD.acquisition(view(spot(), prices=PRICES, job=JOB))
    assert held.verdict is Choice.WAIT
    assert held.reason == "16 spot vCPUs are held: nothing is bought until the market takes them"
    taken = STANDARD.acquisition(view(prices=PRICES, job=JOB, cooling=frozenset({XLARGE}))).chosen
    assert taken is not None
    assert taken.market == LARGE


def test_above_its_on_demand_price_the_standard_strategy_bids_nowhere() -> None:
    prices = {LARGE: "0.1001", XLARGE: "0.25"}
    assert "on-demand price" in STANDARD.acquisition(view(prices=prices, job=JOB)).reason
    decision = STANDARD.acquisition(view(prices=prices, job=replace(JOB, ceiling_on_demand=False)))
    assert decision.verdict is Choice.WAIT
    assert decision.reason == (
        f"32 x {LARGE} at $0.1001, $0.05005/vCPU-h, the least of 2 markets, would not be sold under a bid of $0.1000"
    )
    assert [c.why_not for c in decision.candidates] == ["stands above the bid", "24.9% dearer than the best"]


def test_just_above_fills_the_cap_allocation_by_allocation() -> None:
    first = ABOVE.acquisition(view(prices=PRICES, job=JOB)).chosen
    assert first is not None
    assert (first.market, first.count, first.bid_micros, first.delta_micros) == (XLARGE, 16, 60_000, 10_000)
    held = spot("first", XLARGE, 16, "0.06")
    second = ABOVE.acquisition(view(held, prices=PRICES, job=JOB)).chosen
    assert second is not None
    assert (second.market, second.count) == (XLARGE, 9)  # 36 vCPUs are left
    full = ABOVE.acquisition(view(held, spot("second", XLARGE, 9), prices=PRICES, job=JOB))
    assert full.reason == "nothing can be bought: all of 100 spot vCPUs are held"


@pytest.mark.parametrize("of", [STANDARD, ABOVE], ids=["standard", "above"])
def test_ties_go_to_the_earlier_market_and_what_is_too_large_is_left_out(of: Policy) -> None:
    prices = {BIG: "0.01", XLARGE_B: "0.05", XLARGE: "0.05", LARGE: "0.025"}
    decision = of.acquisition(view(prices=prices, job=replace(JOB, allocation_vcpus=31)))
    assert [c.market for c in decision.candidates] == [LARGE, XLARGE, XLARGE_B]
    assert decision.candidates[1].why_not == "as cheap as the best, but later in the order"
    assert of.acquisition(view(prices={}, job=JOB)).reason == "nothing can be bought: no market has a price"


@pytest.mark.parametrize("of", [STANDARD, ABOVE], ids=["standard", "above"])
@pytest.mark.parametrize(("price", "said"), [("0.05", "$0.0500"), ("0.31", "$0.3100"), (None, "an unknown price")])
def test_what_is_held_is_kept_until_the_market_takes_it(of: Policy, price: str | None, said: str) -> None:
    held = spot()
    decision = of.renewal(view(held, prices={} if price is None else {XLARGE: price}), held)
    assert decision.verdict is Choice.RENEW
    assert decision.reason == f"{XLARGE} at {said}: kept until the price passes the bid of $0.3000"


@PROPERTY
@given(views(), st.sampled_from([STANDARD, ABOVE, AbovePolicy(0)]))
def test_nothing_on_sale_is_cheaper_and_the_cap_the_ceiling_and_the_cooldown_hold(here: MarketView, of: Policy) -> None:
    decision = of.acquisition(here)
    event(decision.verdict)
    assert "\n" not in decision.reason
    each = [c.cost_per_work for c in decision.candidates]
    assert each == sorted(each)
    assert all(c.why_not for c in decision.candidates[decision.verdict is Choice.ACQUIRE :])
    for c in decision.candidates:
        kind = here.types[c.market.instance_type]
        assert 1 <= c.count <= here.job.allocation_vcpus // kind.vcpu
        assert here.spot_vcpus + c.count * kind.vcpu <= here.job.max_spot_vcpus
        assert c.market not in here.cooling
        assert c.price_micros <= kind.on_demand_micros or not here.job.ceiling_on_demand
    if decision.chosen is not None:
        best = decision.chosen
        assert best.delta_micros >= 0
        kind = here.types[best.market.instance_type]
        left = min(here.job.allocation_vcpus, here.job.max_spot_vcpus - here.spot_vcpus)
        for market, price in here.prices.items():
            other = here.types[market.instance_type]
            sold = market in here.evictions.rows and market not in here.cooling and other.vcpu <= left
            if sold and (price <= other.on_demand_micros or not here.job.ceiling_on_demand):
                assert Fraction(best.price_micros, kind.vcpu) <= Fraction(price, other.vcpu)


# -- names ------------------------------------------------------------------------------------------------------------


def test_a_fixed_delta_is_in_the_name_for_policies_and_schemes_alike() -> None:
    assert policy("fixed-delta:0.01") == AbovePolicy(10_000)
    assert policy("fixed-delta:0.0001") == policy("just-above")
    for name in ("fixed-delta:cheap", "fixed-delta", "fixed-delta:-1"):
        with pytest.raises(ValueError) as by_policy:
            policy(name)
        with pytest.raises(ValueError) as by_scheme:
            scheme(name)
        assert str(by_policy.value) == str(by_scheme.value)


@PROPERTY
@given(st.integers(0, 10**9))
def test_the_name_of_a_delta_is_read_as_it(delta_micros: int) -> None:
    assert delta_of(name_of(delta_micros)) == delta_micros


def test_the_name_of_a_delta_is_in_plain_dollars() -> None:
    assert [name_of(micros) for micros in (0, 1, 2_500_000)] == [
        f"fixed-delta:{usd}" for usd in ("0", "0.000001", "2.5")
    ]


def test_every_rule_that_a_real_market_allows_has_a_live_policy() -> None:
    for name in (*SCHEMES, "fixed-delta:0.01"):
        found = scheme(name).policy
        assert found is not None
        policy(found)
    assert scheme("fixed-delta:0.01").policy == "fixed-delta:0.01"
    assert scheme("standard+checkpoint").policy == "standard"
    assert scheme("oracle").policy is None


def test_the_lists_of_names_are_of_policies_that_there_are() -> None:
    assert NAMES == ("best", "deadline", "fixed-delta:USD", "just-above", "on-demand", "proteus", "standard")
    assert set(NAMES) >= AT_ONCE | FORECAST_POLICIES
