"""The same conversation with another implementation of EC2's API: moto's, in this process.

It knows no prices, placement scores, quotas or client tokens; of a purchase that accepts fewer it sells the fewest.
"""

from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from proteus_spot.bidding.market.model import EndCause, InstanceState
from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket
from proteus_spot.infra.settings import Settings
from tests.support.market_servers import A, credentials, request

TAGS = {"proteus:owner": "me"}


@pytest.fixture
def market(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2SpotMarket]:
    credentials(monkeypatch)
    with mock_aws():
        image = boto3.client("ec2", "us-east-1").describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        yield Ec2SpotMarket(Settings(image_id=image, root_volume_gb=20))


def test_a_purchase_without_a_bid_that_accepts_fewer(market: Ec2SpotMarket) -> None:
    todays = request("t", count=3, bid="0.105", tags=TAGS, at_least=1, no_limit=True)
    sent = dict(market.freeze(todays).parameters or {})
    assert (sent["MinCount"], sent["MaxCount"]) == (1, 3)
    assert "MaxPrice" not in sent["InstanceMarketOptions"]["SpotOptions"]
    bought = market.launch(todays)
    assert 1 <= len(bought) <= 3
    assert {(fact.market, fact.token) for fact in bought} == {(A, "t")}
    assert len(market.describe(TAGS.items())) == len(bought)


def test_on_demand_machines_are_bought_listed_and_ended(market: Ec2SpotMarket) -> None:
    bought = market.launch(request("t", count=2, bid=None, tags=TAGS))
    names = [fact.instance_id for fact in bought]
    assert len(names) == 2
    assert all(fact.alive for fact in market.describe(instance_ids=names))
    market.terminate([*names, "i-0123456789abcdef0"])  # one that is unknown is no error
    ended = market.describe(TAGS.items())
    assert {fact.state for fact in ended} == {InstanceState.TERMINATED}
    assert {fact.end_cause for fact in ended} == {EndCause.USER}


def test_a_dry_run_is_no_purchase(market: Ec2SpotMarket) -> None:
    market.dry_run(request("t", bid=None, tags=TAGS))
    assert market.describe(TAGS.items()) == []


def test_an_account_is_told(market: Ec2SpotMarket) -> None:
    assert market.account_id() == "123456789012"
