"""Stage 2 or 3 by measured time: the faster one is reached, with few changes, and only committed clocks decide."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.psengine.config import JobConfig, Stage
from proteus_spot.psengine.tiers.measured_stage import (
    HYSTERESIS,
    LEAST_S,
    WINDOW,
    ClockTime,
    Footprint,
    StageTimes,
    predicted,
)
from tests.support.controller_invariants import check_invariants
from tests.support.instant_cluster import InstantCluster

EIGHT_AND_NINE = Footprint(8, 9, 8, 9, 5)


def clock_of(nodes: Footprint, work_s: float, table_s: float, stage: Stage) -> ClockTime:
    kernel_s = work_s / nodes.threads(stage)
    return ClockTime(kernel_s + nodes.link_tables(stage) * table_s, kernel_s)


def stages(nodes: Footprint, work_s: float, table_s: float, clocks: int = 60) -> list[Stage]:
    times, found = StageTimes(), list[Stage]()
    for _ in range(clocks):
        found.append(times.choose(nodes, 2))
        times.note(found[-1], nodes, clock_of(nodes, work_s, table_s, found[-1]))
    return found


def changes(found: list[Stage]) -> int:
    return sum(one != other for one, other in pairwise(found))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 32),
    st.integers(1, 64),
    st.floats(0.0, 500.0),
    st.floats(0.0, 10.0),
)
def test_the_faster_stage_is_reached_with_one_change_at_most(
    reliable: int, more: int, work_s: float, table_s: float
) -> None:
    transient = reliable + more
    nodes = Footprint(reliable, transient, reliable, transient, (transient + 1) // 2)
    found = stages(nodes, work_s, table_s)
    assert changes(found) <= 1
    seconds = {stage: clock_of(nodes, work_s, table_s, stage).seconds for stage in (2, 3)}
    assert seconds[found[-1]] <= min(seconds.values()) / (1 - HYSTERESIS) + 1e-9 or seconds[2] < LEAST_S


def test_it_turns_where_kernels_take_as_long_as_servers_have_tables_less_to_send() -> None:
    """Of 8 and 9 nodes: stage 3 saves 1.6 tables a clock, and computes for 17/9 as long."""
    assert EIGHT_AND_NINE.link_tables(2) - EIGHT_AND_NINE.link_tables(3) == pytest.approx(8 / 5)
    for kernels, stage in ((0.5, 3), (1.7, 2), (2.5, 2), (10.0, 2)):
        assert stages(EIGHT_AND_NINE, kernels * 2.0 * 17, 2.0)[-1] == stage, kernels
    two, three = (clock_of(EIGHT_AND_NINE, 40.0, 2.0, stage) for stage in (2, 3))
    assert predicted(two, 2, 3, EIGHT_AND_NINE) == pytest.approx(three.seconds)
    assert predicted(three, 3, 2, EIGHT_AND_NINE) == pytest.approx(two.seconds)


def test_a_prediction_that_was_wrong_is_corrected_by_the_measurement() -> None:
    """The rest of a clock was not the servers' links: stage 3 is no faster, and is left for good."""
    times, found = StageTimes(), list[Stage]()
    for _ in range(6 * WINDOW):
        found.append(times.choose(EIGHT_AND_NINE, 2))
        times.note(found[-1], EIGHT_AND_NINE, ClockTime(5.0 if found[-1] == 2 else 6.0, 0.1))
    assert 3 in found
    assert found[-1] == 2
    assert changes(found) == 2


def test_clocks_with_other_nodes_or_after_a_rollback_are_not_mixed() -> None:
    times = StageTimes()
    slow = partial(times.note, clock=ClockTime(9.0, 0.0))
    for _ in range(WINDOW):
        slow(2, EIGHT_AND_NINE)
    assert times.faster(EIGHT_AND_NINE) == 2, "the first one is not measured"
    slow(2, EIGHT_AND_NINE)
    assert times.faster(EIGHT_AND_NINE) == 3
    assert times.faster(Footprint(8, 10, 8, 10, 5)) == 2
    times.interrupt()
    assert times.faster(EIGHT_AND_NINE) == 2
    assert times.choose(EIGHT_AND_NINE, 3) == 3, "the ratio alone"
    assert times.choose(EIGHT_AND_NINE, 2) == 2


def clock(cluster: InstantCluster) -> Stage:
    """Do the clock under way, in which a table takes a second; return its stage."""
    stage = cluster.controller.job.stage
    workers = 6 if stage == 3 else 10
    most = max(len(batch.tasks) for batch in cluster.batches)
    cluster.do_clock(most * cluster.kernel_s + (workers - 1) / 3)
    return stage


@pytest.mark.parametrize(
    ("kernel_s", "config", "last"),
    [(0.01, {}, 3), (1.0, {}, 2), (0.01, {"stage": 2}, 2), (0.01, {"stage_2_above": 2.0}, 1)],
)
def test_the_controller_changes_the_stage_while_it_trains(
    kernel_s: float, config: dict[str, object], last: Stage
) -> None:
    job = JobConfig("job", n_partitions=60, n_shards=3, n_reliable=4, clocks=99, start_patience_s=0.0, **config)
    cluster, again = (InstantCluster(job, transient=6, kernel_s=kernel_s) for _ in range(2))
    found = [clock(cluster) for _ in range(30)]
    assert found[-1] == last
    assert changes(found) <= 2
    assert found == [clock(again) for _ in range(30)], "decided by the events alone"
    assert cluster.controller.job.tasks is not None
    assert cluster.controller.job.tasks.common == 30
    check_invariants(cluster.controller.job)
