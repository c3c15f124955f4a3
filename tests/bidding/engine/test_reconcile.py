"""Facts against the engine, in every combination; and whatever it finds, it finds once."""

from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from bidding.economics.job_model import JobModel
from bidding.engine.allocations import AllocationState, MachineState
from bidding.engine.engine import BidEngine
from bidding.engine.events import (
    AllocationGranted,
    AllocationRefused,
    BidEvent,
    JobClosed,
    MachineGone,
    MachineNoticed,
    MachineSeen,
    MachinesUnlisted,
    NoticeSeen,
)
from bidding.engine.orders import Acquire, Lapse
from bidding.engine.reconcile import ABANDONED, NOTICE_GRACE_S, allocation_of, by_order, reconcile, unlisted
from bidding.market.model import HOUR_S, ORDER_TAG, Allocation, EndCause, InstanceFact, InstanceState, Market, Tier
from bidding.policies.base import Choice, Decision
from tests.support.markets import (
    PROPERTY,
    START_S,
    XLARGE,
    fact,
    gone,
    granted,
    opened,
    reliable,
    spot,
    tick,
)

NOW_S = START_S + 1800
STANDINGS = (None, *AllocationState)


def engine_with(standing: AllocationState | None, name: str = "a") -> BidEngine:
    """Return an engine in which allocation `name` stands so; None: it was never heard of."""
    engine = BidEngine()
    engine.handle(opened(JobModel(max_spot_vcpus=0)))
    engine.handle(granted(reliable()))
    if standing is None:
        return engine
    engine.handle(granted(spot(name, count=1, bid="9")))
    match standing:
        case AllocationState.NOTICED:
            engine.handle(NoticeSeen(START_S + 60, name, START_S + 180))
        case AllocationState.LAPSING:
            engine.handle(tick(START_S + HOUR_S - 60, {XLARGE: "3"}))
        case AllocationState.GONE:
            engine.handle(gone(name, START_S + 60))
    assert engine.positions[name].standing is standing
    return engine


RED = fact("red", 0, bid=None)
REDS = (RED, fact("red", 1, bid=None))
LIVES = fact("a")
NOTICED = fact("a", notice_at_s=NOW_S + 120)
EVICTED = fact("a", ended_at_s=NOW_S - 5, cause=EndCause.EVICTED)
LET_GO = fact("a", ended_at_s=NOW_S - 5, cause=EndCause.USER)
GRANT = AllocationGranted(NOW_S, "a", spot("a", count=1), ("i-a-0",))
SEEN = MachineSeen(NOW_S, "a", "i-a-0")
NOTICE = NoticeSeen(NOW_S, "a", NOW_S + 120)
TAKEN, ENDED = (gone("a", NOW_S - 5, cause) for cause in (EndCause.EVICTED, EndCause.USER))

#: What a fact means for an allocation that stands so.
TABLE: list[tuple[AllocationState | None, InstanceFact, list[BidEvent]]] = [
    (None, LIVES, [GRANT]),
    (None, NOTICED, [GRANT, NOTICE]),
    (None, EVICTED, [GRANT, TAKEN]),
    (None, LET_GO, [GRANT, ENDED]),
    (AllocationState.HELD, LIVES, []),
    (AllocationState.HELD, NOTICED, [NOTICE]),
    (AllocationState.HELD, EVICTED, [TAKEN]),
    (AllocationState.HELD, LET_GO, [ENDED]),
    (AllocationState.NOTICED, LIVES, [SEEN]),  # it was to be taken long ago
    (AllocationState.NOTICED, NOTICED, [MachineNoticed(NOW_S, "a", "i-a-0", NOW_S + 120)]),  # another notice
    (AllocationState.NOTICED, EVICTED, [TAKEN]),
    (AllocationState.NOTICED, LET_GO, [ENDED]),
    (AllocationState.LAPSING, LIVES, []),
    (AllocationState.LAPSING, NOTICED, [NOTICE]),
    (AllocationState.LAPSING, EVICTED, [TAKEN]),
    (AllocationState.LAPSING, LET_GO, [ENDED]),
    (AllocationState.GONE, LIVES, [SEEN]),
    (AllocationState.GONE, NOTICED, [SEEN, NOTICE]),
    *[(AllocationState.GONE, what, []) for what in (EVICTED, LET_GO)],
]


