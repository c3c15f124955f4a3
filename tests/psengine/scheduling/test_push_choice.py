"""Whether pushes use the tree: tried where it may help, kept where clocks are shorter with it."""

from __future__ import annotations

import pytest

from psengine.config import JobConfig
from psengine.scheduling.push_choice import WINDOW, PushChoice, Pushers
from tests.support.instant_cluster import InstantCluster

MANY = Pushers(64, 32, 3)


def course(direct_s: float, tree_s: float, push_s: float, nodes: Pushers = MANY, clocks: int = 40) -> list[bool]:
    choice, found = PushChoice(), list[bool]()
    for clock in range(clocks):
        found.append(choice.on)
        choice.pushed(clock, push_s)
        choice.note(nodes, clock, tree_s if choice.on else direct_s)
    return found


@pytest.mark.parametrize(
    ("direct_s", "tree_s", "push_s", "nodes", "tried", "kept"),
    [
        (2.0, 1.0, 1.0, MANY, True, True),
        (2.0, 1.95, 1.0, MANY, True, False),  # hardly shorter
        (2.0, 3.0, 1.0, MANY, True, False),
        (2.0, 1.0, 0.1, MANY, False, False),  # pushes are a twentieth of a clock
        (2.0, 1.0, 1.0, Pushers(4, 2, 2), False, False),  # eight messages
    ],
)
def test_the_tree_is_tried_and_kept_if_clocks_are_shorter(
    direct_s: float, tree_s: float, push_s: float, nodes: Pushers, tried: bool, kept: bool
) -> None:
    found = course(direct_s, tree_s, push_s, nodes)
    assert any(found) == tried
    assert found[-1] == kept
    assert sum(found) in ((0,) if not tried else (40 - WINDOW - 2,) if kept else (WINDOW + 1,))


def test_other_numbers_of_nodes_begin_anew_and_a_few_more_do_not() -> None:
    choice = PushChoice()
    for clock in range(3 * WINDOW):
        choice.pushed(clock, 1.0)
        choice.note(MANY, clock, 1.0 if choice.on else 2.0)
    assert choice.on
    assert not choice.note(Pushers(60, 30, 3), 50, 9.0)
    assert choice.on
    assert choice.note(Pushers(40, 20, 3), 51, 9.0)
    assert not choice.on


def test_what_is_interrupted_is_measured_anew() -> None:
    choice = PushChoice()
    for clock in range(3 * WINDOW):
        choice.pushed(clock, 1.0)
        choice.note(MANY, clock, 2.0)
        if clock % WINDOW == 0:
            choice.interrupt()
        assert not choice.on


@pytest.mark.parametrize("push_tree", [None, True, False])
def test_a_job_may_fix_it(push_tree: bool | None) -> None:
    """Of 2 reliable and 10 transient nodes, with five servers; clocks with the tree are twice as short."""
    config = JobConfig(
        "job", n_partitions=24, n_shards=5, n_reliable=2, clocks=99, stage=2, start_patience_s=0.0, push_tree=push_tree
    )
    cluster = InstantCluster(config, transient=10)
    found = []
    for _ in range(30):
        in_tree = [batch.place is not None for batch in cluster.batches]
        assert len(set(in_tree)) == 1
        found.append(in_tree[0])
        cluster.do_clock(1.0 if in_tree[0] else 2.0, push_s=1.0)
    if push_tree is None:
        assert (found[0], found[-1]) == (False, True)
    else:
        assert set(found) == {push_tree}
