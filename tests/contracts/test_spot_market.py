"""The contract of every `SpotMarket`: the simulated one, and boto3 on the endpoint in front of it.

With availability traces the same holds while there is capacity, and further rules hold while there is none.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pytest

from bidding.evictions.fit_capacity import availability_trace
from bidding.market.failures import Failure
from bidding.market.model import EndCause, InstanceState, Market
from bidding.market.money import to_micros
from bidding.market.spot_market import (
    AccessRefused,
    BadRequest,
    LaunchRefused,
    MarketError,
    MarketUnreachable,
    SpotMarket,
    TokenMismatch,
)
from infra.ec2.spot_market import Ec2SpotMarket
from infra.settings import Settings
from infra.simulated_ec2.account_market import AccountMarket
from infra.simulated_ec2.faults import Fault, FaultKind
from infra.simulated_ec2.held_instances import ACCOUNT
from infra.simulated_ec2.market import SimSpotMarket
from infra.simulated_ec2.rules.behaviour import Ec2Behaviour
from tests.support.market_servers import (
    OTHER_ACCOUNT,
    OTHER_KEY,
    T0,
    TRACES,
    A,
    B,
    ManualClock,
    client,
    credentials,
    request,
    served,
    sold,
)


@dataclass
class MarketCase:
    market: SpotMarket
    sim: SimSpotMarket
    clock: ManualClock

    def at(self, seconds: float) -> None:
        """Move time to this number of seconds after the start of the traces."""
        self.clock.at_s = T0 + seconds

    def only(self):
        (fact,) = self.market.describe()
        return fact


#: Seconds after T0 at which no spot machines of A are available.
DOWN_AT = range(60_000, 60_600)
SCARCE = {A: availability_trace([1] * 100 + [0] + [1] * 100, 600, T0)}


@pytest.fixture(params=["simulated", "boto3", "scarce"])
def case(request, tmp_path, monkeypatch):
    clock = ManualClock(T0 + 10)
    scarce = SCARCE if request.param == "scarce" else {}
    sim = SimSpotMarket(TRACES, sold, clock.now_s, notice_s=120, availability=scarce)
    if request.param != "boto3":
        yield MarketCase(sim, sim, clock)
        return
    credentials(monkeypatch)
    with served(sim, clock, tmp_path / "machines") as endpoint:
        yield MarketCase(client(endpoint.url, attempts=2), sim, clock)


@pytest.fixture(params=["simulated", "boto3"])
def scarce(request, tmp_path, monkeypatch):
    """A market without spot machines of A for ten minutes, whatever is bid; time is a while before that."""
    clock = ManualClock(T0 + DOWN_AT.start - 1000)
    sim = SimSpotMarket(TRACES, sold, clock.now_s, notice_s=120, availability=SCARCE)
    if request.param == "simulated":
        yield MarketCase(sim, sim, clock)
        return
    credentials(monkeypatch)
    with served(sim, clock, tmp_path / "machines") as endpoint:
        yield MarketCase(client(endpoint.url, attempts=2), sim, clock)


@pytest.fixture(params=["simulated", "boto3"])
def behaving(request, tmp_path, monkeypatch):
    """Return what opens a market of another behaviour."""

    @contextmanager
    def market(**behaviour) -> Iterator[MarketCase]:
        clock = ManualClock(T0 + 10)
        sim = SimSpotMarket(TRACES, sold, clock.now_s, notice_s=120, behaviour=Ec2Behaviour(**behaviour))
        if request.param == "simulated":
            yield MarketCase(sim, sim, clock)
            return
        credentials(monkeypatch)
        with served(sim, clock, tmp_path / "machines") as endpoint:
            yield MarketCase(client(endpoint.url, attempts=2), sim, clock)

    return market


# Grants and refusals


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


# Freezing and trying


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


# Tokens


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


# Describe and terminate


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


def test_describe_goes_on_after_a_full_page(case):
    case.market.launch(request("t", count=1005))
    assert len({fact.instance_id for fact in case.market.describe()}) == 1005


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


# Eviction


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


# Capacity


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


# Marks of single machines, and launches that die


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


# Reads that lag behind


def test_a_read_may_not_show_an_instance_yet(behaving):
    """EC2's reads are eventually consistent: a launch is not listed at once."""
    with behaving(instance_lag_s=(30, 30)) as case:
        (fact,) = case.market.launch(request("t"))
        assert case.market.describe() == []
        assert case.market.launch(request("t"))[0].instance_id == fact.instance_id, "the token knows it"
        case.market.terminate([fact.instance_id])  # EC2: InvalidInstanceID.NotFound, which is no error here
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


# What is forgotten


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


# Quotas


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


# Prices


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


# Troubles


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


# Stops and starts by hand


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


# Other accounts, and other owners in one account


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
