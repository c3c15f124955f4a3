"""A table that is replaced keeps the sums that nodes have sent, and returns that of exactly some partitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.config import Replace, TableSpec
from proteus_spot.psengine.server.shard_store import ShardStore, StaleReadError
from proteus_spot.psengine.tables.sharding import Sharding
from proteus_spot.psengine.tables.tree_sum import largest_subtrees

COUNT = 7
TABLES = (TableSpec("sum", 3, 1, "float64", rule=Replace(keeps_sums=True)), TableSpec("other", 2, 1, "float64"))


def store() -> ShardStore:
    arrays = {table.name: np.zeros((table.n_rows, 1)) for table in TABLES}
    return ShardStore(0, 1, arrays, COUNT, sharding=Sharding(TABLES, 1))


def values(partition: int) -> np.ndarray:
    return np.array([[1.0], [partition], [2.0**partition]])


def push(into: ShardStore, group: int, nodes: list[set[int]], table: str = "sum") -> None:
    """Push what each node has, as the sums of its largest blocks."""
    for node in nodes:
        for low, high in largest_subtrees(node, COUNT):
            total = sum((values(p) for p in range(low, high)), np.zeros((3, 1)))
            into.push(group, low, (1,) * (high - low), {table: total if table == "sum" else total[:2]})


@given(st.lists(st.integers(0, 3), min_size=COUNT, max_size=COUNT), st.sets(st.integers(0, COUNT - 1), min_size=1))
def test_the_sum_is_that_of_exactly_these_partitions(owners: list[int], lost: set[int]) -> None:
    nodes = [{p for p, owner in enumerate(owners) if owner == node} for node in range(3)]  # node 3 adds nothing
    kept = store()
    push(kept, 1, nodes)
    found = kept.kept_sum(1, "sum", lost)
    blocks = [set(range(*block)) for node in nodes if node for block in largest_subtrees(node, COUNT)]
    if set().union(*(block for block in blocks if block <= lost)) == lost:
        np.testing.assert_array_equal(found, sum(values(p) for p in lost))
    else:
        assert found is None
    for node in nodes:
        if node:
            np.testing.assert_array_equal(kept.kept_sum(1, "sum", node), sum(values(p) for p in node))


def test_sums_stay_until_others_take_the_place_of_the_table() -> None:
    kept = store()
    push(kept, 1, [{0, 1}, {2, 3}])
    push(kept, 2, [{0, 1}], "other")
    assert kept.kept_sum(2, "sum", {0, 1}) is not None
    assert kept.kept_sum(2, "other", {0, 1}) is None
    with pytest.raises(StaleReadError):
        kept.kept_sum(1, "sum", {0, 1})
    push(kept, 3, [{0}, {2, 3}])
    assert kept.kept_sum(3, "sum", {0, 1}) is None
    assert kept.kept_sum(3, "sum", {0}) is not None
    moved = ShardStore.of(0, 2, COUNT, kept.state(), Sharding(TABLES, 1))
    assert moved.kept_sum(3, "sum", {0}) is None, "it does not move with the shard"
