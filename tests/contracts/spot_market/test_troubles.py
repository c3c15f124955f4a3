"""Calls that fail, machines that are stopped by hand, and other accounts."""

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from proteus_spot.bidding.market.model import EndCause, InstanceState
from proteus_spot.bidding.market.spot_market import (
    LaunchRefused,
    MarketError,
    MarketUnreachable,
    SpotMarket,
    TokenMismatch,
)
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from tests.support.account_market import AccountMarket
from tests.support.market_servers import (
    OTHER_ACCOUNT,
    OTHER_KEY,
    T0,
    TRACES,
    A,
    ManualClock,
    client,
    credentials,
    request,
    served,
    sold,
)


def test_no_capacity_refuses_until_it_is_over(case):
    case.sim.add_fault(Fault(FaultKind.CAPACITY, until_s=T0 + 100, market=A))
    with pytest.raises(LaunchRefused) as refused:
        case.market.launch(request("t"))
    assert refused.value.code == "InsufficientInstanceCapacity"
    assert case.market.describe() == []
    case.at(101)
    assert len(case.market.launch(request("t"))) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda market: market.launch(request("t")),
        lambda market: market.describe(),
        lambda market: market.terminate(["i-00000000000000000"]),
        lambda market: market.price_history([A], T0, T0),
        lambda market: market.newest_price_s(T0, T0),
    ],
    ids=["launch", "describe", "terminate", "price_history", "newest_price_s"],
)
def test_throttling_is_no_refusal_and_passes(case, call: Callable[[SpotMarket], object]):
    case.sim.add_fault(Fault(FaultKind.THROTTLE, until_s=T0 + 100))
    with pytest.raises(MarketUnreachable) as throttled:
        call(case.market)
    assert throttled.value.code == "RequestLimitExceeded"
    case.at(101)
    call(case.market)
    assert len(case.market.describe()) <= 1


def test_an_unannounced_kill_is_an_eviction_without_notice(case):
    (fact, other) = case.market.launch(request("t", count=2))
    case.sim.add_fault(Fault(FaultKind.KILL, at_s=T0 + 300, instance_id=fact.instance_id))
    case.at(299)
    assert [one.notice_at_s for one in case.market.describe()] == [None, None]
    case.at(400)
    killed, left = case.market.describe()
    assert (killed.instance_id, killed.ended_at_s, killed.end_cause) == (
        fact.instance_id,
        T0 + 300,
        EndCause.EVICTED,
    )
    assert left.instance_id == other.instance_id
    assert left.alive


def test_a_lost_answer_is_found_by_the_token(case):
    """EC2 may carry a call out and its answer be lost; boto3's own retries then repeat it with the same token."""
    times = 1 if case.market is case.sim else 2  # boto3 tries twice here
    case.sim.add_fault(Fault(FaultKind.LOSE_ANSWER, operation="launch", times=times))
    with pytest.raises(MarketUnreachable):
        case.market.launch(request("t"))
    assert len(case.sim.log()) == 1
    assert case.market.launch(request("t"))[0].instance_id == case.sim.log()[0].instance_id
    assert len(case.sim.log()) == 1


@pytest.mark.parametrize("code", ["RequestExpired", "ExpiredToken", "AuthFailure", "UnauthorizedOperation"])
def test_credentials_that_expire_refuse_every_call_until_they_are_renewed(case, code):
    """EC2's codes for credentials and permissions: they say nothing about the request."""
    case.sim.add_fault(Fault(FaultKind.DENIED, code=code, until_s=T0 + 100))
    for call in (lambda: case.market.launch(request("t")), case.market.describe):
        with pytest.raises(MarketError) as denied:
            call()
        assert denied.value.code == code
        assert not isinstance(denied.value, LaunchRefused | TokenMismatch)
    case.at(101)
    assert len(case.market.launch(request("t"))) == 1


def test_a_stopped_machine_is_not_terminated_and_starts_again(case):
    """EC2: a stopped instance stays, with its id and its disk, until it is started or terminated."""
    (fact,) = case.market.launch(request("t", bid=None))
    case.sim.add_fault(Fault(FaultKind.STOP, at_s=T0 + 100, instance_id=fact.instance_id))
    case.at(100)
    stopped = case.only()
    assert (stopped.state, stopped.alive, stopped.ended_at_s, stopped.end_cause) == (
        InstanceState.STOPPED,
        False,
        None,
        None,
    )
    case.sim.add_fault(Fault(FaultKind.START, at_s=T0 + 200, instance_id=fact.instance_id))
    case.at(200)
    assert (case.only().state, case.only().launched_at_s) == (InstanceState.RUNNING, T0 + 10)
    case.sim.add_fault(Fault(FaultKind.STOP, instance_id=fact.instance_id))
    case.market.terminate([fact.instance_id])
    assert (case.only().state, case.only().end_cause) == (InstanceState.TERMINATED, EndCause.USER)


def test_a_reboot_changes_nothing_that_the_market_shows(case):
    """EC2: a rebooted instance keeps its id, its address and its billing hour."""
    (fact,) = case.market.launch(request("t"))
    case.sim.add_fault(Fault(FaultKind.REBOOT, instance_id=fact.instance_id))
    assert case.only() == fact


@pytest.mark.parametrize("through", ["simulated", "boto3"])
def test_an_account_never_sees_or_ends_the_machines_of_another(through, tmp_path, monkeypatch):
    """EC2: tokens, instances and quotas are the account's."""
    clock = ManualClock(T0 + 10)
    sim = SimSpotMarket(TRACES, sold, clock.now_s)
    with ExitStack() as stack:
        if through == "simulated":
            own, other = sim, AccountMarket(sim, OTHER_ACCOUNT)
        else:
            credentials(monkeypatch)
            url = stack.enter_context(served(sim, clock, tmp_path / "machines")).url
            own = client(url)
            own.describe()  # it reads its credentials at the first call
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", OTHER_KEY)
            other = client(url)
        (mine,) = own.launch(request("t"))
        (theirs,) = other.launch(request("t"))
        assert mine.instance_id != theirs.instance_id
        assert [fact.instance_id for fact in own.describe()] == [mine.instance_id]
        assert [fact.instance_id for fact in other.describe()] == [theirs.instance_id]
        other.terminate([mine.instance_id])
        assert own.describe()[0].alive


def test_two_owners_in_one_account_see_each_other_where_nothing_tells_them_apart(case):
    """EC2 knows accounts, not owners: a describe that names no owner lists the machines of both."""
    case.market.launch(request("a", tags={"owner": "a", "job": "mf-1"}))
    case.market.launch(request("b", tags={"owner": "b", "job": "mf-1"}))
    assert len(case.market.describe([("job", "mf-1")])) == 2
    assert [fact.token for fact in case.market.describe([("owner", "a"), ("job", "mf-1")])] == ["a"]
