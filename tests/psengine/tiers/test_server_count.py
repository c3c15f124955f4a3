"""The number of ActivePSs: others are tried where that may help, and kept where clocks are shorter with them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest

from psengine.config import JobConfig, JobError, Stage
from psengine.tiers.measured_stage import WINDOW, ClockTime
from psengine.tiers.server_count import ServerCount
from tests.support.instant_cluster import InstantCluster

SHARDS = 32


def course(seconds: Mapping[int, float], kernel_s: float = 0.5, transient: int = 16, clocks: int = 60) -> list[int]:
    """Return the number of servers of each clock, if a clock takes so many `seconds` with so many servers."""
    choice, found = ServerCount(), list[int]()
    for _ in range(clocks):
        found.append(choice.wanted(transient, SHARDS))
        choice.note(2, transient, SHARDS, found[-1], ClockTime(seconds[found[-1]], kernel_s))
    return found


@pytest.mark.parametrize(
    ("seconds", "kernel_s", "tried", "kept"),
    [
        ({8: 2.0, 4: 1.0, 16: 0.5}, 0.5, {8, 4}, 4),  # what is quicker is not left for a third number
        ({8: 2.0, 4: 3.0, 16: 1.0}, 0.5, {8, 4, 16}, 16),
        ({8: 2.0, 4: 1.95, 16: 1.95}, 0.5, {8, 4, 16}, 8),  # hardly quicker
        ({8: 2.0, 4: 1.0}, 1.9, {8}, 8),  # kernels take nearly all of it
        ({8: 0.4, 4: 0.1}, 0.1, {8}, 8),  # clocks are short
    ],
)
def test_half_and_twice_as_many_are_tried(
    seconds: Mapping[int, float], kernel_s: float, tried: set[int], kept: int
) -> None:
    found = course(seconds, kernel_s)
    assert (set(found), found[-1]) == (tried, kept)
    for number in tried - {kept, 8}:
        assert found.count(number) == WINDOW + 1
    assert sum(one != other for one, other in pairwise(found)) <= 3


def test_two_nodes_have_one_server_or_two() -> None:
    assert set(course({1: 1.0, 2: 2.0}, transient=2)) == {1, 2}


class Course:
    """A job of 16 transient nodes, with clocks of two seconds with eight servers, and of one with others."""

    def __init__(self) -> None:
        self.choice = ServerCount()
        self.run(16, 3 * WINDOW)

    def run(self, transient: int, clocks: int, stage: Stage = 2) -> int:
        for _ in range(clocks):
            now = self.choice.wanted(transient, SHARDS)
            self.choice.note(stage, transient, SHARDS, now, ClockTime(2.0 if now == 8 else 1.0, 0.5))
        return self.choice.wanted(transient, SHARDS)


def test_what_was_found_survives_some_joins_and_losses_and_another_stage() -> None:
    course = Course()
    assert course.run(16, 1) == 4
    assert course.run(13, WINDOW) == 4
    assert course.run(3, 0) == 3, "no more servers than nodes"
    assert course.run(16, WINDOW, stage=3) == 4
    assert course.run(32, 1) == 16, "twice as many nodes are measured anew"


def test_a_trial_in_another_stage_begins_anew() -> None:
    course = Course.__new__(Course)
    course.choice = ServerCount()
    assert course.run(16, WINDOW + 2) == 4
    assert course.choice.trying
    assert course.run(16, 1, stage=3) == 8
    assert not course.choice.trying


def test_clocks_are_measured_once_the_shards_have_moved() -> None:
    choice = ServerCount()
    for _ in range(WINDOW + 2):
        choice.note(2, 16, SHARDS, 8, ClockTime(2.0, 0.5))
    assert choice.wanted(16, SHARDS) == 4
    for _ in range(3 * WINDOW):
        choice.note(2, 16, SHARDS, 8, ClockTime(9.0, 0.5))
        assert choice.wanted(16, SHARDS) == 4
    for clock in range(3 * WINDOW):
        choice.note(2, 16, SHARDS, 4, ClockTime(1.0, 0.5))
        if clock % WINDOW == 0:
            choice.interrupt()
        assert choice.trying


@pytest.mark.parametrize(("servers", "found"), [(None, {6, 3}), (2, {2})])
def test_the_shards_of_a_job_move_to_the_servers_that_are_quicker_or_fixed(
    servers: int | None, found: set[int]
) -> None:
    config = JobConfig(
        "job",
        n_partitions=24,
        n_shards=12,
        n_reliable=2,
        clocks=99,
        stage=2,
        start_patience_s=0.0,
        push_tree=False,
        servers=servers,
    )
    cluster = InstantCluster(config, transient=12)
    seen = []
    for _ in range(40):
        seen.append(len({owner.node for owner in cluster.controller.shards.owners}))
        cluster.do_clock(1.0 if seen[-1] == 3 else 2.0)
    in_stage_2 = seen[6:]  # before, the shards leave the reliable nodes
    assert (set(in_stage_2), in_stage_2[-1]) == (found, min(found))
    assert not cluster.controller.rollbacks


def test_no_servers_are_refused() -> None:
    config = JobConfig("job", clocks=1, servers=2).to_dict()
    assert JobConfig.from_dict(config).servers == 2
    with pytest.raises(JobError, match="servers is 0: it must be at least 1"):
        JobConfig.from_dict({**config, "servers": 0})
