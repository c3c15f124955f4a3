"""Facts of the market against the engine: what they mean for each standing, and for several machines."""

from dataclasses import replace

import pytest

from proteus_spot.bidding.engine.allocations import AllocationState
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import BidEvent, JobClosed, MachineGone, MachineNoticed, MachineSeen, NoticeSeen
from proteus_spot.bidding.engine.reconcile import NOTICE_GRACE_S, allocation_of, by_order, reconcile
from proteus_spot.bidding.market.model import HOUR_S, Allocation, EndCause, InstanceFact, InstanceState, Market, Tier
from tests.support.markets import START_S, XLARGE, fact, gone, granted, spot
from tests.support.reconciled import (
    ENDED,
    EVICTED,
    GRANT,
    LET_GO,
    LIVES,
    NOTICE,
    NOTICED,
    NOW_S,
    OTHER,
    REDS,
    SEEN,
    TAKEN,
    engine_with,
    pair,
    working,
)

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
    found = reconcile(engine.holdings, facts, {}, NOW_S)
    assert found == events
    for one in found:
        assert engine.handle(one) == ()
    assert reconcile(engine.holdings, facts, {}, NOW_S + 1) == []
    engine.validate()


def seen_by(engine: BidEngine, *facts: InstanceFact, now_s: int = NOW_S) -> list[BidEvent]:
    """Return the events of an observation of `facts`, and of the reliable tier; the engine receives them."""
    found = reconcile(engine.holdings, by_order([*REDS, *facts]), {}, now_s)
    for one in found:
        assert engine.handle(one) == ()
    assert reconcile(engine.holdings, by_order([*REDS, *facts]), {}, now_s) == []
    engine.validate()
    return found


def test_an_allocation_shrinks_when_one_of_its_machines_is_taken_and_ends_with_the_last():
    engine = pair()
    assert seen_by(engine, LIVES, fact("a", 1, ended_at_s=NOW_S - 9, cause=EndCause.EVICTED)) == [
        MachineGone(NOW_S - 9, "a", "i-a-1", EndCause.EVICTED)
    ]
    assert (working(engine), engine.holdings.positions["a"].standing) == (1, AllocationState.HELD)
    taken = fact("a", 1, ended_at_s=NOW_S - 9, cause=EndCause.EVICTED)
    assert seen_by(engine, LET_GO, taken) == [gone("a", NOW_S - 5, EndCause.USER)]
    assert (working(engine), engine.holdings.positions["a"].standing) == (0, AllocationState.GONE)


def test_of_two_machines_one_that_is_noticed_leaves_the_footprint_and_the_other_works_on():
    engine = pair()
    assert seen_by(engine, NOTICED, OTHER) == [MachineNoticed(NOW_S, "a", "i-a-0", NOW_S + 120)]
    assert (working(engine), engine.holdings.positions["a"].standing) == (1, AllocationState.HELD)
    # the notice for what is left is one for the allocation
    assert seen_by(engine, NOTICED, replace(OTHER, notice_at_s=NOW_S + 130)) == [NoticeSeen(NOW_S, "a", NOW_S + 130)]
    assert (working(engine), engine.holdings.positions["a"].standing) == (0, AllocationState.NOTICED)


def test_a_noticed_machine_that_outlives_its_notice_is_held_again():
    marked = NOTICED, OTHER
    engine = pair()
    seen_by(engine, *marked)
    last_s = NOW_S + 120 + NOTICE_GRACE_S
    assert seen_by(engine, *marked, now_s=last_s - 1) == []
    assert seen_by(engine, *marked, now_s=last_s) == [MachineSeen(last_s, "a", "i-a-0")]
    assert (working(engine), engine.holdings.spot_vcpus) == (2, 8)
    again = replace(NOTICED, notice_at_s=last_s + 100), OTHER
    assert seen_by(engine, *again, now_s=last_s) == [MachineNoticed(last_s, "a", "i-a-0", last_s + 100)]


