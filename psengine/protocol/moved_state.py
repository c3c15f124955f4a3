"""State of one shard, and of one partition, as it is moved, replicated and restored."""

from __future__ import annotations

from dataclasses import dataclass

from proteus_spot.psengine.tables.row_sets import Wanted
from proteus_spot.psengine.tables.sharding import Arrays
from proteus_spot.psengine.tables.sparse_rows import Tables, full_bytes
from proteus_spot.psengine.tables.tree_sum import Delta


@dataclass(frozen=True, eq=False)
class ServedRead:
    """A read of a batch that updates of earlier groups may come too late for.

    Attributes
    ----------
    group : int
        The group of the tasks that have read.
    readers : tuple of int
        Their partitions.
    rows : mapping
        The rows by table, counted within the shard; None for all of a table.
    """

    group: int
    readers: tuple[int, ...]
    rows: Wanted


@dataclass(frozen=True)
class ShardState:
    """All of a shard at one moment. Its arrays are never written to.

    Attributes
    ----------
    arrays, group, folded
        Its rows of every table, full or sparse, at the common group `group`, and the number of updates in them.
    later
        (group, first partition, attempts, update) of each block of updates after that group.
    reads
        Reads that these have not come too late for; none in a replica.
    """

    arrays: Tables
    group: int
    folded: int
    later: tuple[tuple[int, int, tuple[int, ...], Delta], ...] = ()
    reads: tuple[ServedRead, ...] = ()

    @property
    def full_bytes(self) -> int:
        """Size of all its arrays as full arrays, in bytes."""
        updates = (update for *_, update in self.later)
        return sum(full_bytes(rows) for tables in (self.arrays, *updates) for rows in tables.values())


@dataclass(frozen=True)
class PartitionState:
    """State that a task of a partition has left. Its arrays are never written to.

    Attributes
    ----------
    group, attempt
        The task's group, and the attempt that left the state: the two identify it.
    """

    partition: int
    group: int
    attempt: int
    arrays: Arrays


@dataclass(frozen=True)
class StateRef:
    """Where the state of a partition is: in the process at `address`, or else in the checkpoint of that name."""

    partition: int
    group: int
    attempt: int
    address: str = ""
    checkpoint: str = ""
