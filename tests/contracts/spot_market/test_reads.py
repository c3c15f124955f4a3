"""Describe and terminate, reads that lag behind, what is no longer listed, and prices."""

import pytest

from proteus_spot.bidding.market.model import EndCause, InstanceState, Market
from proteus_spot.bidding.market.money import to_micros
from proteus_spot.bidding.market.spot_market import TokenMismatch
from proteus_spot.infra.simulated_ec2.rules.behaviour import Ec2Behaviour
from tests.support.market_servers import T0, A, B, request


def test_describe_finds_by_all_tags(case):
    case.market.launch(request("1", tags={"job": "j", "order": "1"}))
    case.market.launch(request("2", tags={"job": "j", "order": "2"}))
    case.market.launch(request("3", tags={"job": "*"}))

    def tokens(*tags):
        return [fact.token for fact in case.market.describe(tags)]

    assert tokens() == ["1", "2", "3"]
    assert tokens(("job", "j")) == ["1", "2"]
    assert tokens(("job", "j"), ("order", "2")) == ["2"]
    assert tokens(("job", "k")) == []
    assert tokens(("nothing", "j")) == []


def test_describe_finds_by_id_and_by_client_token_whatever_the_tags(case):
    (one,) = case.market.launch(request("1", tags={"job": "j"}))
    case.market.launch(request("2", tags={"job": "k"}))
    case.market.launch(request("3"))
    case.market.launch(request("*", tags={"job": "k"}))
    found = case.market.describe([("job", "j")], [one.instance_id, "i-0"], ["3", "4"])
    assert sorted(fact.token for fact in found) == ["1", "3"]
    assert [fact.token for fact in case.market.describe([("job", "-")], tokens=["*"])] == ["*"]
    assert [fact.token for fact in case.market.describe([("job", "-")], [one.instance_id])] == ["1"]


def test_a_young_machine_whose_bid_is_not_reported_yet_is_marked_and_hides_no_other(case):
    """EC2's reads lag its writes, and those of spot requests more ("Eventual consistency" in its API reference)."""
    case.sim.behaviour = Ec2Behaviour(request_lag_s=(60, 60))
    (old,) = case.market.launch(request("old"))
    (red,) = case.market.launch(request("red", bid=None))
    case.at(100)
    (young,) = case.market.launch(request("young", tags={"order": "1"}))
    assert (young.complete, young.bid_micros) == (True, to_micros("0.03")), "the answer to a purchase holds the bid"
    facts = {fact.instance_id: fact for fact in case.market.describe()}
    assert [facts[one.instance_id].complete for one in (old, red, young)] == [True, True, False]
    incomplete = facts[young.instance_id]
    assert (incomplete.bid_micros, incomplete.notice_at_s, incomplete.alive) == (None, None, True)
    assert incomplete.tags == {"order": "1"}
    case.at(160)
    assert {fact.instance_id: fact for fact in case.market.describe()}[young.instance_id].bid_micros == young.bid_micros


def test_a_wildcard_in_a_tag_is_just_a_character(case):
    case.market.launch(request("1", tags={"job": "j"}))
    case.market.launch(request("2", tags={"job": "*"}))
    assert [fact.token for fact in case.market.describe([("job", "*")])] == ["2"]


def test_describe_goes_on_after_a_full_page(case, monkeypatch):
    monkeypatch.setattr(
        "proteus_spot.infra.ec2.ec2_spot_market._PAGE", 20
    )  # EC2's is 1000, which takes long to write and to read
    monkeypatch.setattr("proteus_spot.infra.simulated_ec2.wire_protocol._PAGE", 20)
    case.market.launch(request("t", count=45))
    assert len({fact.instance_id for fact in case.market.describe()}) == 45


def test_terminate_ends_in_that_second_once(case):
    (fact,) = case.market.launch(request("t"))
    case.at(100.9)
    case.market.terminate([fact.instance_id])
    case.at(200)
    case.market.terminate([fact.instance_id])
    gone = case.only()
    assert gone.state is InstanceState.TERMINATED
    assert (gone.ended_at_s, gone.end_cause) == (T0 + 100, EndCause.USER)


def test_terminate_on_demand_tells_the_second_too(case):
    (fact,) = case.market.launch(request("t", bid=None))
    case.at(100)
    case.market.terminate([fact.instance_id])
    assert (case.only().ended_at_s, case.only().end_cause) == (T0 + 100, EndCause.USER)


