"""The sum of the updates of one clock: a tree over the partitions, so that parts of it may be added up on the way. Pure.

Floating-point sums depend on their order. The order here is that of a binary tree over the partitions 0 … n-1, halved
again and again; whoever has all of a subtree, a *block*, may add it up and send the sum alone. So the sum has the same
bits wherever and in whatever groups partitions were worked on, and a node sends about as much as one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import NDArray

#: Additions to tables by name; one that a micro-task leaves out is not changed by it.
Delta = Mapping[str, NDArray[np.generic]]
#: Half-open range of partitions that is a subtree.
Block = tuple[int, int]


def blocks(partitions: Collection[int], n_partitions: int) -> list[Block]:
    """Return the largest subtrees that `partitions` fill, in order; they are disjoint and hold every one of them."""
    there = frozenset(partitions)
    found: list[Block] = []

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


def tree_sum(block: Block, part: Callable[[Block], Delta | None]) -> Delta | None:
    """Return the sum over a block, None where nothing of it is there.

    Parameters
    ----------
    part : callable
        Returns what is there of a subtree as one, None where it is to be put together from its halves, or is missing.
        What it returns is not written to.
    """
    return _sum(block, part)[0]


def _sum(block: Block, part: Callable[[Block], Delta | None]) -> tuple[Delta | None, bool]:
    """Return the sum, and whether its arrays are ours to write to."""
    there = part(block)
    if there is not None:
        return there, False
    low, high = block
    if high - low <= 1:
        return None, False
    middle = (low + high) // 2
    left, ours = _sum((low, middle), part)
    right, _ = _sum((middle, high), part)
    if left is None or right is None:
        return (right, False) if left is None else (left, ours)
    return {name: _plus(left, right, name, ours) for name in {**left, **right}}, True


def _plus(left: Delta, right: Delta, name: str, ours: bool) -> NDArray[np.generic]:
    """Return the sum of one table; a table that only one side has is copied, for the whole is to be ours."""
    if name not in right:
        return left[name] if ours else left[name].copy()
    if name not in left:
        return right[name].copy()
    a, b = left[name], right[name]
    if ours and np.result_type(a, b) == a.dtype:
        return np.add(a, b, out=a)
    total: NDArray[np.generic] = np.add(a, b)
    return total
