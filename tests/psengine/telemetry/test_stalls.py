"""What a stall is: the disturbed clocks together, less as many undisturbed ones near them; holds are taken out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.telemetry.stalls import NEAR, Stall, stalls, stalls_of


def change(event: str, second: float, until: float | None, node: str = "t1") -> dict[str, Any]:
    return {"event": event, "node": node, "second": second, "until": until}


def only(found: list[Stall]) -> Stall:
    (stall,) = found
    return stall


def test_a_loss_in_a_clock_costs_what_the_clock_took_beyond_its_neighbours() -> None:
    stall = only(stalls([1.0, 1.0, 1.0, 1.75, 1.0], [], [change("loss", 3.25, 4.5)]))
    assert stall == Stall("loss", ("t1",), 3.25, (4, 4), 1.0, 0.75)
    assert stall.record() == {
        "event": "loss",
        "nodes": ["t1"],
        "second": 3.25,
        "clocks": [4, 4],
        "usual_ms": 1000.0,
        "stall_ms": 750.0,
    }


def test_clocks_that_are_longer_for_good_are_no_stall() -> None:
    """Two nodes do the work of three from then on: nobody waits."""
    stall = only(stalls([2.0] * 5 + [3.0] * 6, [], [change("drain", 10.0, 15.5)]))
    assert (stall.clocks, stall.usual_s, stall.stall_s) == ((6, 7), 3.0, 0.0)


def test_clocks_that_are_shorter_for_good_are_none_either_and_hide_none() -> None:
    stall = only(stalls([3.0] * 5 + [4.0] + [1.0] * 6, [], [change("join", 15.0, 18.0)]))
    assert (stall.clocks, stall.stall_s) == ((6, 6), 1.0)


def test_what_was_done_again_after_a_loss_is_part_of_it() -> None:
    """All go back from clock 5: its seconds and those of the clock before are part of the next ones'."""
    stall = only(stalls([1.0, 1.0, 1.0, 2.5, 1.0, 1.0], [], [change("loss", 4.5, 6.5)]))
    assert (stall.clocks, stall.stall_s) == ((4, 5), 1.5)


def test_a_time_in_which_the_job_was_held_is_no_wait() -> None:
    stall = only(stalls([1.0, 1.0, 4.0, 1.0], [(2.0, 4.75)], [change("join", 2.5, 5.0)]))
    assert (stall.clocks, stall.stall_s) == ((3, 3), 0.25)


def test_changes_of_a_kind_in_one_clock_are_told_together_and_others_apart() -> None:
    changes = [change("loss", 1.25, 2.0, "t1"), change("loss", 1.5, 1.75, "t2"), change("notice", 1.5, 3.5, "t3")]
    found = stalls([1.0, 2.0, 1.0, 1.0, 1.0], [], changes)
    assert [(stall.event, stall.nodes, stall.clocks) for stall in found] == [
        ("loss", ("t1", "t2"), (2, 2)),
        ("notice", ("t3",), (2, 3)),
    ]
    assert {stall.usual_s for stall in found} == {1.0}, "undisturbed clocks are those of no change"
    assert [stall.stall_s for stall in found] == [1.0, 1.0]


def test_a_disturbed_clock_is_no_measure_for_the_next_change() -> None:
    changes = [change("loss", 1.0, 3.0), change("join", 3.0, 5.0)]
    assert [(of.usual_s, of.stall_s) for of in stalls([1.0, 2.0, 2.0, 1.0], [], changes)] == [(1.0, 1.0), (1.0, 1.0)]


def test_a_change_that_was_never_carried_out_disturbs_to_the_end() -> None:
    assert only(stalls([1.0, 1.0, 1.5, 1.5], [], [change("notice", 2.0, None)])).clocks == (3, 4)


def test_where_nothing_is_to_be_compared_nothing_is_said() -> None:
    assert only(stalls([2.0, 2.0], [], [change("join", 0.5, 3.0)])).stall_s is None
    after_the_end = only(stalls([2.0, 2.0], [], [change("loss", 4.5, None)]))
    assert (after_the_end.clocks, after_the_end.stall_s) == (None, 0.0)
    assert stalls([], [], []) == stalls_of({}) == []


def test_only_clocks_near_by_are_looked_at() -> None:
    far = [9.0] * 10 + [1.0] * NEAR
    assert only(stalls([*far, 1.5], [], [change("loss", sum(far) + 0.1, None)])).stall_s == pytest.approx(0.5)


@given(
    st.lists(st.floats(0.001, 10.0), min_size=1, max_size=30),
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=6),
)
def test_clocks_are_of_the_job_and_a_stall_is_no_longer_than_they(
    seconds: list[float], spans: list[tuple[float, float]]
) -> None:
    changes = [change("loss", min(a, b), max(a, b)) for a, b in sorted(spans, key=min)]
    for stall in stalls(seconds, [], changes):
        if stall.clocks is None:
            assert stall.second >= sum(seconds) - 1e-6
            continue
        first, last = stall.clocks
        assert 1 <= first <= last <= len(seconds)
        assert stall.stall_s is None or -1e-9 <= stall.stall_s <= sum(seconds[first - 1 : last]) + 1e-9


def test_a_job_that_lists_its_last_clocks_alone_has_the_stalls_of_these() -> None:
    seconds = [1.0] * 10 + [3.0] + [1.0] * 10
    changes = [
        {"event": "loss", "node": "a", "second": 2.5, "until": 3.5},
        {"event": "loss", "node": "b", "second": 10.5, "until": 12.5},
    ]
    (_, whole) = stalls(seconds, [], changes)
    (part,) = stalls(seconds[5:], [], changes, (5, 5.0))
    assert part == whole
    assert (part.nodes, part.clocks, part.stall_s) == (("b",), (11, 11), 2.0)
