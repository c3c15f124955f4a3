"""Blocks of partitions, and sums over them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.tables.tree_sum import Delta, Subtree, largest_subtrees, tree_sum


def subtrees(low: int, high: int) -> set[Subtree]:
    middle = (low + high) // 2
    return {(low, high)} | (subtrees(low, middle) | subtrees(middle, high) if high - low > 1 else set())


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_blocks_are_the_largest_subtrees_that_are_full(case: tuple[int, set[int]]) -> None:
    n, partitions = case
    found = largest_subtrees(partitions, n)
    assert [p for low, high in found for p in range(low, high)] == sorted(partitions)
    every = subtrees(0, n)
    assert set(found) <= every
    for low, high in every - set(found):
        full = partitions.issuperset(range(low, high))
        inside = any(a <= low and high <= b for a, b in found)
        assert full == inside, "a full one that is not named lies in a larger one"


def test_half_of_the_partitions_are_one_block() -> None:
    assert largest_subtrees(range(8), 16) == [(0, 8)]
    assert largest_subtrees(range(8, 16), 16) == [(8, 16)]
    assert largest_subtrees(range(1, 8), 8) == [(1, 2), (2, 4), (4, 8)]
    assert largest_subtrees([], 8) == []


def part(updates: dict[int, Delta]) -> Delta | None:
    return tree_sum((0, 4), lambda block: updates.get(block[0]) if block[1] - block[0] == 1 else None)


def test_a_table_that_some_leave_out_is_the_sum_of_the_others() -> None:
    a, b = np.ones(2), np.full(2, 10.0)
    total = part({0: {"a": a}, 1: {"b": b}, 2: {"a": a}, 3: {}})
    assert total is not None
    assert total["a"].tolist() == [2, 2]
    assert total["b"].tolist() == [10, 10]
    assert a.tolist() == [1, 1]


def test_what_is_missing_is_left_out_and_of_nothing_there_is_no_sum() -> None:
    assert part({}) is None
    only = part({3: {"a": np.ones(2)}})
    assert only is not None
    assert only["a"].tolist() == [1, 1]


def test_sums_keep_a_type_that_holds_both() -> None:
    total = part({0: {"a": np.ones(1, np.float32)}, 1: {"a": np.ones(1, np.float32)}, 2: {"a": np.full(1, 1e-9)}})
    assert total is not None
    assert total["a"].dtype == np.float64
    assert total["a"].item() == 2 + 1e-9
