"""SQS that fails, as `EventQueue` says it."""

import pytest

from proteus_spot.bidding.market.spot_market import MarketError, MarketUnreachable
from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket
from proteus_spot.infra.ec2.sqs_events import SqsEvents
from proteus_spot.infra.settings import Settings
from tests.support.buckets import served_bucket
from tests.support.market_servers import credentials


def test_a_queue_that_is_not_there_or_does_not_answer_is_an_error_of_the_market(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    credentials(monkeypatch)
    market = Ec2SpotMarket(Settings(ec2_endpoint_url="http://127.0.0.1:9"), attempts=1)
    with pytest.raises(MarketUnreachable):
        SqsEvents("http://127.0.0.1:9/123456789012/none", lambda: market.connect("sqs")).receive()
    with served_bucket() as _, pytest.MonkeyPatch.context() as patch:
        import os

        endpoint = os.environ["AWS_ENDPOINT_URL_S3"]
        credentials(patch)
        market = Ec2SpotMarket(Settings(ec2_endpoint_url=endpoint))
        with pytest.raises(MarketError, match="NonExistentQueue"):
            SqsEvents(f"{endpoint}/123456789012/none", lambda: market.connect("sqs")).receive()
