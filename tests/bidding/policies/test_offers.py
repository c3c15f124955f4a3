"""Which machines may be bought at all, and which of them are shown: limits, cooldowns, the ceiling, ties."""

from dataclasses import replace

import pytest
from hypothesis import given

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.forecast import MarketFeatures
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.policies import POLICIES, policy
from proteus_spot.bidding.policies.base import Choice
from proteus_spot.bidding.policies.deadline import DeadlinePolicy
from proteus_spot.bidding.policies.proteus import ProteusPolicy
from tests.support.forecasts import foresight_of
from tests.support.markets import (
    BIG,
    DELTAS,
    LARGE,
    MARKETS,
    PROPERTY,
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
#: Evictions are rare, whatever the signals say.
CALM = foresight_of(((0.02, 0.05), (0.01, 0.03), (0.01, 0.02)))
FLAT = MarketFeatures(50_000, 50_000, 600, 0, 0, 50_000.0, 50_000.0, 50_000.0)
RED = reliable(count=2)


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


@pytest.mark.parametrize(("tasks", "count"), [(0, 7), (28, 7), (20, 5), (8, 2), (16, 4), (40, 5)])
def test_no_more_machines_are_bought_than_the_tasks_of_a_clock_can_use(tasks, count):
    """Seven machines of 4 vCPUs fit."""
    job = JobModel(allocation_vcpus=28, max_spot_vcpus=28, tasks=tasks)
    here = view(RED, prices={XLARGE_B: "0.01"}, job=job)
    assert PROTEUS.acquisition(here).chosen.count == count


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


@pytest.mark.parametrize("name", sorted({*POLICIES, "fixed-delta:0.01"} - {"on-demand"}))
def test_a_decision_names_the_markets_that_it_did_not_weigh(name):
    prices = {XLARGE: "0.05", XLARGE_B: "0.2001", BIG: "0.10", LARGE: "0.101"}
    job = JobModel(allocation_vcpus=16, max_spot_vcpus=16)
    here = replace(view(reliable(), prices=prices, job=job), signals=dict.fromkeys(MARKETS, FLAT), foresight=CALM)
    made = policy(name)
    decision = made.purchases(here)[0] if isinstance(made, DeadlinePolicy) else made.acquisition(here)
    assert "1 market (2 above on demand, 1 too large)" in decision.reason


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