@pytest.mark.parametrize(("standing", "what", "events"), TABLE)
@pytest.mark.parametrize("closed", [False, True])
def test_what_a_fact_means(standing, what, events, closed):
    engine = engine_with(standing)
    if closed:
        engine.handle(JobClosed(NOW_S - 1))
    facts = by_order([*REDS, what])
    found = reconcile(engine, facts, {}, NOW_S)
    assert found == events
    for one in found:
        assert engine.handle(one) == ()
    assert reconcile(engine, facts, {}, NOW_S + 1) == []
    engine.validate()


# -- several instances ------------------------------------------------------------------------------------------------


def pair(*events: BidEvent) -> BidEngine:
    """Return an engine that holds the machines i-a-0 and i-a-1 in allocation a, after `events`."""
    engine = engine_with(None)
    engine.handle(granted(spot("a", count=2, bid="9")))
    for one in events:
        engine.handle(one)
    return engine


def seen_by(engine: BidEngine, *facts: InstanceFact, now_s: int = NOW_S) -> list[BidEvent]:
    """Return the events of an observation of `facts`, and of the reliable tier; the engine receives them."""
    found = reconcile(engine, by_order([*REDS, *facts]), {}, now_s)
    for one in found:
        assert engine.handle(one) == ()
    assert reconcile(engine, by_order([*REDS, *facts]), {}, now_s) == []
    engine.validate()
    return found


def working(engine: BidEngine) -> int:
    """Return the machines of allocation a in the footprint."""
    return sum(a.count for a in engine.footprint if a.allocation_id == "a")


OTHER = fact("a", 1)


def test_an_allocation_shrinks_when_one_of_its_machines_is_taken_and_ends_with_the_last():
    engine = pair()
    assert seen_by(engine, LIVES, fact("a", 1, ended_at_s=NOW_S - 9, cause=EndCause.EVICTED)) == [
        MachineGone(NOW_S - 9, "a", "i-a-1", EndCause.EVICTED)
    ]
    assert (working(engine), engine.positions["a"].standing) == (1, AllocationState.HELD)
    taken = fact("a", 1, ended_at_s=NOW_S - 9, cause=EndCause.EVICTED)
    assert seen_by(engine, LET_GO, taken) == [gone("a", NOW_S - 5, EndCause.USER)]
    assert (working(engine), engine.positions["a"].standing) == (0, AllocationState.GONE)


def test_of_two_machines_one_that_is_noticed_leaves_the_footprint_and_the_other_works_on():
    engine = pair()
    assert seen_by(engine, NOTICED, OTHER) == [MachineNoticed(NOW_S, "a", "i-a-0", NOW_S + 120)]
    assert (working(engine), engine.positions["a"].standing) == (1, AllocationState.HELD)
    # the notice for what is left is one for the allocation
    assert seen_by(engine, NOTICED, replace(OTHER, notice_at_s=NOW_S + 130)) == [NoticeSeen(NOW_S, "a", NOW_S + 130)]
    assert (working(engine), engine.positions["a"].standing) == (0, AllocationState.NOTICED)


def test_a_noticed_machine_that_outlives_its_notice_is_held_again():
    marked = NOTICED, OTHER
    engine = pair()
    seen_by(engine, *marked)
    last_s = NOW_S + 120 + NOTICE_GRACE_S
    assert seen_by(engine, *marked, now_s=last_s - 1) == []
    assert seen_by(engine, *marked, now_s=last_s) == [MachineSeen(last_s, "a", "i-a-0")]
    assert (working(engine), engine.spot_vcpus) == (2, 8)
    again = replace(NOTICED, notice_at_s=last_s + 100), OTHER
    assert seen_by(engine, *again, now_s=last_s) == [MachineNoticed(last_s, "a", "i-a-0", last_s + 100)]


def test_one_of_two_lost_machines_that_is_seen_alive_is_held_again():
    engine = pair(gone("a", START_S + 60))
    dead = fact("a", 1, ended_at_s=START_S + 60, cause=EndCause.EVICTED)
    assert seen_by(engine, LIVES, dead) == [SEEN]
    position = engine.positions["a"]
    assert (working(engine), position.standing, position.ended_at_s) == (1, AllocationState.HELD, None)


