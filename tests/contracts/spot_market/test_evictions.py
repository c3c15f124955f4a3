"""The market takes machines: by price, for lack of capacity, and single ones of a purchase."""

import pytest

from proteus_spot.bidding.market.model import EndCause, InstanceState
from proteus_spot.bidding.market.spot_market import LaunchRefused
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from tests.support.market_cases import DOWN_AT
from tests.support.market_servers import T0, B, request


def test_the_market_takes_an_instance_at_the_crossing(case):
    case.market.launch(request("t", bid="0.049999"))
    case.at(999.9)
    assert case.only().alive
    case.at(1000)
    taken = case.only()
    assert taken.state is InstanceState.TERMINATED
    assert (taken.ended_at_s, taken.end_cause) == (T0 + 1000, EndCause.EVICTED)


def test_a_bid_that_equals_the_new_price_holds(case):
    case.market.launch(request("t", bid="0.05"))
    case.at(5000)
    assert case.only().alive


def test_a_jump_over_the_crossing_records_its_second(case):
    case.market.launch(request("t"))
    case.at(50_000)
    assert case.only().ended_at_s == T0 + 1000
    case.market.terminate([case.only().instance_id])
    assert case.only().end_cause is EndCause.EVICTED


def test_an_eviction_wins_over_a_termination_in_the_same_second(case):
    (fact,) = case.market.launch(request("t"))
    case.at(1000)
    case.market.terminate([fact.instance_id])
    assert (case.only().ended_at_s, case.only().end_cause) == (T0 + 1000, EndCause.EVICTED)


def test_the_notice_comes_its_time_before(case):
    case.market.launch(request("t"))
    case.at(879.9)
    assert case.only().notice_at_s is None
    case.at(880)
    assert case.only().notice_at_s == T0 + 1000
    assert case.only().alive


@pytest.mark.parametrize("bid", ["0.02", "0.03", "50"])
def test_where_the_capacity_ends_every_bid_is_taken_in_that_second_and_noticed_before(scarce, bid):
    scarce.market.launch(request("t", bid=bid))
    scarce.at(DOWN_AT.start - 120.1)
    assert scarce.only().notice_at_s is None
    scarce.at(DOWN_AT.start - 120)
    assert scarce.only().notice_at_s == T0 + DOWN_AT.start
    scarce.at(DOWN_AT.start - 0.1)
    assert scarce.only().alive
    scarce.at(DOWN_AT.start)
    assert (scarce.only().ended_at_s, scarce.only().end_cause) == (T0 + DOWN_AT.start, EndCause.EVICTED)


def test_without_capacity_nothing_is_sold_under_any_bid_until_there_is_some(scarce):
    for second in (DOWN_AT.start, DOWN_AT.stop - 0.1):
        scarce.at(second)
        with pytest.raises(LaunchRefused) as refused:
            scarce.market.launch(request("t", bid="50"))
        assert refused.value.code == "InsufficientInstanceCapacity"
    assert scarce.market.describe() == []
    scarce.at(DOWN_AT.stop)
    assert len(scarce.market.launch(request("t", bid="0.02"))) == 1


def test_scarce_capacity_is_that_of_one_market_and_of_spot_machines(scarce):
    scarce.market.launch(request("b", market=B))
    scarce.market.launch(request("on-demand", bid=None))
    scarce.at(DOWN_AT.start + 10)
    scarce.market.launch(request("more", bid=None))
    scarce.market.launch(request("b-more", market=B))
    scarce.at(DOWN_AT.stop + 100_000)
    assert all(fact.alive for fact in scarce.market.describe())


def test_with_capacity_a_price_that_passes_the_bid_still_takes(scarce):
    scarce.clock.at_s = T0 + 60_700  # after it
    scarce.market.launch(request("t", bid="0.02"))
    scarce.at(200_000)
    assert scarce.only().alive, "at the price, with capacity"
    with pytest.raises(LaunchRefused) as refused:
        scarce.market.launch(request("below", bid="0.019999"))
    assert refused.value.code == "SpotMaxPriceTooLow"


def test_a_mark_is_of_one_machine_and_so_is_its_eviction(case):
    """EC2 marks and takes single machines of a purchase, each by itself; a spot request has one machine."""
    first, second = case.market.launch(request("t", count=2, bid="0.05"))
    case.sim.add_fault(Fault(FaultKind.MARK, at_s=T0 + 100, instance_id=first.instance_id))
    case.at(99)
    assert [fact.notice_at_s for fact in case.market.describe()] == [None, None]
    case.at(100)
    assert [fact.notice_at_s for fact in case.market.describe()] == [T0 + 220, None]
    case.at(500)
    taken, left = case.market.describe()
    assert (taken.instance_id, taken.ended_at_s, taken.end_cause) == (
        first.instance_id,
        T0 + 220,
        EndCause.EVICTED,
    )
    assert taken.end_reason == "Server.SpotInstanceTermination"
    assert (left.instance_id, left.alive, left.notice_at_s) == (second.instance_id, True, None)


def test_a_machine_may_outlive_its_notice(case):
    """EC2's notice is best effort: it says that the market will take the machine, which it may not do."""
    (fact,) = case.market.launch(request("t", bid="0.05"))
    case.sim.add_fault(Fault(FaultKind.MARK, at_s=T0 + 100, instance_id=fact.instance_id, spares=True))
    case.at(100)
    assert case.only().notice_at_s == T0 + 220
    case.at(221)
    assert (case.only().alive, case.only().notice_at_s) == (True, None)


@pytest.mark.parametrize(
    "reason", ["Server.InsufficientInstanceCapacity", "Client.VolumeLimitExceeded", "Client.InternalError"]
)
@pytest.mark.parametrize("bid", [None, "0.03"])
def test_a_launch_may_be_accepted_and_die_for_a_reason_that_is_named(case, reason, bid):
    """EC2 accepts a launch and ends it from pending; the reason is in StateReason (user guide: "Instance terminates
    immediately")."""
    case.sim.add_fault(Fault(FaultKind.DIE, code=reason, delay_s=20, times=1))
    (fact,) = case.market.launch(request("t", bid=bid))
    assert (fact.state, fact.end_reason) == (InstanceState.PENDING, "")
    case.at(40)
    dead = case.only()
    assert (dead.state, dead.end_cause, dead.end_reason) == (InstanceState.TERMINATED, EndCause.FAILED, reason)
    assert dead.ended_at_s in (T0 + 30, None), "EC2 dates the end of a spot machine, in its request"
    assert case.market.launch(request("u", bid=bid))[0].alive, "the next one runs"
