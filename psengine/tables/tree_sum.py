"""Deterministic sum of the updates of a clock, by a binary tree over the partitions.

Floating-point sums depend on their order. The order here is that of a binary tree over the partitions 0 … n-1, halved
recursively; a node that has all of a subtree, a *block*, may add it up and send the sum alone. So the sum has the same
bits wherever and in whatever groups partitions were worked on, and a node sends about as much as one partition.

An update of some rows (`RowDelta`) adds nothing to the others. Updates of disjoint rows, such as partition-local ones,
are not added: they are concatenated, once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.tables.row_sets import count, span
from proteus_spot.psengine.tables.row_updates import RowDelta, add_rows, disjoint, joined, plus

#: Additions to tables by name, to all rows or to some; a missing table is not changed.
Delta = Mapping[str, NDArray[np.generic] | RowDelta]
#: A partial sum: of all rows, or disjoint updates of some rows, in rising order.
_Part = NDArray[np.generic] | tuple[RowDelta, ...]
#: Half-open range of partitions that is a subtree.
Subtree = tuple[int, int]


def largest_subtrees(partitions: Collection[int], n_partitions: int) -> list[Subtree]:
    """Return the largest subtrees that `partitions` fill, in order; they are disjoint and cover all of them."""
    present = frozenset(partitions)
    found: list[Subtree] = []

    def walk(low: int, high: int) -> int:
        """Return the number of present partitions in [low, high); if one is missing, note the full halves."""
        if high - low == 1:
            return int(low in present)
        middle = (low + high) // 2
        left, right = walk(low, middle), walk(middle, high)
        if left + right < high - low:
            if left == middle - low:
                found.append((low, middle))
            if right == high - middle:
                found.append((middle, high))
        return left + right

    if present and walk(0, n_partitions) == n_partitions:
        return [(0, n_partitions)]
    return sorted(found)


def tree_sum(block: Subtree, part: Callable[[Subtree], Delta | None]) -> Delta | None:
    """Return the sum over a block; None if no update of it is present.

    Parameters
    ----------
    part : callable
        Returns the sum over a subtree if it is present as one; None if it is to be computed from its halves, or is
        missing. The returned arrays are not modified.
    """
    total = _sum(block, part)[0]
    if total is None:
        return None
    return {name: _merge(rows)[0] if isinstance(rows, tuple) else rows for name, rows in total.items()}


def _sum(block: Subtree, part: Callable[[Subtree], Delta | None]) -> tuple[dict[str, _Part] | None, bool]:
    """Return the sum over a block, and whether its full arrays are owned by this sum and may be written to."""
    delta = part(block)
    if delta is not None:
        return _parts(delta), False
    low, high = block
    if high - low <= 1:
        return None, False
    middle = (low + high) // 2
    left, owned = _sum((low, middle), part)
    right, _ = _sum((middle, high), part)
    if left is None or right is None:
        return (right, False) if left is None else (left, owned)
    return {name: _plus(left.get(name), right.get(name), owned) for name in {**left, **right}}, True


def _parts(delta: Delta) -> dict[str, _Part]:
    """Return a delta as the parts of a sum, without empty updates."""
    return {
        name: (rows,) if isinstance(rows, RowDelta) else rows
        for name, rows in delta.items()
        if not isinstance(rows, RowDelta) or count(rows.rows)
    }


def _plus(left: _Part | None, right: _Part | None, owned: bool) -> _Part:
    """Return the sum of one table; a full array that only one side has is copied, so that the sum owns it."""
    if left is None or right is None:
        only = right if left is None else left
        assert only is not None
        return only if isinstance(only, tuple) or (owned and right is None) else only.copy()
    if isinstance(left, tuple) and isinstance(right, tuple):
        pieces = tuple(sorted((*left, *right), key=lambda piece: span(piece.rows)))
        return pieces if disjoint(pieces) else (_overlapping(_merge(left), _merge(right)),)
    if isinstance(right, tuple):
        assert not isinstance(left, tuple)
        return _with_rows(left, right, owned)
    if isinstance(left, tuple):
        return _with_rows(right, left, False)
    if owned and np.result_type(left, right) == left.dtype:
        return np.add(left, right, out=left)
    total: NDArray[np.generic] = np.add(left, right)
    return total


class _OwnedDelta(RowDelta):
    """Rows of a sum whose values are owned by this sum."""


def _merge(pieces: tuple[RowDelta, ...]) -> tuple[RowDelta, bool]:
    """Return disjoint pieces as one, and whether its values are owned by this sum."""
    merged = joined(pieces)
    return RowDelta(merged.rows, merged.values), len(pieces) > 1 or isinstance(merged, _OwnedDelta)


def _overlapping(left: tuple[RowDelta, bool], right: tuple[RowDelta, bool]) -> RowDelta:
    """Return the sum of two; it is written to the one that is owned, since a + b is b + a."""
    (into, owned), (other, _) = (left, right) if left[1] else (right, left)
    total = plus(into, other, owned)
    return _OwnedDelta(total.rows, total.values)


def _with_rows(array: NDArray[np.generic], pieces: tuple[RowDelta, ...], owned: bool) -> NDArray[np.generic]:
    dtype = np.result_type(array, *(piece.values for piece in pieces))
    total = array if owned and dtype == array.dtype else array.astype(dtype)
    for piece in pieces:
        add_rows(total, piece)
    return total