def test_one_of_two_lost_machines_that_is_seen_alive_is_held_again():
    engine = pair(gone("a", START_S + 60))
    dead = fact("a", 1, ended_at_s=START_S + 60, cause=EndCause.EVICTED)
    assert seen_by(engine, LIVES, dead) == [SEEN]
    position = engine.holdings.positions["a"]
    assert (working(engine), position.standing, position.ended_at_s) == (1, AllocationState.HELD, None)


def test_a_machine_that_is_listed_later_than_its_sisters_joins_the_allocation_dead_or_alive():
    engine = engine_with(AllocationState.HELD)
    assert seen_by(engine, LIVES, OTHER) == [MachineSeen(NOW_S, "a", "i-a-1")]
    assert (working(engine), engine.holdings.positions["a"].allocation.count) == (2, 2)
    dead = fact("a", 2, ended_at_s=NOW_S - 9, cause=EndCause.EVICTED)
    assert seen_by(engine, LIVES, OTHER, dead) == [MachineGone(NOW_S - 9, "a", "i-a-2", EndCause.EVICTED)]
    assert working(engine) == 2
    seen_by(engine, LET_GO, replace(LET_GO, instance_id="i-a-1"), dead)
    dead = fact("a", 3, ended_at_s=NOW_S - 9, cause=EndCause.EVICTED)
    assert seen_by(engine, dead) == [MachineGone(NOW_S - 9, "a", "i-a-3", EndCause.EVICTED)]
    assert engine.holdings.positions["a"].standing is AllocationState.GONE


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
    assert (working(engine), engine.holdings.positions["a"].standing) == (1, AllocationState.HELD)
    assert len(engine.holdings.positions["a"].machines) == 2


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
    assert (engine.holdings.positions["a"].ended_at_s, engine.holdings.positions["a"].cause) == (NOW_S - 5, cause)


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
    expected = Allocation("o", XLARGE, 2, START_S + 2, Tier.TRANSIENT, 300_000)
    assert allocation_of("o", facts, Tier.TRANSIENT) == allocation_of("o", facts[::-1], Tier.TRANSIENT) == expected


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
        (grant,) = reconcile(engine_with(None).holdings, by_order([*REDS, fact("x", bid=bid)]), tiers, NOW_S)
        return grant.allocation.tier

    assert found(100, {}) is Tier.TRANSIENT
    assert found(None, {}) is Tier.RELIABLE  # never let go by mistake
    assert found(None, {"x": Tier.TRANSIENT}) is Tier.TRANSIENT


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
    assert reconcile(engine.holdings, facts, {}, START_S + HOUR_S - 1) == []
    found = reconcile(engine.holdings, {"red": [*REDS]}, {}, START_S + HOUR_S)
    assert found == reconcile(engine.holdings, facts, {}, START_S + HOUR_S)
    assert found == ([gone("a", START_S + HOUR_S, cause)] if cause else [])
    for one in found:
        engine.handle(one)
    assert reconcile(engine.holdings, facts, {}, START_S + 2 * HOUR_S) == []


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
    assert reconcile(BidEngine().holdings, by_order([LIVES]), {}, NOW_S) == []


@pytest.mark.parametrize(("lived_s", "cause"), [(60, EndCause.FAILED), (3000, EndCause.USER)])
def test_an_internal_error_is_a_failed_launch_only_soon_after_the_launch(lived_s: int, cause: EndCause) -> None:
    launched_s = NOW_S - lived_s
    ended = replace(LET_GO, launched_at_s=launched_s, ended_at_s=NOW_S, end_cause=EndCause.FAILED)
    events = reconcile(
        engine_with(None).holdings, by_order([*REDS, replace(ended, end_reason="Server.InternalError")]), {}, NOW_S
    )
    assert [event.cause for event in events if hasattr(event, "cause")] == [cause]