def test_a_machine_that_is_listed_later_than_its_sisters_joins_the_allocation_dead_or_alive():
    engine = engine_with(AllocationState.HELD)
    assert seen_by(engine, LIVES, OTHER) == [MachineSeen(NOW_S, "a", "i-a-1")]
    assert (working(engine), engine.positions["a"].allocation.count) == (2, 2)
    dead = fact("a", 2, ended_at_s=NOW_S - 9, cause=EndCause.EVICTED)
    assert seen_by(engine, LIVES, OTHER, dead) == [MachineGone(NOW_S - 9, "a", "i-a-2", EndCause.EVICTED)]
    assert working(engine) == 2
    seen_by(engine, LET_GO, replace(LET_GO, instance_id="i-a-1"), dead)
    dead = fact("a", 3, ended_at_s=NOW_S - 9, cause=EndCause.EVICTED)
    assert seen_by(engine, dead) == [MachineGone(NOW_S - 9, "a", "i-a-3", EndCause.EVICTED)]
    assert engine.positions["a"].standing is AllocationState.GONE


@pytest.mark.parametrize("standing", [AllocationState.HELD, AllocationState.NOTICED, AllocationState.GONE])
def test_machines_whose_grant_did_not_name_them_are_named_by_what_is_seen_of_them(standing):
    engine = engine_with(None)
    engine.handle(replace(granted(spot("a", count=2, bid="9")), instance_ids=()))
    if standing is AllocationState.NOTICED:
        engine.handle(NoticeSeen(START_S + 60, "a", START_S + 180))
    elif standing is AllocationState.GONE:
        engine.handle(gone("a", START_S + 60))
    dead = fact("a", 1, ended_at_s=NOW_S - 9, cause=EndCause.EVICTED)
    found = seen_by(engine, LIVES, dead)
    lost = [] if standing is AllocationState.GONE else [MachineGone(NOW_S - 9, "a", "i-a-1", EndCause.EVICTED)]
    assert found == [SEEN, *lost]
    assert (working(engine), engine.positions["a"].standing) == (1, AllocationState.HELD)
    assert len(engine.positions["a"].machines) == 2


def test_unnamed_machines_that_end_together_need_no_names():
    engine = engine_with(None)
    engine.handle(replace(granted(spot("a", count=2, bid="9")), instance_ids=()))
    both = [replace(EVICTED, instance_id=f"i-a-{number}") for number in range(2)]
    assert seen_by(engine, *both) == [TAKEN]


@pytest.mark.parametrize(
    ("ends", "cause", "before"),
    [
        ([(-9, EndCause.USER), (-5, EndCause.EVICTED), (-5, EndCause.EVICTED)], EndCause.EVICTED, [0]),
        ([(-9, EndCause.EVICTED), (-5, EndCause.USER)], EndCause.USER, [0]),
        ([(-5, EndCause.EVICTED), (-5, EndCause.USER)], EndCause.USER, [0]),
        ([(-5, EndCause.FAILED), (-5, EndCause.FAILED)], EndCause.FAILED, []),
        ([(-9, EndCause.FAILED), (-5, EndCause.EVICTED)], EndCause.EVICTED, [0]),
    ],
)
def test_an_allocation_was_taken_if_the_last_of_its_instances_were(ends, cause, before):
    engine = engine_with(None)
    engine.handle(granted(spot("a", count=len(ends), bid="9")))
    facts = [fact("a", number, ended_at_s=NOW_S + at_s, cause=why) for number, (at_s, why) in enumerate(ends)]
    singly = [MachineGone(NOW_S + ends[n][0], "a", f"i-a-{n}", ends[n][1]) for n in before]
    assert seen_by(engine, *facts) == [*singly, gone("a", NOW_S - 5, cause)]
    assert (engine.positions["a"].ended_at_s, engine.positions["a"].cause) == (NOW_S - 5, cause)


