"""Facts against the engine, in every combination; and whatever it finds, it finds once."""

from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from bidding.economics.job_model import JobModel
from bidding.engine.engine import AllocationState, BidEngine
from bidding.engine.events import AllocationGone, AllocationGranted, AllocationRefused, BidEvent, JobClosed, NoticeSeen
from bidding.engine.orders import Acquire
from bidding.engine.reconcile import allocation_of, by_token, reconcile
from bidding.market.model import HOUR_S, Allocation, EndCause, InstanceFact, InstanceState, Tier
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
LIVES = fact("a")
NOTICED = fact("a", notice_at_s=NOW_S + 120)
EVICTED = fact("a", ended_at_s=NOW_S - 5, cause=EndCause.EVICTED)
LET_GO = fact("a", ended_at_s=NOW_S - 5, cause=EndCause.USER)
GRANT = AllocationGranted(NOW_S, "a", spot("a", count=1))
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
    (AllocationState.NOTICED, LIVES, []),
    (AllocationState.NOTICED, NOTICED, []),
    (AllocationState.NOTICED, EVICTED, [TAKEN]),
    (AllocationState.NOTICED, LET_GO, [ENDED]),
    (AllocationState.LAPSING, LIVES, []),
    (AllocationState.LAPSING, NOTICED, [NOTICE]),
    (AllocationState.LAPSING, EVICTED, [TAKEN]),
    (AllocationState.LAPSING, LET_GO, [ENDED]),
    *[(AllocationState.GONE, what, []) for what in (LIVES, NOTICED, EVICTED, LET_GO)],
]


@pytest.mark.parametrize(("standing", "what", "events"), TABLE)
@pytest.mark.parametrize("closed", [False, True])
def test_what_a_fact_means(standing, what, events, closed):
    engine = engine_with(standing)
    if closed:
        engine.handle(JobClosed(NOW_S - 1))
    facts = by_token([RED, replace(RED, instance_id="i-red-1"), what])
    found = reconcile(engine, facts, {}, NOW_S)
    assert found == events
    for one in found:
        assert engine.handle(one) == ()
    assert reconcile(engine, facts, {}, NOW_S + 1) == []
    engine.validate()


# -- several instances ------------------------------------------------------------------------------------------------


def test_an_allocation_lives_as_long_as_one_of_its_instances():
    taken = fact("a", 1, ended_at_s=NOW_S - 9, cause=EndCause.EVICTED)
    engine = engine_with(AllocationState.HELD)
    assert reconcile(engine, by_token([RED, LIVES, taken]), {}, NOW_S) == []
    both = by_token([RED, LET_GO, taken])
    assert reconcile(engine, both, {}, NOW_S) == [gone("a", NOW_S - 5, EndCause.USER)]


@pytest.mark.parametrize(
    ("ends", "cause"),
    [
        ([(-9, EndCause.USER), (-5, EndCause.EVICTED), (-5, EndCause.EVICTED)], EndCause.EVICTED),
        ([(-9, EndCause.EVICTED), (-5, EndCause.USER)], EndCause.USER),
        ([(-5, EndCause.EVICTED), (-5, EndCause.USER)], EndCause.USER),
    ],
)
def test_an_allocation_was_taken_if_the_last_of_its_instances_were(ends, cause):
    facts = [fact("a", number, ended_at_s=NOW_S + at_s, cause=why) for number, (at_s, why) in enumerate(ends)]
    assert reconcile(engine_with(AllocationState.HELD), by_token([RED, *facts]), {}, NOW_S) == [
        gone("a", NOW_S - 5, cause)
    ]


def test_the_earliest_notice_of_those_that_live_counts():
    marked = [fact("a", n, notice_at_s=NOW_S + n) for n in (30, 20)]
    dead = fact("a", 5, notice_at_s=NOW_S - 50, ended_at_s=NOW_S - 50, cause=EndCause.EVICTED)
    found = reconcile(engine_with(AllocationState.HELD), by_token([*marked, dead]), {}, NOW_S)
    assert found == [NoticeSeen(NOW_S, "a", NOW_S + 20)]


def test_an_end_that_the_market_does_not_date_is_now():
    ending = replace(LIVES, state=InstanceState.SHUTTING_DOWN)
    assert reconcile(engine_with(AllocationState.HELD), by_token([ending]), {}, NOW_S) == [
        gone("a", NOW_S, EndCause.USER)
    ]


def test_an_allocation_is_what_its_instances_say():
    facts = [fact("a", 1, launched_at_s=START_S + 2), fact("a", 0, launched_at_s=START_S + 5)]
    expected = Allocation("a", XLARGE, 2, START_S + 2, Tier.TRANSIENT, 300_000)
    assert allocation_of(facts, Tier.TRANSIENT) == allocation_of(facts[::-1], Tier.TRANSIENT) == expected


def test_instances_are_grouped_whatever_their_order():
    facts = [fact("b", 1), fact("a", 0), fact("b", 0)]
    groups = by_token(facts)
    assert groups == by_token(facts[::-1])
    assert {token: [f.instance_id for f in group] for token, group in groups.items()} == {
        "a": ["i-a-0"],
        "b": ["i-b-0", "i-b-1"],
    }


