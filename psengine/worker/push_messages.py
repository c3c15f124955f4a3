"""The updates of a batch as they are pushed: added up in blocks, cut to shards, in what others read and the rest. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from psengine.config import TableSpec
from psengine.tables.row_sets import Array, Runs, Wanted, count, span
from psengine.tables.row_updates import RowDelta, cut_delta, smaller
from psengine.tables.sharding import Sharding
from psengine.tables.tree_sum import Delta, Subtree, largest_subtrees, tree_sum

#: (first partition, attempts, sum of the updates) of a block
BlockSum = tuple[int, tuple[int, ...], Delta]
#: by shard, of each block
Updates = Mapping[int, Sequence[Delta]]
#: by shard, of each block: runs of rows, by table
ToCome = Mapping[int, Sequence[Runs]]

#: So long is a run that takes longer on its way than a message does which says that it comes.
_LONG_BYTES = 1 << 20


def sum_up(updates: Mapping[int, Delta], n_partitions: int, tables: Sequence[TableSpec]) -> list[tuple[Subtree, Delta]]:
    """Return the updates of a batch, by partition, added up in blocks as far as they may be, in the smaller form."""
    sizes = {table.name: table.n_rows for table in tables}
    return [(block, _sum(block, updates, sizes)) for block in largest_subtrees(updates.keys(), n_partitions)]


def under(sums: Sequence[tuple[Subtree, Delta]], attempts: Mapping[int, int]) -> list[BlockSum]:
    """Return the sums of blocks as they are pushed, with the attempt of each partition."""
    return [(low, tuple(attempts[part] for part in range(low, high)), total) for (low, high), total in sums]


def _sum(block: Subtree, updates: Mapping[int, Delta], sizes: Mapping[str, int]) -> Delta:
    total = tree_sum(block, lambda part: updates[part[0]] if part[1] - part[0] == 1 else None) or {}
    return {name: smaller(of, sizes[name]) for name, of in total.items()}


def cut_update(sharding: Sharding, update: Delta, shard: int) -> Delta:
    """Return the part of an update that lies in a shard; views."""
    out: dict[str, Array | RowDelta] = {}
    for table in sharding.tables:
        of = update.get(table.name)
        low, high = sharding.rows(shard, table)
        if isinstance(of, RowDelta):
            some = cut_delta(of, low, high)
            if some is not None:
                out[table.name] = some
        elif of is not None:
            out[table.name] = of[low:high]
    return out


def own_tables(sharding: Sharding) -> frozenset[str]:
    """Return the tables whose rows belong to one partition each."""
    return frozenset(table.name for table in sharding.tables if table.own)


def announced(sharding: Sharding, wanted: Wanted) -> bool:
    """Return whether what is announced of updates is all that is wanted: no rows of partitions' own."""
    return not own_tables(sharding) & {name for name, rows in wanted.items() if rows is None or count(rows)}


def divided(updates: Updates, names: Collection[str]) -> tuple[Updates, Updates]:
    """Return updates without those of the tables of these names, and those alone."""

    def part(wanted: bool) -> Updates:
        return {
            shard: [{name: of for name, of in update.items() if (name in names) is wanted} for update in per_block]
            for shard, per_block in updates.items()
        }

    return part(False), part(True)


def foretold(updates: Updates) -> tuple[Updates, ToCome]:
    """Return updates without the long runs of rows, and which rows these are."""
    runs = {shard: [_long_runs(update) for update in per_block] for shard, per_block in updates.items()}
    short = {
        shard: [
            {name: of for name, of in update.items() if name not in long}
            for update, long in zip(per_block, runs[shard], strict=True)
        ]
        for shard, per_block in updates.items()
    }
    return short, runs


def _long_runs(update: Delta) -> dict[str, tuple[int, int]]:
    return {
        name: span(of.rows)
        for name, of in update.items()
        if isinstance(of, RowDelta) and isinstance(of.rows, slice) and of.nbytes >= _LONG_BYTES
    }


def size(updates: Updates) -> int:
    """Return how large updates are in memory, in bytes."""
    return sum(of.nbytes for of in arrays(updates))


def arrays(updates: Updates) -> list[Array | RowDelta]:
    """Return all additions of updates."""
    return [of for per_block in updates.values() for update in per_block for of in update.values()]
