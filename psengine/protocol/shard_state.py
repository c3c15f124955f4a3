"""State of one shard, as it is moved, replicated and restored."""

from __future__ import annotations

from dataclasses import dataclass

from psengine.tables.sharding import Arrays
from psengine.tables.tree_sum import Delta


@dataclass(frozen=True)
class ShardState:
    """All of a shard at one moment. Its arrays are never written to.

    Attributes
    ----------
    arrays, clock, folded
        Its rows of every table at the common clock `clock`, and the number of effects that they include.
    later
        (clock, first partition, attempts, update) of each block of effects after that clock.
    """

    arrays: Arrays
    clock: int
    folded: int
    later: tuple[tuple[int, int, tuple[int, ...], Delta], ...] = ()
