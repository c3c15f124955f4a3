"""Which process has the state of each partition."""

from __future__ import annotations

from proteus_spot.psengine.membership.state_refs import StateRefs
from proteus_spot.psengine.protocol.moved_state import StateRef


def test_the_next_task_begins_with_the_last_state_and_a_group_with_the_last_one_before_it() -> None:
    refs = StateRefs()
    assert not refs
    assert refs.current(0) is None
    for partition, group in ((0, 1), (1, 1), (0, 2), (0, 4)):
        refs.completed(partition, group, 1, "a")
    assert refs.current(0) == StateRef(0, 4, 1, "a")
    assert refs.at(3) == (StateRef(0, 2, 1, "a"), StateRef(1, 1, 1, "a"))
    refs.drop_before(3)
    assert refs.at(3) == (StateRef(0, 2, 1, "a"), StateRef(1, 1, 1, "a")), "still"
    assert refs.at(1) == (StateRef(1, 1, 1, "a"),)


def test_a_process_that_has_the_only_copy_is_needed_until_another_one_has_it() -> None:
    refs = StateRefs()
    refs.completed(0, 1, 1, "a")
    refs.completed(1, 1, 1, "b")
    assert (refs.held_at("a"), refs.lost(["a"])) == (1, [0])
    refs.taken([StateRef(0, 1, 2, "a")], "b")
    assert refs.held_at("a") == 1, "that was another attempt"
    refs.taken([StateRef(0, 1, 1, "a")], "b")
    assert (refs.held_at("a"), refs.held_at("b"), refs.lost(["a"])) == (0, 2, [])
    refs.completed(0, 2, 1, "c")
    refs.taken([StateRef(0, 1, 1, "a")], "a")  # late
    assert (refs.held_at("a"), refs.held_at("c")) == (0, 1)


def test_after_a_rollback_nothing_later_is_known_and_a_newer_checkpoint_takes_the_place_of_an_older_one() -> None:
    refs = StateRefs()
    refs.completed(0, 3, 1, "a")
    refs.restore([StateRef(0, 2, 0, checkpoint="clock-2"), StateRef(1, 2, 1, "b")])
    assert refs.current(0) == StateRef(0, 2, 0, checkpoint="clock-2")
    assert (refs.held_at("a"), refs.held_at("b"), refs.held_at("")) == (0, 1, 0)
    assert refs.saved("clock-5", {(0, "clock-2")})
    assert [ref.checkpoint for ref in refs.at(9)] == ["clock-5", ""]
    assert not refs.saved("clock-6", {(0, "clock-2"), (1, "clock-5")}), "the state of partition 0 is in neither"
    refs.taken([StateRef(0, 2, 0, checkpoint="clock-2")], "b")
    assert refs.current(0) == StateRef(0, 2, 0, "b")
    assert refs.held_at("b") == 2
