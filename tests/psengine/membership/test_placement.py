import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.config import JobConfig, JobError
from proteus_spot.psengine.membership.membership import Membership
from proteus_spot.psengine.membership.placement import (
    Capacity,
    Limits,
    Placement,
    balance,
    contiguous_runs,
    quotas,
    switch,
    take_over,
)
from proteus_spot.psengine.protocol.instructions import LoadPartitions
from proteus_spot.psengine.tables.tree_sum import largest_subtrees
from proteus_spot.psengine.tiers.stages import StageThresholds, stage_for

seats_of = st.lists(st.integers(1, 4), min_size=1, max_size=6).map(
    lambda threads: [Capacity(f"n{i}", t) for i, t in enumerate(threads)]
)


@given(st.integers(1, 40), seats_of)
def test_balance_follows_threads(n: int, seats: list[Capacity]) -> None:
    owners = balance((None,) * n, seats)
    total = sum(seat.threads for seat in seats)
    counts = Counter(owners)
    for seat in seats:
        assert abs(counts[seat.node] - n * seat.threads / total) < 1
    assert balance(owners, seats) == owners  # what is balanced stays


@given(st.integers(1, 40), seats_of)
def test_a_node_that_joins_moves_only_what_it_gets(n: int, seats: list[Capacity]) -> None:
    before = balance((None,) * n, seats)
    after = balance(before, [*seats, Capacity("new", 2)])
    moved = [p for p in range(n) if before[p] != after[p]]
    share = quotas(before, [*seats, Capacity("new", 2)])["new"]
    assert Counter(after)["new"] == share
    assert all(after[p] == "new" for p in moved)


def test_the_paper_s_toy_example() -> None:
    """Fig. 5: two nodes with half of 40 pieces each; two more come and work on a quarter each; they go again."""
    old = [Capacity("m1", 1, frozenset(range(20))), Capacity("m2", 1, frozenset(range(20, 40)))]
    start = Placement(("m1",) * 20 + ("m2",) * 20, (None,) * 40)
    loading = [Capacity("m3", 1), Capacity("m4", 1)]
    target = balance(start.owner, [*old, *loading])
    assert Counter(target) == {"m1": 10, "m2": 10, "m3": 10, "m4": 10}
    assert switch(start, target, [*old, *loading]) == start  # nothing moves before it is loaded
    loaded = [Capacity(s.node, 1, frozenset(p for p in range(40) if target[p] == s.node)) for s in loading]
    grown = switch(start, target, [*old, *loaded])
    assert grown.owner == target
    shrunk = take_over(grown, old)
    assert shrunk.owner == start.owner  # each piece back with its previous owner, who still holds it


def test_orphans_go_to_the_previous_owner_then_to_a_holder_then_to_the_least_loaded() -> None:
    placement = Placement(("gone", "gone", "gone", "a"), ("b", None, None, None))
    seats = [Capacity("a", 1), Capacity("b", 1), Capacity("c", 1, frozenset({1}))]
    after = take_over(placement, seats)
    assert after.owner[:2] == ("b", "c")
    assert after.owner[3] == "a"
    assert after.owner[2] in ("a", "b", "c")
    assert take_over(placement, []).owner == (None,) * 4


def test_orphans_go_to_those_they_are_planned_for_but_not_from_who_stands_by_to_who_would_have_to_load() -> None:
    placement = Placement(("gone",) * 5, ("a", "a", "a", None, None))
    seats = [Capacity("a", 1, frozenset({0, 1, 2})), Capacity("b", 1, frozenset({0}))]
    after = take_over(placement, seats, ("b", "b", "a", "b", "gone too"))
    assert after.owner[:4] == ("b", "a", "a", "b")
    assert after.owner[4] in ("a", "b")
    assert after.previous == ("a", None, None, None, None)