@pytest.mark.parametrize("unknown", [["i-00000000000000000"], ["i-00000000000000000", "i-11111111111111111"], ["what"]])
def test_terminate_tolerates_the_unknown_and_ends_the_rest(case, unknown):
    (fact,) = case.market.launch(request("t"))
    case.market.terminate([*unknown, fact.instance_id])
    assert case.only().end_cause is EndCause.USER
    case.market.terminate(unknown)
    case.market.terminate([])


def test_a_read_may_not_show_an_instance_yet(behaving):
    """EC2's reads are eventually consistent: a launch is not listed at once."""
    with behaving(instance_lag_s=(30, 30)) as case:
        (fact,) = case.market.launch(request("t"))
        assert case.market.describe() == []
        assert case.market.launch(request("t"))[0].instance_id == fact.instance_id, "the token knows it"
        case.market.terminate([fact.instance_id])  # EC2: InvalidInstanceID.NotFound, which is not an error here
        case.at(39)
        assert case.market.describe() == []
        case.at(40)
        assert case.only().alive


def test_a_read_may_show_an_instance_alive_that_has_ended(behaving):
    """EC2's reads are eventually consistent: an end is not seen at once."""
    with behaving(instance_lag_s=(30, 30)) as case:
        (fact,) = case.market.launch(request("t", bid=None))
        case.at(100)
        case.market.terminate([fact.instance_id])
        case.at(129)
        assert case.only().alive
        case.at(130)
        assert (case.only().alive, case.only().ended_at_s) == (False, T0 + 100)


def test_each_read_has_an_age_of_its_own(behaving):
    """EC2 may list an instance, and at the next read not: reads are answered by different copies of its records."""
    with behaving(instance_lag_s=(0, 60)) as case:
        case.market.launch(request("t", bid=None))
        case.at(40)
        assert {len(case.market.describe()) for _ in range(20)} == {0, 1}
        case.at(71)
        assert {len(case.market.describe()) for _ in range(20)} == {1}


def test_an_ended_instance_is_described_for_an_hour(behaving):
    """EC2 lists a terminated instance for about an hour."""
    with behaving(remember_s=3600) as case:
        (fact,) = case.market.launch(request("t", bid=None))
        case.market.terminate([fact.instance_id])
        case.at(10 + 3600)
        assert len(case.market.describe()) == 1
        case.at(10 + 3601)
        assert case.market.describe() == []
        with pytest.raises(TokenMismatch) as used:
            case.market.launch(request("t", bid=None))
        assert used.value.code == "IdempotentInstanceTerminated", "the token is remembered for longer"


def test_a_token_is_forgotten_at_last(behaving):
    """EC2 remembered a token for at least 24 hours after the end of its instances (2013); today it names no time."""
    with behaving(token_memory_s=86_400) as case:
        (fact,) = case.market.launch(request("t", bid=None))
        case.market.terminate([fact.instance_id])
        case.at(10 + 86_401)
        assert case.market.launch(request("t", bid=None))[0].instance_id != fact.instance_id


def test_price_history_has_the_price_that_held_at_the_start(case):
    case.at(5000)
    points = case.market.price_history([A, B], T0 + 600, T0 + 4000)
    assert [(point.market, point.at_s - T0, point.price_micros) for point in points] == [
        (A, 0, 20_000),
        (B, 500, 30_000),
        (A, 1000, 50_000),
        (A, 4000, 20_000),
    ]


def test_price_history_begins_with_a_change_at_the_start_itself(case):
    case.at(5000)
    points = case.market.price_history([A], T0 + 1000, T0 + 3999)
    assert [(point.at_s - T0, point.price_micros) for point in points] == [(1000, 50_000)]


def test_price_history_knows_no_future(case):
    case.at(999.9)
    assert [point.at_s for point in case.market.price_history([A, B], T0, T0 + 10_000)] == [T0, T0 + 500]
    case.at(1000)
    assert T0 + 1000 in [point.at_s for point in case.market.price_history([A], T0, T0 + 10_000)]


def test_price_history_is_only_of_the_markets_asked_for(case):
    case.at(5000)
    assert case.market.price_history([Market("c4.large", "us-east-1c")], T0, T0 + 5000) == []
    assert {point.market for point in case.market.price_history([B], T0, T0 + 5000)} == {B}
    assert case.market.price_history([], T0, T0 + 5000) == []


def test_the_newest_price_is_that_of_any_market_and_never_of_the_future(case):
    case.at(999.9)
    assert case.market.newest_price_s(T0, T0 + 5000) == T0 + 500
    case.at(5000)
    assert case.market.newest_price_s(T0, T0 + 5000) == T0 + 4000
    assert case.market.newest_price_s(T0, T0 + 700) == T0 + 500
    assert case.market.newest_price_s(T0 + 4000, T0 + 5000) is None
