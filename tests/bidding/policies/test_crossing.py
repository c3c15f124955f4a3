"""Bytes between zones in the cost of work: one zone first, another only where it pays."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.policies import policy
from proteus_spot.bidding.policies.base import Choice, MarketView
from proteus_spot.bidding.policies.footprint import held_part
from proteus_spot.bidding.policies.limits import on_demand_purchase
from tests.bidding.policies.test_best import shown
from tests.support.markets import (
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

POLICIES = ["best", "proteus", "standard", "just-above"]
#: Dollars of bytes in a vCPU-hour.
CROSSING = 0.004


def two_zones(home: Market, here: str, there: str, crossing: float, name: str = "proteus") -> MarketView:
    """Two twins, in the zone of the reliable tier at `here` dollars and in another one at `there`."""
    away = XLARGE_B if home == XLARGE else XLARGE
    prices = {home: here, away: there}
    if name == "best":
        return shown(reliable(market=home), prices=prices, crossing_usd_per_vcpu_h=crossing)
    evictions = table({XLARGE: ((0.2, 1800.0),) * 3, XLARGE_B: ((0.2, 1800.0),) * 3})
    return replace(view(reliable(market=home), prices=prices, evictions=evictions), crossing_usd_per_vcpu_h=crossing)


@pytest.mark.parametrize("home", [XLARGE, XLARGE_B])
@pytest.mark.parametrize("name", POLICIES)
def test_the_zone_of_the_reliable_tier_is_bought_in_until_another_is_cheaper_with_its_bytes(name, home):
    away = XLARGE_B if home == XLARGE else XLARGE

    def chosen(there: str, crossing: float) -> Market:
        best = policy(name).acquisition(two_zones(home, "0.05", there, crossing, name)).chosen
        assert best is not None
        return best.market

    # an instance-hour of 4 vCPUs bears 1.6 cents of bytes; the price that is paid may be a share of 5 cents
    assert chosen("0.049", 0.0) == away
    assert chosen("0.049", CROSSING) == home
    assert chosen("0.005", CROSSING) == away


@pytest.mark.parametrize("name", POLICIES)
def test_the_candidate_s_cost_of_work_says_what_its_bytes_cost(name):
    without = policy(name).acquisition(two_zones(XLARGE, "0.30", "0.05", 0.0, name)).chosen
    crossed = policy(name).acquisition(two_zones(XLARGE, "0.30", "0.05", CROSSING, name)).chosen
    assert without is not None
    assert crossed is not None
    assert without.market == crossed.market == XLARGE_B
    assert crossed.cost_per_work - without.cost_per_work == pytest.approx(CROSSING, rel=0.2)
    assert crossed.cost_usd > without.cost_usd


@PROPERTY
@given(views(), st.sampled_from(POLICIES), st.floats(0.0, 0.1))
def test_with_one_zone_nothing_changes(here, name, crossing):
    zones = {market.zone for market in here.prices} | {each.market.zone for each in here.footprint}
    if len(zones) > 1:
        here = replace(
            here,
            prices={market: price for market, price in here.prices.items() if market.zone == "us-east-1a"},
            footprint=tuple(each for each in here.footprint if each.market.zone == "us-east-1a"),
        )
    assert policy(name).acquisition(replace(here, crossing_usd_per_vcpu_h=crossing)) == policy(name).acquisition(here)


def test_without_a_reliable_tier_no_zone_is_another():
    here = view(prices={XLARGE: "0.05", XLARGE_B: "0.05"})
    assert replace(here, crossing_usd_per_vcpu_h=CROSSING).crossing_usd(XLARGE_B) == 0.0


def test_a_held_allocation_in_another_zone_bears_its_bytes():
    held = spot("b", XLARGE_B, 4)
    here = view(reliable(), held, prices={XLARGE: "0.05", XLARGE_B: "0.05"})
    part = held_part(replace(here, crossing_usd_per_vcpu_h=CROSSING), held)
    without = held_part(here, held)
    assert part.cost_usd - without.cost_usd == pytest.approx(CROSSING * 16 * without.useful_s / HOUR_S)
    home = spot("a", XLARGE, 4)
    assert held_part(replace(here, crossing_usd_per_vcpu_h=CROSSING), home) == held_part(here, home)


def test_best_lets_an_allocation_go_that_its_bytes_make_dearer_than_a_purchase_at_home():
    held = spot("b", XLARGE_B, 16, "0.05")
    here = shown(
        reliable(market=XLARGE), held, prices={XLARGE: "0.055", XLARGE_B: "0.05"}, now_s=START_S + HOUR_S - 200
    )
    assert policy("best").renewal(here, held).verdict is Choice.RENEW
    crossed = replace(here, crossing_usd_per_vcpu_h=CROSSING)
    assert policy("best").renewal(crossed, held).verdict is Choice.LAPSE


def test_machines_on_demand_are_bought_in_the_zone_of_the_reliable_tier_or_where_they_are_cheaper_with_their_bytes():
    left = TimeLeft(START_S, 100, 0.001, 0.0)
    for crossing in (0.0, CROSSING):
        here = replace(
            view(reliable(market=XLARGE_B)),
            crossing_usd_per_vcpu_h=crossing,
            time_left=left,
            markets=MARKETS,
            on_demand_room_vcpus=756,
        )
        decision = on_demand_purchase(here)
        assert decision is not None
        assert decision.chosen is not None
        assert decision.chosen.market.zone == XLARGE_B.zone
        assert TYPES[decision.chosen.market.instance_type].on_demand_micros == decision.chosen.price_micros
