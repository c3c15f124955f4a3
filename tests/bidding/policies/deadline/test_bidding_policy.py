"""The policy `deadline` of live jobs: the cheapest work, and reasons in words with numbers."""

from dataclasses import replace

import pytest
from hypothesis import given

from proteus_spot.bidding.economics.deadline import TimeLeft
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.policies import AT_ONCE, policy
from proteus_spot.bidding.policies.base import Choice, MarketView
from proteus_spot.bidding.policies.deadline import DeadlinePolicy
from tests.support.markets import LARGE, PROPERTY, XLARGE, XLARGE_B, spot, view, views

POLICY = DeadlinePolicy()
JOB = JobModel(allocation_vcpus=64, max_spot_vcpus=100)
#: A large one is half as dear as an xlarge one, and half as large.
PRICES = {LARGE: "0.026", XLARGE: "0.05", XLARGE_B: "0.06"}


def needs(seen: MarketView, vcpus: float, hours: float = 10.0) -> MarketView:
    """Return the view of a job that needs so many vCPUs on average until its deadline."""
    seconds = hours * HOUR_S
    return replace(seen, time_left=TimeLeft(seen.now_s + round(seconds), round(vcpus * seconds), 1.0, 0.0))


def test_it_is_found_by_name_and_buys_all_of_the_cap() -> None:
    assert isinstance(policy("deadline"), DeadlinePolicy)
    assert "deadline" in AT_ONCE


def test_it_buys_the_cheapest_work_and_says_so() -> None:
    decision = POLICY.acquisition(view(prices=PRICES, job=JOB))
    best = decision.chosen
    assert best is not None
    assert (best.market, best.count) == (XLARGE, 16)
    assert decision.reason.startswith(f"16 x {XLARGE} at $0.0500 (loss within the hour 25%): work costs $0.0")
    assert "the least of 3 markets" in decision.reason
    assert best.cost_per_work > 0.0125, "losses and joining cost"


def test_dearer_work_is_left_where_time_is_worth_nothing() -> None:
    held = spot(market=XLARGE, count=16)
    waits = POLICY.acquisition(view(held, prices=PRICES, job=JOB, cooling=frozenset({XLARGE, LARGE})))
    assert waits.verdict is Choice.WAIT
    assert "64 vCPUs held, the value of time included" in waits.reason


def test_dearer_work_is_bought_where_time_has_its_price_or_the_deadline_needs_it() -> None:
    held, cooling = spot(market=XLARGE, count=16), frozenset({XLARGE, LARGE})
    seen = view(held, prices=PRICES, job=replace(JOB, value_of_time_usd_per_h=5.0), cooling=cooling)
    assert POLICY.acquisition(seen).chosen is not None
    needed = POLICY.acquisition(needs(view(held, prices=PRICES, job=JOB, cooling=cooling), 90))
    assert needed.chosen is not None
    assert needed.reason.endswith("the deadline needs 90 vCPUs on average, 64 are held")
    enough = POLICY.acquisition(needs(view(held, prices=PRICES, job=JOB, cooling=cooling), 50))
    assert enough.verdict is Choice.WAIT


def test_nothing_on_sale_says_why() -> None:
    assert POLICY.acquisition(view(job=JOB)).reason == "nothing can be bought: no market has a price"


def test_it_goes_on_where_nothing_is_cheaper_with_joining() -> None:
    held = spot(market=XLARGE, count=16)
    assert POLICY.renewal(view(held, prices=PRICES, job=JOB), held).verdict is Choice.RENEW
    cheaper = {**PRICES, XLARGE_B: "0.02"}
    leaves = POLICY.renewal(view(held, prices=cheaper, job=JOB), held)
    assert leaves.verdict is Choice.LAPSE
    assert str(XLARGE_B) in leaves.reason
    assert POLICY.renewal(view(held, prices={}, job=JOB), held).verdict is Choice.RENEW
    dear = POLICY.renewal(view(held, prices={XLARGE: "0.30"}, job=JOB), held)
    assert dear.verdict is Choice.LAPSE
    assert "more than on demand" in dear.reason


@PROPERTY
@given(seen=views())
def test_it_never_exceeds_the_cap_and_answers_twice_the_same(seen: MarketView) -> None:
    decision = POLICY.acquisition(seen)
    assert decision == POLICY.acquisition(seen)
    if decision.chosen is not None:
        assert decision.chosen.count * seen.types[decision.chosen.market.instance_type].vcpu <= seen.left_vcpus
        assert decision.chosen.delta_micros >= 0 or not seen.job.ceiling_on_demand


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_a_value_of_time_that_cannot_be_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="value_of_time_usd_per_h"):
        JobModel(value_of_time_usd_per_h=value)
