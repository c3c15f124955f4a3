"""The state of one shard, as it is moved, copied and kept."""

from __future__ import annotations

from dataclasses import dataclass

from psengine.tables.sharding import Arrays
from psengine.tables.tree_sum import Delta


@dataclass(frozen=True)
class ShardState:
    """All of a shard at one moment, as it moves to another server. What it holds is not written to.

    Attributes
    ----------
    arrays, clock, folded : its rows of every table at a common clock, and how many effects they hold.
    later : (clock, first partition, attempts, update) of each block of effects that came after it.
    """

    arrays: Arrays
    clock: int
    folded: int
    later: tuple[tuple[int, int, tuple[int, ...], Delta], ...] = ()
