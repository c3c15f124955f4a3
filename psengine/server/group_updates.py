"""Update log of one group: updates by block of partitions, of the highest attempts received."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.tables.incremental_update import Growing, apart
from proteus_spot.psengine.tables.row_updates import RowDelta, cut_delta
from proteus_spot.psengine.tables.sparse_rows import CompactDelta, SparseUpdate, Tables, full_bytes, full_update
from proteus_spot.psengine.tables.tree_sum import Delta, Subtree, tree_sum

Answer = Literal["accepted", "repeated", "superseded"]


class GroupUpdates:
    """Highest received attempt of each partition, and the sum of the updates of each block."""

    def __init__(self) -> None:
        self.attempts: dict[int, int] = {}
        self.by_block: dict[Subtree, CompactDelta] = {}

    def take(self, first: int, attempts: Sequence[int], update: CompactDelta) -> Answer:
        """Take the sum of a block's updates, unless these or higher attempts were received before."""
        received = [self.attempts.get(partition, 0) for partition in range(first, first + len(attempts))]
        if any(attempt < previous for attempt, previous in zip(attempts, received, strict=True)):
            return "superseded"
        if list(attempts) == received:
            return "repeated"
        end = first + len(attempts)
        # An older block that shares a partition is dropped: its other partitions are repeated, too.
        self.by_block = {block: delta for block, delta in self.by_block.items() if block[1] <= first or end <= block[0]}
        self.by_block[first, end] = update
        self.attempts.update(zip(range(first, end), attempts, strict=True))
        return "accepted"

    def __len__(self) -> int:
        return sum(high - low for low, high in self.by_block)

    def attempt(self, n_partitions: int) -> int:
        """Return the common attempt of the updates of all partitions; 0 if one is missing, or they differ."""
        if len(self) < n_partitions:
            return 0
        attempts = set(self.attempts.values())
        return attempts.pop() if len(attempts) == 1 else 0

    def growing(
        self, before: NDArray[np.generic], table: str, out: NDArray[np.generic] | None = None
    ) -> Growing | None:
        """Return a table with all of these updates being added; None unless they are of disjoint rows."""
        updates = [full_update(update[table]) for update in self.by_block.values() if table in update]
        if not apart(updates, len(before)):
            return None
        begun = Growing(before, out)
        for update in updates:
            begun.add(update)
        return begun

    def has(self, partition: int) -> bool:
        """Return whether the update of a partition is among these, alone or in a block."""
        return any(low <= partition < high for low, high in self.by_block)

    def sum_of_rows(self, n_partitions: int, table: str, low: int, high: int) -> NDArray[np.generic] | RowDelta | None:
        """Return the sum of all updates of the rows [low, high) of a table, counted from `low`; None if there are none.

        It has the bits that these rows have in the sum of all rows, whatever is missing of others.
        """
        by_block: dict[Subtree, Delta] = {}
        for block, update in self.by_block.items():
            delta = update.get(table)
            if isinstance(delta, SparseUpdate):
                delta = delta.within(low, high)
            cut = cut_delta(delta, low, high) if isinstance(delta, RowDelta) else delta
            if cut is not None:
                by_block[block] = {table: cut if isinstance(cut, RowDelta) else cut[low:high]}
        return (tree_sum((0, n_partitions), by_block.get) or {}).get(table)

    def sum_bytes(self, before: Tables, tables: Collection[str]) -> int:
        """Return about how many bytes are read and written to add all updates of `tables` to `before`."""
        total = 0
        for name in tables:
            sizes = [full_bytes(update[name]) for update in self.by_block.values() if name in update]
            total += sum(sizes, full_bytes(before[name])) if sizes else 0
        return total

    def sum(self, n_partitions: int, tables: Collection[str]) -> Delta:
        """Return the sum of all updates of `tables`."""
        by_block = {
            block: {name: full_update(rows) for name, rows in update.items() if name in tables}
            for block, update in self.by_block.items()
        }
        return tree_sum((0, n_partitions), by_block.get) or {}