def test_the_tier_is_what_we_know_else_what_was_bid_for():
    def found(bid, tiers):
        (grant,) = reconcile(engine_with(None), by_token([fact("x", bid=bid)]), tiers, NOW_S)
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
    facts = {"red": [RED], "a": []}
    assert reconcile(engine, facts, {}, START_S + HOUR_S - 1) == []
    found = reconcile(engine, {"red": [RED]}, {}, START_S + HOUR_S)
    assert found == reconcile(engine, facts, {}, START_S + HOUR_S)
    assert found == ([gone("a", START_S + HOUR_S, cause)] if cause else [])
    for one in found:
        engine.handle(one)
    assert reconcile(engine, facts, {}, START_S + 2 * HOUR_S) == []


def test_a_forgotten_reliable_machine_was_not_taken():
    found = reconcile(engine_with(None), {}, {}, START_S + 5 * HOUR_S)
    assert found == [gone("red", START_S + 5 * HOUR_S, EndCause.USER)]


def ordering() -> tuple[BidEngine, Acquire]:
    """Return an engine with an unanswered purchase, and that."""
    engine = BidEngine()
    engine.handle(opened(JobModel(allocation_vcpus=8)))
    engine.handle(granted(reliable()))
    (order,) = engine.handle(tick(START_S, {XLARGE: "0.05"}))
    return engine, order


def test_an_unanswered_purchase_is_found_by_its_token():
    engine, order = ordering()
    facts = by_token([RED, *[fact(order.order_id, n, bid=order.bid_micros) for n in range(2)]])
    (grant,) = reconcile(engine, facts, {}, NOW_S)
    assert grant.order_id == grant.allocation.allocation_id == order.order_id
    engine.handle(grant)
    assert engine.open_order is None
    assert reconcile(engine, facts, {}, NOW_S) == []


def test_an_unanswered_purchase_that_nobody_knows_is_left_for_the_tick_to_repeat():
    engine, order = ordering()
    assert reconcile(engine, {"red": [RED]}, {}, NOW_S) == []
    assert engine.handle(tick(NOW_S, {XLARGE: "0.05"})) == (order,)


@pytest.mark.parametrize("facts", [{"red": [RED]}, {"red": [RED], "j-buy-0": []}])
def test_an_unanswered_purchase_of_a_closed_job_is_abandoned(facts):
    engine, order = ordering()
    engine.handle(JobClosed(NOW_S - 1))
    (refused,) = reconcile(engine, facts, {}, NOW_S)
    assert isinstance(refused, AllocationRefused)
    assert (refused.order_id, refused.code) == (order.order_id, "Abandoned")
    engine.handle(refused)
    assert engine.open_order is None
    assert reconcile(engine, facts, {}, NOW_S) == []


def test_an_unanswered_purchase_of_a_closed_job_that_was_made_is_taken_in_even_if_it_turns_up_later():
    for abandoned_first in (False, True):
        engine, order = ordering()
        engine.handle(JobClosed(NOW_S - 1))
        if abandoned_first:
            for one in reconcile(engine, {"red": [RED]}, {}, NOW_S):
                engine.handle(one)
        found = reconcile(engine, by_token([RED, fact(order.order_id)]), {}, NOW_S)
        assert [type(one) for one in found] == [AllocationGranted]
        engine.handle(found[0])
        assert engine.open_order is None
        assert order.order_id in [a.allocation_id for a in engine.footprint]


# -- all at once ------------------------------------------------------------------------------------------------------

FACTS = st.sampled_from([None, LIVES, NOTICED, EVICTED, LET_GO])


@PROPERTY
@given(
    st.lists(st.tuples(st.sampled_from(STANDINGS), FACTS), max_size=5),
    st.booleans(),
    st.integers(START_S + HOUR_S, START_S + 3 * HOUR_S),
    st.randoms(use_true_random=False),
)
def test_reconciling_again_finds_nothing_and_order_does_not_matter(cases, close, now_s, shuffle):
    engine, _ = ordering()
    facts = [RED]
    for number, (standing, what) in enumerate(cases):
        name = f"a{number}"
        if standing is not None:
            engine.handle(granted(spot(name, count=1, bid="9")))
        if standing is AllocationState.NOTICED:
            engine.handle(NoticeSeen(START_S + 60, name, START_S + 180))
        elif standing is AllocationState.GONE:
            engine.handle(gone(name, START_S + 60))
        elif standing is AllocationState.LAPSING:
            engine.positions[name].standing = AllocationState.LAPSING
        if what is not None:
            facts.append(replace(what, token=name, instance_id=f"i-{name}"))
    if close:
        engine.handle(JobClosed(START_S + 70))
    found = reconcile(engine, by_token(facts), {}, now_s)
    shuffle.shuffle(facts)
    assert reconcile(engine, by_token(facts), {}, now_s) == found
    event(f"{len(found)} events")
    for one in found:
        assert engine.handle(one) == ()
    assert reconcile(engine, by_token(facts), {}, now_s) == []
    alive = {f.token for f in facts if f.alive}
    standing_now = {name for name, p in engine.positions.items() if p.standing is not AllocationState.GONE}
    ended_before = {name for name, p in engine.positions.items() if p.ended_at_s == START_S + 60}
    assert standing_now == alive - ended_before
    assert all(isinstance(one, AllocationGone | AllocationGranted | AllocationRefused | NoticeSeen) for one in found)
