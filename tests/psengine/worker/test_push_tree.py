"""Updates that are added up on a tree of nodes: the same bits and every effect once, whatever nodes are missing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psengine.config import Sgd, TableSpec
from psengine.protocol.answers import ChildSums
from psengine.server.clock_updates import ClockUpdates
from psengine.tables.node_tree import parents
from psengine.tables.row_updates import RowDelta
from psengine.tables.tree_sum import Delta, tree_sum
from psengine.worker.push_messages import BlockSum, add_up, sum_up, under
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import check, job, run_job

TABLES = (TableSpec("dense", 4, 2), TableSpec("rows", 8, 1), TableSpec("ruled", 3, 1, rule=Sgd(0.1)))


def update_of(partition: int, seed: int) -> Delta:
    dice = np.random.default_rng([seed, partition])
    delta: dict[str, Any] = {"dense": dice.standard_normal((4, 2)).astype(np.float32) * 10.0 ** dice.integers(-3, 4)}
    rows = np.flatnonzero(dice.random(8) < 0.4)
    delta["rows"] = RowDelta(rows, dice.standard_normal((len(rows), 1)).astype(np.float32))
    delta["ruled"] = RowDelta(slice(0, 0), np.zeros((0, 1), np.float32))
    return delta


def bits(total: Delta | None) -> dict[str, tuple[bytes, bytes]]:
    found = {}
    for name, delta in (total or {}).items():
        table = next(table for table in TABLES if table.name == name)
        whole = np.zeros((table.n_rows, table.n_cols), np.float32)
        if isinstance(delta, RowDelta):
            whole[delta.rows] = delta.values
        else:
            whole[:] = delta
        found[name] = whole.tobytes()
    return found


@settings(max_examples=150, deadline=None)
@given(
    owners=st.lists(st.integers(0, 6), min_size=1, max_size=24),
    in_runs=st.booleans(),
    missing=st.frozensets(st.integers(0, 6)),
    deaf=st.frozensets(st.integers(0, 6)),
    seed=st.integers(0, 1000),
)
def test_any_missing_inner_nodes_leave_the_bits(
    owners: list[int], in_runs: bool, missing: frozenset[int], deaf: frozenset[int], seed: int
) -> None:
    """`missing` nodes are not in the tree, and `deaf` ones refuse their children: both send to the servers."""
    owners = sorted(owners) if in_runs else owners
    n = len(owners)
    updates = {partition: update_of(partition, seed) for partition in range(n)}
    parent_of = parents([None if node in missing else node for node in owners])
    received: dict[int, list[BlockSum]] = {}
    server, messages = ClockUpdates(), 0
    for node in sorted(set(owners), key=owners.index, reverse=True):  # children before their parents
        mine = {partition: updates[partition] for partition in range(n) if owners[partition] == node}
        sums = under(sum_up(mine, n, TABLES), dict.fromkeys(mine, 1))
        if node in received:
            sums = add_up([*sums, *received[node]], n, TABLES)
        parent = parent_of.get(node)
        if parent is not None and parent not in deaf:
            received.setdefault(parent, []).extend(sums)
            continue
        messages += 1
        for first, attempts, update in sums:
            assert server.take(first, attempts, update) == "accepted"
    assert len(server) == n
    reference = tree_sum((0, n), lambda block: updates[block[0]] if block[1] - block[0] == 1 else None)
    assert bits(server.sum(n, [table.name for table in TABLES])) == bits(reference)
    if not missing and not deaf:
        assert messages == 1
        assert list(server.by_block) == [(0, n)]


@pytest.mark.parametrize("app", ["Descent", "Walk"])
def test_a_training_with_the_tree_ends_with_the_same_bits_and_fewer_messages(app: str) -> None:
    counts = []
    for push_tree in (False, True):
        cluster = WiredCluster(0, Trouble())
        sent = list[str]()
        cluster.wires.watch = lambda *message, sent=sent: sent.extend(str(part) for part in message)
        run_job(cluster, job(app, n_reliable=2, push_tree=push_tree), ("r0", "r1", "t0", "t1", "t2", "t3"))
        check(cluster, app)
        assert ("proteus_add_up" in sent) == push_tree
        assert cluster.shell.controller.book is not None
        assert cluster.shell.controller.book.repeated == 0
        counts.append(sent.count("proteus_push"))
    assert counts[1] < counts[0] / 2


def test_blocks_of_several_nodes_are_added_up_as_far_as_they_are_whole_subtrees() -> None:
    updates = {partition: update_of(partition, 0) for partition in (2, 3, 4, 6, 7)}

    def of(partitions: Sequence[int]) -> list[BlockSum]:
        return under(sum_up({p: updates[p] for p in partitions}, 8, TABLES), dict.fromkeys(partitions, 1))

    found = add_up([*of([2]), *of([3, 4]), *of([6, 7])], 8, TABLES)
    assert [(first, len(attempts)) for first, attempts, _ in found] == [(2, 2), (4, 1), (6, 2)]


def test_refused_sums_stay_refused_and_unknown_sums_have_failed() -> None:
    from psengine.worker.push_tree import PushTree

    async def story() -> None:
        tree = PushTree("p", "sim://p", None)  # type: ignore[arg-type]
        message: dict[str, Any] = {"sender": "c", "key": (1, 5, 2), "sums": (), "contributions": ()}
        assert tree.hold(sequence=1, **message) == ChildSums("held")
        assert await tree.answer("c", 1, "held", give_up=True) == ChildSums("refused")
        assert tree.hold(sequence=1, **message) == ChildSums("refused"), "a repeated message"
        assert tree.hold(sequence=3, **message) == ChildSums("held")
        assert tree.hold(sequence=2, **message) == ChildSums("failed"), "a late message is never used"
        assert await tree.answer("other", 1, "held", give_up=True) == ChildSums("failed")

    asyncio.run(story())