def test_stages_follow_the_ratio_and_do_not_flap() -> None:
    limits = StageThresholds()
    assert [stage_for(t, 1, 1, limits) for t in (0, 1, 2, 15, 16)] == [1, 1, 2, 2, 3]
    assert stage_for(15, 1, 3, limits) == 3
    assert stage_for(13, 1, 3, limits) == 2
    assert stage_for(4, 4, 2, limits) == 2
    assert stage_for(7, 8, 2, limits) == 1
    assert stage_for(0, 1, 3, limits) == 1
    with pytest.raises(ValueError, match="no reliable node"):
        stage_for(4, 0, 2, limits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"job_id": "Up"}, "job_id 'Up'"),
        ({"n_partitions": 0}, "n_partitions is 0"),
        ({"staleness": -1}, "staleness is -1"),
        ({"clocks": None}, "clocks, passes and max_seconds are all unset"),
        ({"clocks": 0}, "clocks is 0"),
        ({"colour": 1}, "unknown field 'colour'"),
    ],
)
def test_a_bad_job_is_told_in_one_line(change: dict[str, object], message: str) -> None:
    good = JobConfig("job", clocks=3).to_dict()
    assert JobConfig.from_dict(good) == JobConfig("job", clocks=3)
    with pytest.raises(JobError, match=message):
        JobConfig.from_dict(good | change)


@given(st.integers(8, 64), st.integers(1, 5), st.data())
def test_partitions_that_have_come_apart_become_runs_again(n: int, nodes: int, data: st.DataObject) -> None:
    names = [f"n{i}" for i in range(nodes)]
    owners = tuple(data.draw(st.lists(st.sampled_from(names), min_size=n, max_size=n)))
    holds = {name: frozenset(data.draw(st.sets(st.integers(0, n - 1)))) for name in names}
    after = contiguous_runs(owners, [Capacity(name, 1, holds[name]) for name in names])
    pieces = sum(here != before for here, before in pairwise((None, *owners)))
    if pieces <= 1.5 * nodes:
        assert after == owners
    else:
        assert Counter(after) == Counter(owners)
        assert sum(here != before for here, before in pairwise((None, *after))) == len(set(owners))


def test_a_run_goes_to_whoever_has_most_of_it_loaded() -> None:
    mixed = tuple("ab" * 8)
    seats = [Capacity("a", 1, frozenset(range(8, 16))), Capacity("b", 1, frozenset(range(8)))]
    assert contiguous_runs(mixed, seats) == ("b",) * 8 + ("a",) * 8
    assert contiguous_runs((None, *mixed[1:]), seats) == (None, *mixed[1:])


def test_who_stays_has_whole_runs_again_when_others_came_and_went_one_by_one() -> None:
    members = Membership()
    members.adopt(JobConfig("job", n_partitions=64, clocks=1, n_reliable=4))

    def replan() -> None:
        members.replan(True)
        for node in members.in_state("joining", "ready"):
            node.holds |= frozenset(p for p, owner in enumerate(members.target) if owner == node.name)
            node.state = "ready"
        members.replan(True)

    for name in ("r0", "r1", "r2", "r3"):
        members.join(name, name, "reliable", 1)
    replan()
    start = members.placement.owner
    for name in (transient := [f"t{i}" for i in range(12)]):
        members.join(name, name, "transient", 1)
        replan()
    for name in transient:
        members.drain([name], 1.0)
        replan()
    members.settle(lambda name: False)
    assert any(len(largest_subtrees(members.placement.owned_by(name), 64)) > 4 for name in ("r0", "r1", "r2", "r3"))
    for name in transient:
        members.lose(members.nodes[name])
    replan()
    assert members.placement.owner == start


@pytest.mark.parametrize(
    ("lost", "have_states", "runs"),
    [(12, False, True), (1, False, False), (12, True, False)],
    ids=["most are to be loaded", "most are there", "states would move"],
)
def test_after_a_loss_each_node_has_one_run_at_once_where_most_is_to_be_loaded(
    lost: int, have_states: bool, runs: bool
) -> None:
    members = Membership()
    members.adopt(JobConfig("job", n_partitions=64, clocks=1, n_reliable=4))
    names = [*(f"r{i}" for i in range(4)), *(f"t{i}" for i in range(12))]
    for name in names:
        members.join(name, name, "reliable" if name[0] == "r" else "transient", 1)
    members.replan(False)
    for node in members.in_state("joining"):
        node.holds, node.state = node.wanted or frozenset(), "ready"
    members.replan(True)
    for name in names[-lost:]:
        members.lose(members.nodes[name])
    members.take_over()
    members.reassign_unloaded(have_states)
    at_once = members.placement.owner
    changes = sum(owner != other for owner, other in pairwise(at_once))
    assert (changes == len(names) - lost - 1) == runs
    assert max(Counter(at_once).values()) - min(Counter(at_once).values()) <= 1
    members.replan(True, have_states)
    for node in members.in_state("ready"):
        node.holds |= node.wanted or frozenset()
    members.replan(True, have_states)
    assert (members.placement.owner == at_once) or not runs


