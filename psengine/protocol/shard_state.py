"""State of one shard, as it is moved, replicated and restored."""

from __future__ import annotations

from dataclasses import dataclass

from psengine.tables.sparse_rows import Tables
from psengine.tables.tree_sum import Delta


@dataclass(frozen=True)
class ShardState:
    """All of a shard at one moment. Its arrays are never written to.

    Attributes
    ----------
    arrays, clock, folded
        Its rows of every table, full or sparse, at the common clock `clock`, and the number of effects in them.
    later
        (clock, first partition, attempts, update) of each block of effects after that clock.
    """

    arrays: Tables
    clock: int
    folded: int
    later: tuple[tuple[int, int, tuple[int, ...], Delta], ...] = ()
