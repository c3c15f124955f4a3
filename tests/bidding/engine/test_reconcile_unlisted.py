"""Answers that list no machine, unanswered purchases, and random facts that are reconciled twice."""

from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.engine.allocations import AllocationState, MachineState
from proteus_spot.bidding.engine.engine import BidEngine
from proteus_spot.bidding.engine.events import (
    AllocationGranted,
    AllocationRefused,
    JobClosed,
    MachinesUnlisted,
    NoticeSeen,
)
from proteus_spot.bidding.engine.orders import Acquire, Lapse
from proteus_spot.bidding.engine.reconcile import ABANDONED, by_order, reconcile, unlisted
from proteus_spot.bidding.market.model import HOUR_S, ORDER_TAG, EndCause, InstanceState
from proteus_spot.bidding.policies.base import Choice, Decision
from tests.support.markets import PROPERTY, START_S, XLARGE, fact, gone, granted, opened, reliable, spot, tick
from tests.support.reconciled import EVICTED, LET_GO, LIVES, NOTICED, NOW_S, RED, REDS, STANDINGS, engine_with, pair


@pytest.mark.parametrize("facts", [{}, {"a": [], "red": []}])
def test_an_answer_that_lists_no_machine_is_not_believed_until_it_has_been_the_same_for_an_hour(facts):
    engine, begin_s = pair(), START_S + 5 * HOUR_S
    assert unlisted(engine.holdings, facts, begin_s) == 4
    assert reconcile(engine.holdings, facts, {}, begin_s) == [MachinesUnlisted(begin_s, 4)]
    engine.handle(MachinesUnlisted(begin_s, 4))
    for at_s in (begin_s + 120, begin_s + HOUR_S - 1):
        assert (unlisted(engine.holdings, facts, at_s), reconcile(engine.holdings, facts, {}, at_s)) == (4, [])
    believed_s = begin_s + HOUR_S
    assert unlisted(engine.holdings, facts, believed_s) == 0
    found = reconcile(engine.holdings, facts, {}, believed_s)
    assert found == [gone(name, believed_s, EndCause.USER) for name in ("a", "red")]


def test_after_an_outage_in_which_the_leases_have_ended_an_empty_answer_is_believed_at_once():
    engine = pair(tick(NOW_S, {XLARGE: "3"}))
    for lease_s, at_s, believed in (
        (HOUR_S, NOW_S + 2 * HOUR_S - 1, False),
        (HOUR_S, NOW_S + 2 * HOUR_S, True),
        (2 * HOUR_S, NOW_S + 2 * HOUR_S, False),
    ):
        assert (unlisted(engine.holdings, {}, at_s, lease_s) == 0) is believed
        ends = [gone(name, NOW_S + lease_s, EndCause.USER) for name in ("a", "red")]
        assert reconcile(engine.holdings, {}, {}, at_s, lease_s) == (ends if believed else [MachinesUnlisted(at_s, 4)])


@pytest.mark.parametrize(
    ("written_s", "end_s"),
    [(NOW_S + 600, NOW_S + 600), (None, START_S + 900), (NOW_S + 9 * HOUR_S, NOW_S + 3 * HOUR_S)],
)
def test_a_machine_whose_end_nobody_saw_ended_with_its_last_lease_that_was_written(written_s, end_s):
    engine, at_s = pair(tick(NOW_S, {XLARGE: "3"})), NOW_S + 3 * HOUR_S
    names = [name for position in engine.holdings.positions.values() for name in position.living()]
    found = reconcile(engine.holdings, {}, {}, at_s, HOUR_S, dict.fromkeys(names, written_s))
    assert {event.at_s for event in found} == {end_s}


def test_a_tick_that_saw_machines_begins_the_hour_anew():
    engine = pair(MachinesUnlisted(NOW_S, 4), tick(NOW_S + 120, {XLARGE: "3"}))
    assert engine.holdings.unlisted_since_s is None
    later_s = NOW_S + HOUR_S
    assert reconcile(engine.holdings, {}, {}, later_s) == [MachinesUnlisted(later_s, 4)]


def test_an_answer_that_lists_none_of_several_living_machines_but_dead_ones_is_not_believed():
    engine = pair(gone("a", START_S + 60))
    assert unlisted(engine.holdings, {"a": [EVICTED]}, NOW_S) == 2


def test_a_single_machine_is_forgotten_where_the_answer_lists_others():
    engine = engine_with(AllocationState.HELD)
    engine.handle(gone("red", START_S + 5))
    dead = replace(RED, state=InstanceState.TERMINATED, ended_at_s=START_S + 5, end_cause=EndCause.USER)
    at_s = START_S + HOUR_S
    assert unlisted(engine.holdings, {"red": [dead]}, at_s) == 0
    assert reconcile(engine.holdings, {"red": [dead]}, {}, at_s) == [gone("a", at_s, EndCause.USER)]
    assert unlisted(engine.holdings, {}, at_s) == 1, "an empty answer says nothing of it"


