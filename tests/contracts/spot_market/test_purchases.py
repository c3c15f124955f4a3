"""Grants and refusals, frozen requests and client tokens."""

import json
from dataclasses import replace

import pytest

from proteus_spot.bidding.market.failures import Failure
from proteus_spot.bidding.market.model import EndCause, Market
from proteus_spot.bidding.market.money import to_micros
from proteus_spot.bidding.market.spot_market import AccessRefused, BadRequest, LaunchRefused, TokenMismatch
from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.held_instances import ACCOUNT
from tests.support.market_servers import T0, A, B, request


def test_a_bid_above_the_price_is_granted_in_full(case):
    case.at(10.7)
    facts = case.market.launch(request("t", count=3, bid="0.03", tags={"job": "j"}))
    assert len({fact.instance_id for fact in facts}) == 3
    for fact in facts:
        assert fact.market == A
        assert fact.launched_at_s == T0 + 10  # a whole second
        assert fact.bid_micros == to_micros("0.03")
        assert fact.token == "t"
        assert fact.tags == {"job": "j"}
        assert fact.alive
        assert fact.notice_at_s is None
        assert fact.ended_at_s is None
        assert fact.end_cause is None
    assert case.market.describe() == facts


def test_a_bid_equal_to_the_price_is_granted_and_one_below_refused(case):
    assert len(case.market.launch(request("equal", bid="0.02"))) == 1
    with pytest.raises(LaunchRefused) as refused:
        case.market.launch(request("below", bid="0.019999"))
    assert refused.value.code == "SpotMaxPriceTooLow"
    assert len(case.market.describe()) == 1


def test_a_price_change_counts_from_its_very_second(case):
    case.at(999.9)
    case.market.launch(request("before", bid="0.02"))
    case.at(1000)
    with pytest.raises(LaunchRefused):
        case.market.launch(request("at", bid="0.02"))


def test_no_price_yet_no_sale(case):
    with pytest.raises(LaunchRefused) as refused:
        case.market.launch(request("t", market=B))
    assert refused.value.code == "InsufficientInstanceCapacity"


def test_on_demand_is_sold_at_any_price_and_never_taken(case):
    case.at(1500)
    (fact,) = case.market.launch(request("t", bid=None))
    assert fact.bid_micros is None
    case.at(100_000)
    assert case.only().alive


@pytest.mark.parametrize(
    "wrong",
    [
        replace(request("t"), market=Market("c9.huge", "us-east-1a")),
        replace(request("t"), market=Market("c4.large", "us-east-1z")),
        replace(request("t"), count=0),
        replace(request("t"), bid_micros=1000),
        replace(request("t"), token="x" * 65),
        replace(request("t"), user_data="#!/bin/sh\n" + "x" * 16384),
    ],
    ids=["type", "zone", "count", "bid", "token", "user-data"],
)
def test_a_wrong_request_is_refused_and_buys_nothing(case, wrong):
    with pytest.raises(BadRequest):
        case.market.launch(wrong)
    assert case.market.describe() == []


def test_a_type_that_its_zone_does_not_sell_is_refused_so_that_others_are_tried(case):
    with pytest.raises(LaunchRefused) as refused:
        case.market.launch(request("t", market=Market("c4.xlarge", "us-east-1a")))
    assert (refused.value.code, refused.value.failure) == ("Unsupported", Failure.CAPACITY)
    assert case.market.describe() == []


def test_a_frozen_request_is_the_same_purchase_under_other_settings(case, monkeypatch):
    """`freeze` is the adapter's own; EC2 compares every parameter of a token (IdempotentParameterMismatch)."""
    frozen = case.market.freeze(request("t", tags={"job": "j"}, user_data="#!/bin/sh\nexec sleep 1000\n"))
    first = case.market.launch(frozen)
    if isinstance(case.market, Ec2SpotMarket):
        assert json.loads(json.dumps(frozen.parameters)) == frozen.parameters, "it can be stored"
        other = Settings(image_id="ami-9", instance_profile="other", root_volume_gb=9)
        case.market._settings = case.market._settings.model_copy(update=other.model_dump(exclude_unset=True))
        with pytest.raises(TokenMismatch):
            case.market.launch(replace(frozen, parameters=None))
    assert case.market.launch(frozen) == first
    assert len(case.sim.log()) == 1


