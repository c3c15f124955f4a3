"""Rows of partition-local tables that two partitions write, and the exact union of those that they do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psengine.tables.row_owners import RowOwners, SharedRowError, join_own
from psengine.tables.row_updates import RowDelta, added
from psengine.tables.tree_sum import Delta


def delta(*rows: int) -> Delta:
    return {"own": RowDelta(np.array(rows, np.int64), np.ones((len(rows), 1), np.float32))}


def run(low: int, high: int) -> Delta:
    return {"own": RowDelta(slice(low, high), np.ones((high - low, 1), np.float32))}


def test_a_row_belongs_to_the_inner_block_and_no_other_may_write_it() -> None:
    owners = RowOwners({"own": (100, 110)})
    owners.note((0, 4), run(0, 6))
    owners.note((2, 4), delta(3, 5))
    owners.note((0, 2), delta(0, 1))
    owners.note((4, 8), run(6, 10))
    owners.note((2, 3), delta(3))
    with pytest.raises(SharedRowError, match=r"'own': row 103 is written by partition 2 and by partition 3; with own"):
        owners.note((3, 4), delta(3, 4))
    with pytest.raises(
        SharedRowError,
        match=r"4 rows from 106 to 109 are written by one of partitions 0 to 3 and by one of partit.* 7;",
    ):
        owners.note((0, 4), {"own": np.ones((10, 1), np.float32)})  # all rows, in a full array
    owners.note((3, 4), delta(4, 5))
    owners.note((0, 1), {"shared": np.ones((3, 1))})  # another table is anybody's


@given(st.lists(st.integers(0, 3), min_size=12, max_size=12), st.sets(st.integers(0, 11)))
def test_the_union_is_of_exactly_the_rows_of_the_partitions(owner: list[int], left_out: set[int]) -> None:
    rows = {part: [n for n in range(12) if owner[n] == part and n not in left_out] for part in range(4)}
    values = {n: np.float32(n + 1) for n in range(12)}
    updates = {
        part: RowDelta(np.array(mine, np.int64), np.array([[values[n]] for n in mine], np.float32).reshape(-1, 1))
        for part, mine in rows.items()
    }
    union = join_own("own", updates, 12)
    assert isinstance(union, RowDelta)
    expected = np.array([[0 if n in left_out else values[n]] for n in range(12)], np.float32)
    assert added(np.zeros((12, 1), np.float32), union).tolist() == expected.tolist()
    assert len(union.values) == 12 - len(left_out)


def test_two_partitions_of_one_node_that_write_one_row_are_named() -> None:
    three = RowDelta(slice(4, 9), np.ones((5, 1), np.float32))
    one = RowDelta(np.array([1, 6, 8]), np.ones((3, 1), np.float32))
    with pytest.raises(SharedRowError, match=r"'own': 2 rows from 6 to 8 are written by partition 1 and .* 3"):
        join_own("own", {1: one, 3: three}, 20)
    with pytest.raises(SharedRowError, match="row 6 is written by partition 0 and by partition 1"):
        join_own("own", {1: one, 0: RowDelta(slice(6, 7), np.ones((1, 1), np.float32))}, 20)