def test_machines_that_were_just_launched_may_be_listed_late():
    engine = engine_with(AllocationState.HELD)
    assert unlisted(engine.holdings, {}, START_S + 299) == 0
    assert reconcile(engine.holdings, {}, {}, START_S + 299) == []


def test_a_young_machine_makes_no_empty_answer_about_older_ones_believed():
    engine = pair(granted(spot("young", launched_at_s=NOW_S - 60)))
    assert unlisted(engine.holdings, {}, NOW_S) == sum(len(p.living()) for p in engine.holdings.positions.values())


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
    (grant,) = reconcile(engine.holdings, facts, {}, NOW_S)
    assert grant.order_id == grant.allocation.allocation_id == order.order_id
    engine.handle(grant)
    assert engine.holdings.open_orders == {}
    assert reconcile(engine.holdings, facts, {}, NOW_S) == []


def test_an_unanswered_purchase_that_nobody_knows_is_left_for_the_tick_to_repeat():
    engine, order = ordering()
    assert reconcile(engine.holdings, {"red": [*REDS]}, {}, NOW_S) == []
    assert engine.handle(tick(NOW_S, {XLARGE: "0.05"})) == (order,)


@pytest.mark.parametrize("facts", [{"red": [*REDS]}, {"red": [*REDS], "j-buy-0": []}])
def test_an_unanswered_purchase_of_a_closed_job_stays_open_because_reads_lag(facts):
    engine, order = ordering()
    engine.handle(JobClosed(NOW_S - 1))
    assert reconcile(engine.holdings, facts, {}, NOW_S) == []
    assert engine.holdings.open_orders == {order.order_id: order}


def test_an_unanswered_purchase_of_a_closed_job_that_was_made_is_taken_in_even_if_it_turns_up_later():
    for abandoned_first in (False, True):
        engine, order = ordering()
        engine.handle(JobClosed(NOW_S - 1))
        if abandoned_first:
            engine.handle(AllocationRefused(NOW_S, order.order_id, ABANDONED, "the job ended before it was bought"))
        found = reconcile(engine.holdings, by_order([*REDS, fact(order.order_id)]), {}, NOW_S)
        assert [type(one) for one in found] == [AllocationGranted]
        engine.handle(found[0])
        assert engine.holdings.open_orders == {}
        assert order.order_id in [a.allocation_id for a in engine.holdings.footprint]


def test_machines_that_are_not_reported_completely_are_taken_in_when_they_are():
    engine, order = ordering()
    facts = [fact(order.order_id, n, bid=order.bid_micros) for n in range(2)]
    young = [facts[0], replace(facts[1], bid_micros=None, complete=False)]
    assert reconcile(engine.holdings, by_order([*REDS, *young]), {}, NOW_S) == []
    (grant,) = reconcile(engine.holdings, by_order([*REDS, *facts]), {}, NOW_S)
    engine.handle(grant)
    assert reconcile(engine.holdings, by_order([*REDS, *young]), {}, NOW_S) == [], "of a known machine the bid is known"


def test_machines_without_the_tag_of_an_order_are_nobodys():
    assert by_order([replace(LIVES, tags={}), replace(LIVES, tags={"proteus:job": "j"})]) == {}


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
            engine.holdings.positions[name].lapse = Lapse(name, 1, START_S + HOUR_S, Decision(Choice.LAPSE, "", 1.0))
            engine.holdings.positions[name].update()
        for machine, what in enumerate(group):
            if what is not None:
                facts.append(replace(what, tags={ORDER_TAG: name}, instance_id=f"i-{name}-{machine}"))
    if close:
        engine.handle(JobClosed(START_S + 70))
    found = reconcile(engine.holdings, by_order(facts), {}, now_s)
    shuffle.shuffle(facts)
    assert reconcile(engine.holdings, by_order(facts), {}, now_s) == found
    event(f"{len(found)} events")
    for one in found:
        assert engine.handle(one) == ()
    assert reconcile(engine.holdings, by_order(facts), {}, now_s) == []
    alive = {(f.order_id, f.instance_id) for f in facts if f.alive}
    living = {(name, machine) for name, p in engine.holdings.positions.items() for machine in p.living()}
    assert living == alive
    marked = {f.instance_id for f in facts if f.alive and f.notice_at_s is not None and now_s < f.notice_at_s + 240}
    noticed = {
        machine
        for p in engine.holdings.positions.values()
        for machine, its in p.machines.items()
        if its.state is MachineState.NOTICED
    }
    assert noticed == marked
