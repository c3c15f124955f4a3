"""The messages of pushes and reads: updates summed in blocks and cut to shards, rows cut to shards and joined again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from proteus_spot.psengine.config import Add, TableSpec
from proteus_spot.psengine.tables.allowed_values import check_sum
from proteus_spot.psengine.tables.contiguous import joined
from proteus_spot.psengine.tables.row_cache import ReadTag
from proteus_spot.psengine.tables.row_sets import Array, RowBlock, RowSet, Wanted, count, cut, read_only
from proteus_spot.psengine.tables.row_updates import RowDelta, cut_delta, smaller
from proteus_spot.psengine.tables.sharding import Arrays, Sharding
from proteus_spot.psengine.tables.tree_sum import Delta, Subtree, largest_subtrees, tree_sum

#: (first partition, attempts, sum of the updates) of a block.
BlockSum = tuple[int, tuple[int, ...], Delta]
#: {shard: update of each block}.
Updates = Mapping[int, Sequence[Delta]]


def sum_up(
    updates: Mapping[int, Delta], n_partitions: int, tables: Sequence[TableSpec], apart: bool = False
) -> list[tuple[Subtree, Delta]]:
    """Return the sums of a batch's updates (by partition) over the largest possible blocks, in the smaller form.

    `apart`: each partition is a block. So a server has the update of a task whatever happens to others of its batch.
    """
    by_block = {(partition, partition + 1): update for partition, update in updates.items()}
    blocks = sorted(by_block) if apart else largest_subtrees(updates.keys(), n_partitions)
    return [(block, _sum(block, by_block, tables)) for block in blocks]


def under(sums: Sequence[tuple[Subtree, Delta]], attempts: Mapping[int, int]) -> list[BlockSum]:
    """Return the sums of blocks with the attempt of each partition."""
    return [(low, tuple(attempts[part] for part in range(low, high)), total) for (low, high), total in sums]


def _sum(block: Subtree, by_block: Mapping[Subtree, Delta], tables: Sequence[TableSpec]) -> Delta:
    parts = [update for (low, high), update in by_block.items() if block[0] <= low and high <= block[1]]
    for name in {name for update in parts for name in update} if len(parts) > 1 else ():
        check_sum(name, [update[name] for update in parts if name in update])
    total = tree_sum(block, by_block.get) or {}
    found = {table.name: smaller(total[table.name], table.n_rows) for table in tables if table.name in total}
    named = {name: delta for update in parts for name, delta in update.items()}
    ruled = {table.name for table in tables if not isinstance(table.rule, Add)}
    return found | {name: named[name] for name in named.keys() & ruled - total.keys()}  # of no rows, and yet an update


def cut_update(sharding: Sharding, update: Delta, shard: int) -> Delta:
    """Return the part of an update that lies in a shard; views."""
    parts: dict[str, Array | RowDelta] = {}
    for table in sharding.tables:
        delta = update.get(table.name)
        low, high = sharding.rows(shard, table)
        if isinstance(delta, RowDelta):
            part = cut_delta(delta, low, high)
            if part is not None:
                parts[table.name] = part
            elif not isinstance(table.rule, Add):  # its rule is applied to all rows of the table, or to none
                parts[table.name] = RowDelta(slice(0, 0), delta.values[:0])
        elif delta is not None:
            parts[table.name] = delta[low:high]
    return parts


def size(updates: Updates) -> int:
    """Return the size of updates in memory, in bytes."""
    return sum(delta.nbytes for delta in arrays(updates))


def arrays(updates: Updates) -> list[Array | RowDelta]:
    """Return the updates of all shards, blocks and tables."""
    return [delta for per_block in updates.values() for update in per_block for delta in update.values()]


_NO_VALUES = np.zeros((0, 0))


class PendingReads:
    """Reads under way; when one is done, what it has read is in the cache."""

    def __init__(self) -> None:
        self._pending: dict[asyncio.Future[None], tuple[ReadTag, Wanted]] = {}

    def find(self, wanted: Wanted, completions: int, exact: bool) -> asyncio.Future[None] | None:
        """Return a read that brings these rows to a task that has to see these completions (see `row_cache`)."""
        for done, (tag, reading) in self._pending.items():
            if tag.serves(completions, exact) and all(
                name in reading and RowBlock(reading[name], _NO_VALUES).has(rows) for name, rows in wanted.items()
            ):
                return done
        return None

    @contextmanager
    def under_way(self, wanted: Wanted, completions: int, exact: bool) -> Iterator[None]:
        """Note a read, which lasts as long as the block."""
        done = asyncio.get_running_loop().create_future()
        self._pending[done] = ReadTag(exact, completions), wanted
        try:
            yield
        finally:
            del self._pending[done]
            done.set_result(None)


def asks_all(sharding: Sharding, wanted: Wanted) -> bool:
    """Return whether all rows of all tables are wanted."""
    return len(wanted) == len(sharding.tables) and all(rows is None for rows in wanted.values())


def as_blocks(sharding: Sharding, wanted: Wanted, shards: Mapping[int, Arrays]) -> dict[str, RowBlock]:
    """Return the rows read from all shards, by table."""
    return {
        table.name: RowBlock(wanted[table.name], _joined(table, sharding, shards))
        for table in sharding.tables
        if table.name in wanted
    }


def cut_wanted(sharding: Sharding, wanted: Wanted, shard: int) -> dict[str, RowSet | None]:
    """Return the wanted rows of a shard, counted from its first rows."""
    wanted_here: dict[str, RowSet | None] = {}
    for table in sharding.tables:
        if table.name in wanted:
            rows = wanted[table.name]
            shard_rows = None if rows is None else cut(rows, *sharding.rows(shard, table))
            if shard_rows is None or count(shard_rows):
                wanted_here[table.name] = shard_rows
    return wanted_here


def _joined(table: TableSpec, sharding: Sharding, shards: Mapping[int, Arrays]) -> Array:
    """Return the rows of a table read from all shards, in order."""
    by_shard = [rows[table.name] for shard in range(sharding.n_shards) if table.name in (rows := shards[shard])]
    parts = [rows for rows in by_shard if len(rows)]
    if not parts:
        return read_only(np.zeros((0, table.n_cols), table.dtype))
    return read_only(joined(parts))