def test_the_earliest_notice_of_those_that_live_counts():
    marked = [fact("a", n, notice_at_s=NOW_S + n) for n in (1, 0)]
    dead = fact("a", 2, notice_at_s=NOW_S - 50, ended_at_s=NOW_S - 50, cause=EndCause.EVICTED)
    engine = engine_with(None)
    engine.handle(granted(spot("a", count=3, bid="9")))
    assert seen_by(engine, *marked, dead) == [
        NoticeSeen(NOW_S, "a", NOW_S),
        MachineGone(NOW_S - 50, "a", "i-a-2", EndCause.EVICTED),
    ]


def test_an_end_before_the_launch_is_one_at_the_launch():
    early = replace(LET_GO, ended_at_s=START_S - 7)
    assert seen_by(engine_with(AllocationState.HELD), early) == [gone("a", START_S, EndCause.USER)]


def test_an_end_that_the_market_does_not_date_is_now():
    ending = replace(LIVES, state=InstanceState.SHUTTING_DOWN)
    assert seen_by(engine_with(AllocationState.HELD), ending) == [gone("a", NOW_S, EndCause.USER)]


def test_an_allocation_is_what_its_instances_say():
    facts = [fact("a", 1, launched_at_s=START_S + 2), fact("a", 0, launched_at_s=START_S + 5)]
    expected = Allocation("a", XLARGE, 2, START_S + 2, Tier.TRANSIENT, 300_000)
    assert allocation_of(facts, Tier.TRANSIENT) == allocation_of(facts[::-1], Tier.TRANSIENT) == expected


def test_instances_are_grouped_whatever_their_order():
    facts = [fact("b", 1), fact("a", 0), fact("b", 0)]
    groups = by_order(facts)
    assert groups == by_order(facts[::-1])
    assert {token: [f.instance_id for f in group] for token, group in groups.items()} == {
        "a": ["i-a-0"],
        "b": ["i-b-0", "i-b-1"],
    }


def test_the_tier_is_what_we_know_else_what_was_bid_for():
    def found(bid, tiers):
        (grant,) = reconcile(engine_with(None), by_order([*REDS, fact("x", bid=bid)]), tiers, NOW_S)
        return grant.allocation.tier

    assert found(100, {}) is Tier.TRANSIENT
    assert found(None, {}) is Tier.RELIABLE  # never let go by mistake
    assert found(None, {"x": Tier.TRANSIENT}) is Tier.TRANSIENT


# -- what the market does not know ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("standing", "cause"),
    [
        (AllocationState.HELD, EndCause.USER),
        (AllocationState.NOTICED, EndCause.USER),
        (AllocationState.LAPSING, EndCause.USER),
        (AllocationState.GONE, None),
    ],
)
def test_what_the_market_has_forgotten_is_gone_but_a_newborn_may_be_late(standing, cause):
    engine = engine_with(standing)
    facts = {"red": [*REDS], "a": []}
    assert reconcile(engine, facts, {}, START_S + HOUR_S - 1) == []
    found = reconcile(engine, {"red": [*REDS]}, {}, START_S + HOUR_S)
    assert found == reconcile(engine, facts, {}, START_S + HOUR_S)
    assert found == ([gone("a", START_S + HOUR_S, cause)] if cause else [])
    for one in found:
        engine.handle(one)
    assert reconcile(engine, facts, {}, START_S + 2 * HOUR_S) == []


def test_one_of_two_machines_that_the_market_has_forgotten_is_gone():
    engine = pair()
    assert seen_by(engine, LIVES, now_s=START_S + HOUR_S - 1) == []
    assert seen_by(engine, LIVES, now_s=START_S + HOUR_S) == [
        MachineGone(START_S + HOUR_S, "a", "i-a-1", EndCause.USER)
    ]
    assert working(engine) == 1


def test_a_machine_of_a_type_that_the_job_does_not_know_is_left_alone():
    strange = replace(fact("x"), market=Market("x9.huge", "us-east-1a"))
    assert seen_by(engine_with(AllocationState.HELD), LIVES, strange) == []


def test_nothing_is_concluded_for_a_job_that_was_not_opened():
    assert reconcile(BidEngine(), by_order([LIVES]), {}, NOW_S) == []


