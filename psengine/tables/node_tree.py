"""The tree of nodes on which what partitions contribute is added up, level by level, on its way to one receiver.

It is laid over the tree of the partitions (`tree_sum`): the sum over a subtree of partitions that several nodes have is
computed by the node with its first partition. So each node but the first one sends to one parent, mostly one sum, and a
parent can complete whole subtrees. With n partitions a sum is sent log2 n times at most.

Partitions of missing nodes are left out. The children of a missing node send to the first of the remaining nodes under
their nearest common subtree: there is always one root.

Used by elastic batch gradient descent (`apps.bgd.reduction_tree`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def parents(owners: Sequence[K | None]) -> dict[K, K | None]:
    """Return the parent of each node, by the order of their first partitions; None for the first node.

    Parameters
    ----------
    owners : sequence
        The node of each partition; None where it is missing.

    Notes
    -----
    A parent has an earlier first partition than its children, so there is no circle.
    """
    n = len(owners)
    following = [n] * (n + 1)  # the next partition that is not missing, from each on
    for partition in range(n - 1, -1, -1):
        following[partition] = following[partition + 1] if owners[partition] is None else partition
    found: dict[K, K | None] = {}
    for first, node in enumerate(owners):
        if node is not None and node not in found:
            found[node] = _parent(owners, following, first)
    return found


def _parent(owners: Sequence[K | None], following: Sequence[int], first: int) -> K | None:
    """Return the node with the lowest partition of the smallest subtree that has any before `first`."""
    low, high, parent = 0, len(owners), None
    while high - low > 1:
        if following[low] < first:
            parent = owners[following[low]]
        middle = (low + high) // 2
        low, high = (low, middle) if first < middle else (middle, high)
    return parent
