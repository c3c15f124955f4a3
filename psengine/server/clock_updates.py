"""The updates of one clock by block of partitions, those of the highest attempts that have come. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from psengine.tables.incremental_update import Growing, apart
from psengine.tables.tree_sum import Delta, Subtree, tree_sum

Answer = Literal["accepted", "repeated", "superseded"]


class ClockUpdates:
    """Which attempt of each partition has come, and the sum of the updates of each block."""

    def __init__(self) -> None:
        self.attempts: dict[int, int] = {}
        self.by_block: dict[Subtree, Delta] = {}

    def take(self, first: int, attempts: Sequence[int], update: Delta) -> Answer:
        """Take the sum of a block's updates, unless these attempts, or one above them, have come before."""
        known = [self.attempts.get(partition, 0) for partition in range(first, first + len(attempts))]
        if any(attempt < there for attempt, there in zip(attempts, known, strict=True)):
            return "superseded"
        if list(attempts) == known:
            return "repeated"
        end = first + len(attempts)
        # An older block that shares a partition is of no use as a whole: the rest of it is done again, too.
        self.by_block = {block: of for block, of in self.by_block.items() if block[1] <= first or end <= block[0]}
        self.by_block[first, end] = update
        self.attempts.update(zip(range(first, end), attempts, strict=True))
        return "accepted"

    def find(self, first: int, attempts: Sequence[int]) -> Delta | None:
        """Return the update of a block that has come under these very attempts."""
        end = first + len(attempts)
        known = [self.attempts.get(partition, 0) for partition in range(first, end)]
        return self.by_block.get((first, end)) if known == list(attempts) else None

    def __len__(self) -> int:
        return sum(high - low for low, high in self.by_block)

    def attempt(self, n_partitions: int) -> int:
        """Return the attempt under which the effects of all partitions are here; 0 where one is missing, or they differ."""
        if len(self) < n_partitions:
            return 0
        attempts = set(self.attempts.values())
        return attempts.pop() if len(attempts) == 1 else 0

    def same(self, other: ClockUpdates) -> bool:
        """Return whether both have the very same updates, under the same attempts."""
        ours, theirs = (
            {block: {name: id(array) for name, array in update.items()} for block, update in of.by_block.items()}
            for of in (self, other)
        )
        return self.attempts == other.attempts and ours == theirs

    def copy(self) -> ClockUpdates:
        """Return the same effects; what comes to the one does not come to the other."""
        made = ClockUpdates()
        made.attempts, made.by_block = dict(self.attempts), dict(self.by_block)
        return made

    def growing(
        self, before: NDArray[np.generic], table: str, out: NDArray[np.generic] | None = None
    ) -> Growing | None:
        """Return what a table becomes with all of these effects; None where they are not of other rows each."""
        updates = [update[table] for update in self.by_block.values() if table in update]
        if not apart(updates, len(before)):
            return None
        begun = Growing(before, out)
        for update in updates:
            begun.add(update)
        return begun

    def sum(self, n_partitions: int, tables: Collection[str]) -> Delta:
        """Return the sum of all updates of `tables`."""
        of = {
            block: {name: some for name, some in update.items() if name in tables}
            for block, update in self.by_block.items()
        }
        return tree_sum((0, n_partitions), of.get) or {}
