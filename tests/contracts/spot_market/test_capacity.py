"""Today's market: as many machines as there are, several lost at once, no bid, placement scores."""

import pytest

from proteus_spot.bidding.market.model import EndCause
from proteus_spot.bidding.market.spot_market import LaunchRefused
from tests.support.market_servers import T0, A, B, request


def no_limit(token, count, **more):
    """A purchase of today: under no bid, which on EC2 is the on-demand price, and of as many as there are."""
    return request(token, count=count, bid="0.105", at_least=1, no_limit=True, **more)


def test_a_purchase_that_accepts_fewer_gets_what_is_there(counted):
    assert len(counted.market.launch(no_limit("t", 5))) == 3
    with pytest.raises(LaunchRefused) as refused:
        counted.market.launch(no_limit("u", 1))
    assert refused.value.code == "InsufficientInstanceCapacity"
    assert len(counted.market.launch(no_limit("v", 5, market=B))) == 5


def test_one_that_wants_all_gets_none(counted):
    with pytest.raises(LaunchRefused):
        counted.market.launch(request("t", count=4, bid="0.105"))
    assert len(counted.market.launch(request("t", count=3, bid="0.105"))) == 3


def test_a_repeated_purchase_is_the_same_machines(counted):
    first = counted.market.launch(no_limit("t", 5))
    again = counted.market.launch(no_limit("t", 5))
    assert [fact.instance_id for fact in again] == [fact.instance_id for fact in first]


def test_a_machine_that_is_let_go_is_there_for_the_next(counted):
    first, *_ = counted.market.launch(no_limit("t", 3))
    counted.market.terminate([first.instance_id])
    assert len(counted.market.launch(no_limit("u", 3))) == 1


def test_under_no_bid_the_limit_is_the_on_demand_price(counted):
    counted.market.launch(no_limit("t", 1))
    assert counted.only().bid_micros == 105_000


def test_where_there_are_fewer_than_were_sold_the_market_takes_the_rest_at_once(counted):
    counted.market.launch(no_limit("t", 3))
    counted.at(900 - 120.1)
    assert all(fact.notice_at_s is None for fact in counted.market.describe())
    counted.at(900 - 120)
    assert sorted(fact.notice_at_s or 0 for fact in counted.market.describe()) == [0, T0 + 900, T0 + 900]
    counted.at(900)
    ends = [fact.ended_at_s for fact in counted.market.describe() if fact.end_cause is EndCause.EVICTED]
    assert ends == [T0 + 900] * 2
    counted.at(1800)
    assert len(counted.market.launch(no_limit("u", 9))) == 4


def test_machines_of_several_purchases_are_taken_alike_and_on_demand_ones_are_not(counted):
    counted.market.launch(no_limit("t", 2))
    counted.market.launch(no_limit("u", 1))
    counted.market.launch(request("d", bid=None, count=2))
    counted.at(10_000)
    living = [fact for fact in counted.market.describe() if fact.alive]
    assert sorted(fact.bid_micros is None for fact in living) == [False, True, True]


def test_a_machine_bought_within_the_notice_is_noticed_at_its_launch(counted):
    counted.at(850)
    assert len(counted.market.launch(no_limit("t", 3))) == 3
    assert sum(fact.notice_at_s is not None for fact in counted.market.describe()) == 2
    counted.at(900)
    assert sum(fact.alive for fact in counted.market.describe()) == 1


def test_a_placement_score_says_how_likely_so_many_are_to_be_had(counted):
    assert counted.market.placement_scores(["c4.large"], 3) == {A.zone: 10, B.zone: 10}
    assert counted.market.placement_scores(["c4.large"], 9) == {A.zone: 4, B.zone: 10}
    counted.market.launch(no_limit("t", 3))
    assert counted.market.placement_scores(["c4.large"], 3) == {A.zone: 1, B.zone: 10}
    assert counted.market.placement_scores(["x9.huge"], 3) == {}
