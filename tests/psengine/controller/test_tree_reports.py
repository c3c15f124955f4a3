"""Micro-tasks whose updates were added up are completed together, or dispatched again together."""

from __future__ import annotations

from psengine.config import JobConfig
from psengine.protocol.events import BatchDone, BatchFailed, Contribution, NodesLost, TimerFired
from psengine.protocol.instructions import Dispatch
from tests.support.controller_invariants import check_invariants
from tests.support.instant_cluster import InstantCluster


def cluster_of_four() -> tuple[InstantCluster, dict[str, Dispatch]]:
    """Return a cluster whose four nodes have a batch each, two partitions, in the tree."""
    config = JobConfig(
        "job", n_partitions=8, n_shards=2, n_reliable=4, clocks=9, start_patience_s=0.0, push_tree=True, stage=1
    )
    cluster = InstantCluster(config, transient=0)
    return cluster, {batch.node: batch for batch in cluster.batches}


def report(cluster: InstantCluster, batches: dict[str, Dispatch]) -> BatchDone:
    """Return the report of the root, whose sums hold the updates of all."""
    root, *others = sorted(batches.values(), key=lambda batch: batch.tasks[0].partition)
    assert root.place is not None
    assert not root.place.parent
    contributions = tuple(Contribution(b.node, b.address, cluster.results(b)) for b in others)
    return BatchDone(root.node, root.address, root.clock, cluster.results(root), 2.0, contributions)


def attempts(cluster: InstantCluster) -> dict[int, int]:
    return {task.partition: task.attempt for batch in cluster.batches for task in batch.tasks}


def test_one_report_completes_the_clock_and_a_second_one_nothing() -> None:
    cluster, batches = cluster_of_four()
    places = {batch.node: batch.place for batch in cluster.batches}
    assert {place.tree for place in places.values() if place is not None} == {1}
    assert sum(len(place.children) for place in places.values() if place is not None) == 3
    cluster.batches = []
    for _ in range(2):
        cluster.feed(report(cluster, batches))
        assert cluster.controller.book is not None
        assert cluster.controller.book.common == 1
        assert {batch.clock for batch in cluster.batches} == {2}
        assert len(cluster.batches) == 4
    assert cluster.controller.progress.done_by_tier["reliable"] == 8


def test_an_effect_that_does_not_count_has_all_of_them_sent_again() -> None:
    cluster, batches = cluster_of_four()
    child = max(batches.values(), key=lambda batch: batch.tasks[0].partition)
    failed = tuple((task.partition, task.attempt) for task in child.tasks)
    cluster.feed(BatchFailed(child.node, child.address, 1, failed, "its parent did not answer", False, 1.0))
    cluster.batches = []
    cluster.feed(report(cluster, batches))
    assert cluster.controller.book is not None
    assert cluster.controller.book.completions == 0
    cluster.feed(TimerFired(3.0))
    assert attempts(cluster) == dict.fromkeys(range(8), 2)
    assert all(batch.place is None for batch in cluster.batches), "what is sent again goes to the servers"
    cluster.do_clock(1.0)
    assert cluster.controller.book.common == 1


def test_sums_of_a_node_that_was_given_up_count_for_nobody() -> None:
    """Its children have been told that it has reported them: they report nothing themselves."""
    cluster, batches = cluster_of_four()
    done = report(cluster, batches)
    cluster.batches = []
    cluster.feed(NodesLost({done.address: "silent"}, 1.0))
    cluster.feed(done)
    assert cluster.controller.book is not None
    for _ in range(8):
        cluster.tick()
        cluster.do_clock(1.0)
    assert cluster.controller.book.common >= 1, "nobody waits for a report that has come in vain"
    check_invariants(cluster.controller)


def test_a_failure_that_is_heard_late_changes_nothing() -> None:
    cluster, batches = cluster_of_four()
    cluster.feed(report(cluster, batches))
    cluster.batches = []
    for batch in batches.values():
        tasks = tuple((task.partition, task.attempt) for task in batch.tasks)
        cluster.feed(BatchFailed(batch.node, batch.address, 1, tasks, "its parent did not answer", False, 2.5))
    cluster.tick()
    assert cluster.batches == []
