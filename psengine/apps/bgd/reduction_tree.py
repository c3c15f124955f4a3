"""Broadcast and Reduce on a binary tree of nodes that survives missing ones and reports the contributors.

Each node adds the sums of its children to its own contribution. Where an inner node is missing, its children send to
another one (`tables.node_tree`). A node keeps each child's sum of the last round that ended in a
step, and which partitions are in it: where all of these vanish, the kept sum is their gradient at the model of that
round.

Source: "Towards Resource-Elastic Machine Learning", section 3, "Implementation".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.tables.node_tree import parents

F64 = NDArray[np.float64]

#: The parent of the first node.
MASTER = -1


@dataclass(frozen=True)
class PartialSum:
    """A sum, and the partitions that are in it."""

    partitions: frozenset[int]
    total: F64


class ReductionTree:
    """The tree, and what its nodes keep. Each partition has a node; nodes and partitions have the same numbers."""

    def __init__(self) -> None:
        self._order: tuple[int, ...] = ()
        self._kept: dict[int, tuple[PartialSum, ...]] = {}
        self._candidates: dict[int, tuple[PartialSum, ...]] = {}

    def build(self, nodes: Collection[int]) -> None:
        """Lay the tree out for these nodes, as full as possible; what each of them keeps stays with it."""
        self._order = tuple(sorted(nodes))
        self._forget_all_but(self._order)

    def _forget_all_but(self, nodes: Collection[int]) -> None:
        alive = {MASTER, *nodes}
        self._kept = {node: sums for node, sums in self._kept.items() if node in alive}
        self._candidates = {node: sums for node, sums in self._candidates.items() if node in alive}

    def parents(self, present: Collection[int]) -> dict[int, int]:
        """Return the parent of each present node; that of the first one is `MASTER`."""
        alive = frozenset(present)
        found = parents([node if node in alive else None for node in self._order])
        return {node: MASTER if parent is None else parent for node, parent in found.items()}

    def reduce(self, present: Collection[int], contributions: Mapping[int, F64]) -> PartialSum | None:
        """Return the sum of the contributions of present nodes, and which partitions contributed; None if none did.

        Nodes of the tree that are not present are gone, with what they kept. A present node without a contribution
        passes on the sums of its children. Call `commit` once the round ended in a step.
        """
        self._forget_all_but(present)
        parent_of = self.parents(present)
        received: dict[int, list[PartialSum]] = {}
        for node in reversed([node for node in self._order if node in parent_of]):
            sums = received.get(node, [])
            own = [PartialSum(frozenset([node]), contributions[node])] if node in contributions else []
            if parts := [*own, *sums]:
                received.setdefault(parent_of[node], []).append(_add(parts))
        self._candidates = {node: tuple(sums) for node, sums in received.items()}
        at_master = received.get(MASTER, [])
        return _add(at_master) if at_master else None

    def commit(self) -> None:
        """Let the sums of the last `reduce` replace the kept ones: its round ended in a step."""
        self._kept = self._candidates

    def kept_sum(self, vanished: Collection[int]) -> F64 | None:
        """Return the sum of exactly these partitions from kept sums of living nodes; None if they do not say it."""
        wanted = frozenset(vanished)
        parts: list[PartialSum] = []
        covered: frozenset[int] = frozenset()
        sums = [part for node in sorted(self._kept) for part in self._kept[node] if part.partitions <= wanted]
        for part in sorted(sums, key=lambda part: (-len(part.partitions), min(part.partitions))):
            if not part.partitions & covered:
                parts.append(part)
                covered |= part.partitions
        return _add(parts).total if parts and covered == wanted else None


def _add(parts: list[PartialSum]) -> PartialSum:
    total = parts[0].total.copy()
    for part in parts[1:]:
        total += part.total
    return PartialSum(frozenset().union(*(part.partitions for part in parts)), total)
