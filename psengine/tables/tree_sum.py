"""The sum of the updates of one clock: a tree over the partitions, so that parts of it may be added up on the way. Pure.

Floating-point sums depend on their order. The order here is that of a binary tree over the partitions 0 … n-1, halved
again and again; whoever has all of a subtree, a *block*, may add it up and send the sum alone. So the sum has the same
bits wherever and in whatever groups partitions were worked on, and a node sends about as much as one partition.

An update of some rows (`RowDelta`) adds nothing to the others. Where the rows of several are disjoint, as those that
belong to one partition each are, nothing is added up: they are put side by side, once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from psengine.tables.row_sets import count, span
from psengine.tables.row_updates import RowDelta, add_rows, disjoint, joined, plus

#: Additions to tables by name, to all rows or to some; a table that a micro-task leaves out is not changed by it.
Delta = Mapping[str, NDArray[np.generic] | RowDelta]
#: An addition on the way: to all rows, or disjoint ones to some, in rising order.
_Part = NDArray[np.generic] | tuple[RowDelta, ...]
#: Half-open range of partitions that is a subtree.
Subtree = tuple[int, int]


def largest_subtrees(partitions: Collection[int], n_partitions: int) -> list[Subtree]:
    """Return the largest subtrees that `partitions` fill, in order; they are disjoint and hold every one of them."""
    there = frozenset(partitions)
    found: list[Subtree] = []

    def walk(low: int, high: int) -> int:
        """Return how many of [low, high) are there; note the full parts of one that is not full."""
        if high - low == 1:
            return int(low in there)
        middle = (low + high) // 2
        left, right = walk(low, middle), walk(middle, high)
        if left + right < high - low:
            if left == middle - low:
                found.append((low, middle))
            if right == high - middle:
                found.append((middle, high))
        return left + right

    if there and walk(0, n_partitions) == n_partitions:
        return [(0, n_partitions)]
    return sorted(found)


def tree_sum(block: Subtree, part: Callable[[Subtree], Delta | None]) -> Delta | None:
    """Return the sum over a block, None where nothing of it is there.

    Parameters
    ----------
    part : callable
        Returns what is there of a subtree as one, None where it is to be put together from its halves, or is missing.
        What it returns is not written to.
    """
    total = _sum(block, part)[0]
    if total is None:
        return None
    return {name: _one(of)[0] if isinstance(of, tuple) else of for name, of in total.items()}


def _sum(block: Subtree, part: Callable[[Subtree], Delta | None]) -> tuple[dict[str, _Part] | None, bool]:
    """Return the sum over a block, and whether its whole arrays are ours to write to."""
    there = part(block)
    if there is not None:
        return _parts(there), False
    low, high = block
    if high - low <= 1:
        return None, False
    middle = (low + high) // 2
    left, ours = _sum((low, middle), part)
    right, _ = _sum((middle, high), part)
    if left is None or right is None:
        return (right, False) if left is None else (left, ours)
    return {name: _plus(left.get(name), right.get(name), ours) for name in {**left, **right}}, True


def _parts(delta: Delta) -> dict[str, _Part]:
    """Return a delta as the parts of a sum, without updates of no row."""
    return {
        name: (of,) if isinstance(of, RowDelta) else of
        for name, of in delta.items()
        if not isinstance(of, RowDelta) or count(of.rows)
    }


def _plus(left: _Part | None, right: _Part | None, ours: bool) -> _Part:
    """Return the sum of one table; a whole array that only one side has is copied, for the whole is to be ours."""
    if left is None or right is None:
        there = right if left is None else left
        assert there is not None
        return there if isinstance(there, tuple) or (ours and right is None) else there.copy()
    if isinstance(left, tuple) and isinstance(right, tuple):
        pieces = tuple(sorted((*left, *right), key=lambda piece: span(piece.rows)))
        return pieces if disjoint(pieces) else (_overlapping(_one(left), _one(right)),)
    if isinstance(right, tuple):
        assert not isinstance(left, tuple)
        return _with_rows(left, right, ours)
    if isinstance(left, tuple):
        return _with_rows(right, left, False)
    if ours and np.result_type(left, right) == left.dtype:
        return np.add(left, right, out=left)
    total: NDArray[np.generic] = np.add(left, right)
    return total


class _OwnedDelta(RowDelta):
    """Rows of a sum whose values only this sum has."""


def _one(pieces: tuple[RowDelta, ...]) -> tuple[RowDelta, bool]:
    """Return disjoint pieces as one, and whether its values are ours to write to."""
    whole = joined(pieces)
    return RowDelta(whole.rows, whole.values), len(pieces) > 1 or isinstance(whole, _OwnedDelta)


def _overlapping(left: tuple[RowDelta, bool], right: tuple[RowDelta, bool]) -> RowDelta:
    """Return the sum of two; it goes into what is ours, for a + b is b + a."""
    (into, ours), (other, _) = (left, right) if left[1] else (right, left)
    total = plus(into, other, ours)
    return _OwnedDelta(total.rows, total.values)


def _with_rows(whole: NDArray[np.generic], pieces: tuple[RowDelta, ...], ours: bool) -> NDArray[np.generic]:
    dtype = np.result_type(whole, *(piece.values for piece in pieces))
    total = whole if ours and dtype == whole.dtype else whole.astype(dtype)
    for piece in pieces:
        add_rows(total, piece)
    return total