def test_a_transient_node_that_loads_more_lets_go_of_what_it_neither_is_to_own_nor_stands_by_for() -> None:
    """Else whoever stays for days comes to hold the whole of the data. The reliable tier keeps what it has loaded."""
    members = Membership()
    members.adopt(JobConfig("job", n_partitions=12, clocks=1))
    let_go = 0

    def replan() -> None:
        nonlocal let_go
        before = {name: node.holds for name, node in members.nodes.items()}
        for order in members.replan(True):
            assert isinstance(order, LoadPartitions)
            node, asked = members.nodes[order.node], frozenset(order.partitions)
            assert asked >= {p for p, owner in enumerate(members.target) if owner == order.node}
            assert asked >= set(members.placement.owned_or_previous(order.node))
            members.loaded(node, order.request, order.partitions)
            assert node.holds == asked
            assert node.tier == "transient" or node.holds >= before[order.node]
            let_go += len(before[order.node] - asked)
            node.state = "ready"
        members.replan(True)

    members.join("r", "r", "reliable", 1)
    replan()
    dice = random.Random(1)
    for number in range(40):
        there = [node for node in members.in_state("ready") if node.tier == "transient"]
        if len(there) > 2 and dice.random() < 0.5:
            members.lose(dice.choice(there))
        else:
            members.join(f"t{number}", f"t{number}", "transient", 1)
        replan()
    assert let_go


def test_a_late_report_of_an_earlier_request_does_not_bring_back_what_has_made_room() -> None:
    members = Membership()
    members.adopt(JobConfig("job", n_partitions=4, clocks=1))
    node = members.join("a", "a", "transient", 1)
    node.wanted, node.request = frozenset({1, 2}), 2
    members.loaded(node, 1, (0, 1))
    assert node.holds == {1}
    members.loaded(node, 2, (1, 2, 3))  # 3 was read when it was to be worked on
    assert node.holds == {1, 2, 3}


def test_a_newcomer_of_the_tier_that_rests_is_asked_to_load_nothing_and_is_ready_to_serve() -> None:
    members = Membership()
    members.adopt(JobConfig("job", n_partitions=4, clocks=1))
    members.resting = "reliable"
    members.join("t", "t", "transient", 1)
    members.replan(True)
    members.join("r", "r", "reliable", 1)
    (order,) = members.replan(True)
    assert isinstance(order, LoadPartitions)
    assert (order.node, order.partitions) == ("r", ())
    assert members.replan(True) == [], "once"


@given(st.integers(1, 40), seats_of, st.integers(1, 12), st.data())
def test_a_node_owns_no_more_than_it_may_and_withheld_partitions_have_no_owner(
    n: int, seats: list[Capacity], most: int, data: st.DataObject
) -> None:
    withheld = data.draw(st.frozensets(st.integers(0, n - 1)))
    names = [*(seat.node for seat in seats), "gone"]
    seats = [replace(seat, holds=data.draw(st.frozensets(st.integers(0, n - 1)))) for seat in seats]
    before = tuple(None if p in withheld else data.draw(st.sampled_from([*names, None])) for p in range(n))
    fits: list[str | None] = []
    for owner in before:  # those that are there already own no more than they may
        fits.append(owner if fits.count(owner) < most else None)
    previous = tuple(data.draw(st.lists(st.sampled_from([*names, None]), min_size=n, max_size=n)))
    limits = Limits(most, withheld)
    target = balance(tuple(fits), seats, limits)
    for owners in (target, take_over(Placement(tuple(fits), previous), seats, target, limits).owner):
        counts = Counter(owner for owner in owners if owner is not None)
        assert max(counts.values(), default=0) <= most
        assert all(owners[p] is None for p in withheld)
        assert counts.keys() <= {seat.node for seat in seats}
        assert sum(counts.values()) == min(n - len(withheld), most * len(seats))
