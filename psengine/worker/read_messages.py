"""The messages of a read: rows cut to shards, and joined again; and the reads under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.tables.contiguous import joined
from proteus_spot.psengine.tables.row_cache import ReadTag
from proteus_spot.psengine.tables.row_sets import Array, RowBlock, RowSet, Wanted, count, cut, read_only
from proteus_spot.psengine.tables.sharding import Arrays, Sharding

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