def test_a_dry_run_checks_and_buys_nothing(case):
    case.market.dry_run(request("t"))
    case.sim.add_fault(Fault(FaultKind.DENIED, operation="launch", times=1, code="UnauthorizedOperation"))
    with pytest.raises(AccessRefused) as refused:
        case.market.dry_run(request("t"))
    assert (refused.value.code, refused.value.failure) == ("UnauthorizedOperation", Failure.AUTH)
    assert case.sim.log() == []


def test_the_account_is_that_of_the_credentials(case):
    assert case.market.account_id() == ACCOUNT


def test_a_repeated_purchase_is_the_same_one_while_one_of_its_machines_lives(case):
    """EC2 returns what the token bought, in its present state (since 2010)."""
    first = case.market.launch(request("t", count=2))
    assert case.market.launch(request("t", count=2)) == first
    case.market.terminate([first[0].instance_id])
    case.at(100)
    again = case.market.launch(request("t", count=2))
    assert [fact.instance_id for fact in again] == [fact.instance_id for fact in first]
    assert [fact.end_cause for fact in again] == [EndCause.USER, None]
    assert [fact.ended_at_s for fact in again] == [T0 + 10, None]
    assert len(case.market.describe()) == 2


def test_the_token_of_machines_that_have_all_ended_is_refused_and_buys_nothing(case):
    """EC2 answers IdempotentInstanceTerminated since January 2025; until then it returned the terminated instances."""
    first = case.market.launch(request("t", count=2))
    case.market.terminate([first[0].instance_id])
    case.at(2000)  # the other was evicted
    with pytest.raises(TokenMismatch) as used:
        case.market.launch(request("t", count=2, bid="0.03"))
    assert used.value.code == "IdempotentInstanceTerminated"
    assert len(case.market.describe()) == 2


@pytest.mark.parametrize("other", [{"count": 2}, {"bid": "0.031"}, {"bid": None}, {"tags": {"a": "b"}}])
def test_a_token_with_other_parameters_is_a_mismatch(case, other):
    case.market.launch(request("t"))
    with pytest.raises(TokenMismatch) as mismatch:
        case.market.launch(request("t", **other))
    assert mismatch.value.code == "IdempotentParameterMismatch"
    assert len(case.market.describe()) == 1


@pytest.mark.parametrize("other", [{"user_data": "#!/bin/sh\nexit\n"}, {"tags": {"expires": "2"}}])
def test_user_data_and_tags_are_parameters_too(case, other):
    """EC2 compares every parameter of the request, tags and user-data among them."""
    case.market.launch(request("t", tags={"expires": "1"}))
    with pytest.raises(TokenMismatch) as mismatch:
        case.market.launch(request("t", **{"tags": {"expires": "1"}, **other}))
    assert mismatch.value.code == "IdempotentParameterMismatch"


def test_a_token_is_known_in_its_zone_alone(case):
    """EC2's tokens are zonal where the request names a zone or a subnet."""
    case.at(600)
    (a,) = case.market.launch(request("t", market=A))
    (b,) = case.market.launch(request("t", market=B))
    assert a.instance_id != b.instance_id


def test_a_refused_purchase_leaves_its_token_free(case):
    with pytest.raises(LaunchRefused):
        case.market.launch(request("t", bid="0.01"))
    assert len(case.market.launch(request("t", bid="0.03"))) == 1


@pytest.mark.parametrize(
    ("bid", "quota", "code"),
    [("0.03", "L-34B43A08", "MaxSpotInstanceCountExceeded"), (None, "L-1216C47A", "VcpuLimitExceeded")],
)
def test_a_quota_counts_the_vcpus_of_what_lives(behaving, bid, quota, code):
    """EC2's quotas are vCPUs by class of families since 2019 (on demand) and 2020 (spot), each tier by itself."""
    with behaving(quotas={quota: 5}) as case:
        first = case.market.launch(request("1", count=2, bid=bid))
        with pytest.raises(LaunchRefused) as refused:
            case.market.launch(request("2", bid=bid))
        assert refused.value.code == code
        case.market.launch(request("other tier", bid=None if bid else "0.03"))
        case.market.terminate([first[0].instance_id])
        assert len(case.market.launch(request("2", bid=bid))) == 1