# -- an answer that lists none of ours --------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", [{}, {"a": [], "red": []}])
def test_an_answer_that_lists_no_machine_is_not_believed_until_it_has_been_the_same_for_an_hour(facts):
    engine, begin_s = pair(), START_S + 5 * HOUR_S
    assert unlisted(engine, facts, begin_s) == 4
    assert reconcile(engine, facts, {}, begin_s) == [MachinesUnlisted(begin_s, 4)]
    engine.handle(MachinesUnlisted(begin_s, 4))
    for at_s in (begin_s + 120, begin_s + HOUR_S - 1):
        assert (unlisted(engine, facts, at_s), reconcile(engine, facts, {}, at_s)) == (4, [])
    believed_s = begin_s + HOUR_S
    assert unlisted(engine, facts, believed_s) == 0
    found = reconcile(engine, facts, {}, believed_s)
    assert found == [gone(name, believed_s, EndCause.USER) for name in ("a", "red")]


def test_after_an_outage_in_which_the_leases_have_ended_an_empty_answer_is_believed_at_once():
    engine = pair(tick(NOW_S, {XLARGE: "3"}))
    for lease_s, at_s, believed in (
        (HOUR_S, NOW_S + 2 * HOUR_S - 1, False),
        (HOUR_S, NOW_S + 2 * HOUR_S, True),
        (2 * HOUR_S, NOW_S + 2 * HOUR_S, False),
    ):
        assert (unlisted(engine, {}, at_s, lease_s) == 0) is believed
        ends = [gone(name, at_s, EndCause.USER) for name in ("a", "red")]
        assert reconcile(engine, {}, {}, at_s, lease_s) == (ends if believed else [MachinesUnlisted(at_s, 4)])


def test_a_tick_that_saw_machines_begins_the_hour_anew():
    engine = pair(MachinesUnlisted(NOW_S, 4), tick(NOW_S + 120, {XLARGE: "3"}))
    assert engine.unlisted_since_s is None
    later_s = NOW_S + HOUR_S
    assert reconcile(engine, {}, {}, later_s) == [MachinesUnlisted(later_s, 4)]


def test_an_answer_that_lists_none_of_several_living_machines_but_dead_ones_is_not_believed():
    engine = pair(gone("a", START_S + 60))
    assert unlisted(engine, {"a": [EVICTED]}, NOW_S) == 2


def test_a_single_machine_is_forgotten_where_the_answer_lists_others():
    engine = engine_with(AllocationState.HELD)
    engine.handle(gone("red", START_S + 5))
    dead = replace(RED, state=InstanceState.TERMINATED, ended_at_s=START_S + 5, end_cause=EndCause.USER)
    at_s = START_S + HOUR_S
    assert unlisted(engine, {"red": [dead]}, at_s) == 0
    assert reconcile(engine, {"red": [dead]}, {}, at_s) == [gone("a", at_s, EndCause.USER)]
    assert unlisted(engine, {}, at_s) == 1, "an empty answer says nothing of it"


def test_machines_that_were_just_launched_may_be_listed_late():
    engine = engine_with(AllocationState.HELD)
    assert unlisted(engine, {}, START_S + 299) == 0
    assert reconcile(engine, {}, {}, START_S + 299) == []


# -- unanswered purchases ---------------------------------------------------------------------------------------------


def ordering() -> tuple[BidEngine, Acquire]:
    """Return an engine with an unanswered purchase, and that."""
    engine = BidEngine()
    engine.handle(opened(JobModel(allocation_vcpus=8)))
    engine.handle(granted(reliable()))
    (order,) = engine.handle(tick(START_S, {XLARGE: "0.05"}))
    return engine, order


def test_an_unanswered_purchase_is_found_by_its_tag():
    engine, order = ordering()
    facts = by_order([*REDS, *[fact(order.order_id, n, bid=order.bid_micros) for n in range(2)]])
    (grant,) = reconcile(engine, facts, {}, NOW_S)
    assert grant.order_id == grant.allocation.allocation_id == order.order_id
    engine.handle(grant)
    assert engine.open_order is None
    assert reconcile(engine, facts, {}, NOW_S) == []


def test_an_unanswered_purchase_that_nobody_knows_is_left_for_the_tick_to_repeat():
    engine, order = ordering()
    assert reconcile(engine, {"red": [*REDS]}, {}, NOW_S) == []
    assert engine.handle(tick(NOW_S, {XLARGE: "0.05"})) == (order,)


