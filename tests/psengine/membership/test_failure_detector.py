"""Silence is counted while the controller looks, and has a bound that a slow node does not reach."""

from __future__ import annotations

from distributed.scheduler import heartbeat_interval
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.membership.failure_detector import (
    SILENCE_S,
    FailureDetector,
    heartbeat_interval_s,
    silence_timeout_s,
)

TICK_S = 0.25


def looks(
    heartbeats: FailureDetector, beats: dict[str, float], from_s: float, to_s: float, patience: float
) -> set[str]:
    """Look every tick; return who is taken for lost at the last look."""
    found: dict[str, float] = {}
    for tick in range(round((to_s - from_s) / TICK_S) + 1):
        found = heartbeats.look(beats, from_s + tick * TICK_S, lambda address: patience)
    return set(found)


def test_who_is_silent_for_longer_than_the_bound_is_lost_and_who_beats_is_not() -> None:
    heartbeats = FailureDetector()
    assert looks(heartbeats, {"a": 1.0, "b": 1.0}, 0.0, 9.0, 10.0) == set()
    assert looks(heartbeats, {"a": 1.0, "b": 2.0}, 9.0, 10.5, 10.0) == {"a"}
    assert looks(heartbeats, {"b": 2.0}, 10.5, 18.0, 10.0) == set()
    assert looks(heartbeats, {"b": 2.0, "a": 1.0}, 18.0, 20.0, 10.0) == {"b"}, "who comes back begins anew"


@given(st.lists(st.floats(0.25, 100.0), max_size=5))
def test_a_controller_that_stood_still_takes_nobody_for_lost(stops: list[float]) -> None:
    heartbeats, now_s = FailureDetector(), 0.0
    heartbeats.look({"a": 1.0}, now_s, lambda address: SILENCE_S)
    for stop_s in stops:
        now_s += stop_s
        assert heartbeats.look({"a": 1.0}, now_s, lambda address: SILENCE_S) == {}


def test_a_node_at_work_is_given_as_long_as_its_kernels_may_take() -> None:
    assert silence_timeout_s(False, 100.0) == SILENCE_S
    assert silence_timeout_s(True, 0.1) == SILENCE_S
    assert silence_timeout_s(True, 20.0) == 60.0
    assert silence_timeout_s(True, None) == 3 * SILENCE_S


def test_the_interval_of_heartbeats_is_that_of_the_scheduler() -> None:
    sizes = range(5000)
    assert [heartbeat_interval_s(n) for n in sizes] == [heartbeat_interval(n) for n in sizes]


def test_among_a_thousand_nodes_none_is_lost_before_four_heartbeats_are_missing() -> None:
    """Each beats every 6.1 s there: ten seconds of silence are two heartbeats that came late."""
    heartbeats, others = FailureDetector(), dict.fromkeys(map(str, range(1023)), 0.0)
    interval_s = heartbeat_interval_s(1024)
    found: set[str] = set()
    for second in range(round(4 * interval_s) + 2):
        assert not found, f"lost after {second - 1} s"
        found = set(heartbeats.look(dict.fromkeys(others, float(second)) | {"a": 0.5}, second, lambda address: 10.0))
    assert found == {"a"}
