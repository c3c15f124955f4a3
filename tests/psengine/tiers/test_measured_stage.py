"""Stage 2 or 3 by measured time: the faster one is reached, with few changes, and only committed clocks decide."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psengine.config import JobConfig, Stage
from psengine.controller.controller import Controller
from psengine.protocol import events
from psengine.protocol.instructions import BackUp, Dispatch, Instruction, LoadPartitions, OpenShards, TakeShards
from psengine.tiers.measured_stage import HYSTERESIS, LEAST_S, WINDOW, ClockTime, Footprint, StageTimes, predicted

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


class Cluster:
    """A controller of 4 reliable and 6 transient nodes that do at once what they are told, clock after clock."""

    def __init__(self, kernel_s: float, **config: object) -> None:
        self.controller, self.now_s, self.kernel_s = Controller(), 0.0, kernel_s
        self.batches: list[Dispatch] = []
        for i in range(10):
            tier = "reliable" if i < 4 else "transient"
            self.feed(events.NodeJoined(f"n{i}", f"a{i}", tier, 1, 0.0))
        job = JobConfig("job", n_partitions=60, n_shards=3, n_reliable=4, clocks=99, start_patience_s=0.0, **config)
        self.feed(events.JobStarted(job, 0.0))
        for _ in range(4):
            self.tick()

    def feed(self, event: events.Event) -> None:
        for order in self.controller.handle(event):
            self.do(order)

    def do(self, order: Instruction) -> None:
        match order:
            case LoadPartitions():
                self.feed(events.NodeReady(order.node, order.address, order.request, order.partitions, self.now_s))
            case OpenShards():
                self.feed(events.ShardsOpened(order.node, order.address, order.shards, order.epoch, self.now_s))
            case TakeShards():
                self.feed(events.ShardsTaken(order.node, order.address, order.shards, order.epoch, self.now_s))
            case BackUp():
                self.feed(events.BackedUp(order.node, order.address, order.number, order.shards, self.now_s))
            case Dispatch():
                self.batches.append(order)

    def tick(self) -> None:
        self.now_s += 0.25
        self.feed(events.TimerFired(self.now_s))

    def clock(self) -> Stage:
        """Do the clock under way, in which a table takes a second; return its stage."""
        stage, batches = self.controller.stage, self.batches
        self.batches = []
        workers = 6 if stage == 3 else 10
        most = max(len(batch.tasks) for batch in batches)
        self.now_s += most * self.kernel_s + (workers - 1) / 3
        for batch in batches:
            stats = tuple(events.TaskStats(t.partition, t.attempt, 1.0, 1, self.kernel_s) for t in batch.tasks)
            self.feed(events.BatchDone(batch.node, batch.address, batch.clock, stats, self.now_s))
        self.tick()
        return stage


@pytest.mark.parametrize(
    ("kernel_s", "config", "last"),
    [(0.01, {}, 3), (1.0, {}, 2), (0.01, {"stage": 2}, 2), (0.01, {"stage_2_above": 2.0}, 1)],
)
def test_the_controller_changes_the_stage_while_it_trains(
    kernel_s: float, config: dict[str, object], last: Stage
) -> None:
    cluster, again = Cluster(kernel_s, **config), Cluster(kernel_s, **config)
    found = [cluster.clock() for _ in range(30)]
    assert found[-1] == last
    assert changes(found) <= 2
    assert found == [again.clock() for _ in range(30)], "decided by the events alone"
    assert cluster.controller.book is not None
    assert cluster.controller.book.common == 30
    cluster.controller.validate()