@pytest.mark.parametrize("facts", [{"red": [*REDS]}, {"red": [*REDS], "j-buy-0": []}])
def test_an_unanswered_purchase_of_a_closed_job_stays_open_because_reads_lag(facts):
    engine, order = ordering()
    engine.handle(JobClosed(NOW_S - 1))
    assert reconcile(engine, facts, {}, NOW_S) == []
    assert engine.open_order == order


def test_an_unanswered_purchase_of_a_closed_job_that_was_made_is_taken_in_even_if_it_turns_up_later():
    for abandoned_first in (False, True):
        engine, order = ordering()
        engine.handle(JobClosed(NOW_S - 1))
        if abandoned_first:
            engine.handle(AllocationRefused(NOW_S, order.order_id, ABANDONED, "the job ended before it was bought"))
        found = reconcile(engine, by_order([*REDS, fact(order.order_id)]), {}, NOW_S)
        assert [type(one) for one in found] == [AllocationGranted]
        engine.handle(found[0])
        assert engine.open_order is None
        assert order.order_id in [a.allocation_id for a in engine.footprint]


def test_machines_that_are_not_reported_completely_are_taken_in_when_they_are():
    engine, order = ordering()
    facts = [fact(order.order_id, n, bid=order.bid_micros) for n in range(2)]
    young = [facts[0], replace(facts[1], bid_micros=None, complete=False)]
    assert reconcile(engine, by_order([*REDS, *young]), {}, NOW_S) == []
    (grant,) = reconcile(engine, by_order([*REDS, *facts]), {}, NOW_S)
    engine.handle(grant)
    assert reconcile(engine, by_order([*REDS, *young]), {}, NOW_S) == [], "of a known machine the bid is known"


def test_machines_without_the_tag_of_an_order_are_nobodys():
    assert by_order([replace(LIVES, tags={}), replace(LIVES, tags={"proteus:job": "j"})]) == {}


# -- all at once ------------------------------------------------------------------------------------------------------

FACTS = st.sampled_from([None, LIVES, NOTICED, EVICTED, LET_GO])


MACHINES = st.lists(FACTS, min_size=1, max_size=3)


@PROPERTY
@given(
    st.lists(st.tuples(st.sampled_from(STANDINGS), MACHINES), max_size=5),
    st.booleans(),
    st.booleans(),
    st.integers(START_S + HOUR_S, START_S + 3 * HOUR_S),
    st.randoms(use_true_random=False),
)
def test_reconciling_again_finds_nothing_and_order_does_not_matter(cases, named, close, now_s, shuffle):
    engine, _ = ordering()
    facts = [*REDS]
    for number, (standing, group) in enumerate(cases):
        name = f"a{number}"
        if standing is not None:
            grant = granted(spot(name, count=len(group), bid="9"))
            engine.handle(grant if named else replace(grant, instance_ids=()))
        if standing is AllocationState.NOTICED:
            engine.handle(NoticeSeen(START_S + 60, name, START_S + 180))
        elif standing is AllocationState.GONE:
            engine.handle(gone(name, START_S + 60))
        elif standing is AllocationState.LAPSING:
            engine.positions[name].lapse = Lapse(name, 1, START_S + HOUR_S, Decision(Choice.LAPSE, "", 1.0))
            engine.positions[name].update()
        for machine, what in enumerate(group):
            if what is not None:
                facts.append(replace(what, tags={ORDER_TAG: name}, instance_id=f"i-{name}-{machine}"))
    if close:
        engine.handle(JobClosed(START_S + 70))
    found = reconcile(engine, by_order(facts), {}, now_s)
    shuffle.shuffle(facts)
    assert reconcile(engine, by_order(facts), {}, now_s) == found
    event(f"{len(found)} events")
    for one in found:
        assert engine.handle(one) == ()
    assert reconcile(engine, by_order(facts), {}, now_s) == []
    alive = {(f.order_id, f.instance_id) for f in facts if f.alive}
    living = {(name, machine) for name, p in engine.positions.items() for machine in p.living()}
    assert living == alive
    marked = {f.instance_id for f in facts if f.alive and f.notice_at_s is not None and now_s < f.notice_at_s + 240}
    noticed = {
        machine
        for p in engine.positions.values()
        for machine, its in p.machines.items()
        if its.state is MachineState.NOTICED
    }
    assert noticed == marked
