"""The messages of a push: updates summed in blocks, cut to shards, split into announcement and rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from psengine.config import Add, TableSpec
from psengine.tables.row_owners import join_own
from psengine.tables.row_sets import Array, Runs, Wanted, count, span
from psengine.tables.row_updates import RowDelta, cut_delta, smaller
from psengine.tables.sharding import Sharding
from psengine.tables.tree_sum import Delta, Subtree, largest_subtrees, tree_sum

#: (first partition, attempts, sum of the updates) of a block.
BlockSum = tuple[int, tuple[int, ...], Delta]
#: {shard: update of each block}.
Updates = Mapping[int, Sequence[Delta]]
#: {shard: runs of rows by table, of each block}.
ToCome = Mapping[int, Sequence[Runs]]

#: Minimum bytes of a run that takes longer to send than the message that declares it.
_LONG_BYTES = 1 << 20


def sum_up(updates: Mapping[int, Delta], n_partitions: int, tables: Sequence[TableSpec]) -> list[tuple[Subtree, Delta]]:
    """Return the sums of a batch's updates (by partition) over the largest possible blocks, in the smaller form."""
    return [(block, _sum(block, updates, tables)) for block in largest_subtrees(updates.keys(), n_partitions)]


def under(sums: Sequence[tuple[Subtree, Delta]], attempts: Mapping[int, int]) -> list[BlockSum]:
    """Return the sums of blocks with the attempt of each partition."""
    return [(low, tuple(attempts[part] for part in range(low, high)), total) for (low, high), total in sums]


def _sum(block: Subtree, updates: Mapping[int, Delta], tables: Sequence[TableSpec]) -> Delta:
    own = {table.name: table.n_rows for table in tables if table.own}

    def shared(part: Subtree) -> Delta | None:
        if part[1] - part[0] > 1:
            return None
        return {name: delta for name, delta in updates[part[0]].items() if name not in own}

    total = tree_sum(block, shared) or {}
    found = {table.name: smaller(total[table.name], table.n_rows) for table in tables if table.name in total}
    named = {name: delta for part in range(*block) for name, delta in updates[part].items()}
    ruled = {table.name for table in tables if not isinstance(table.rule, Add)}
    found |= {name: named[name] for name in named.keys() & ruled - total.keys()}  # of no rows, and yet an update
    for name, n_rows in own.items():
        pieces = {part: updates[part][name] for part in range(*block) if name in updates[part]}
        if pieces:  # of exactly these rows: the servers look for rows that two partitions write
            found[name] = join_own(name, pieces, n_rows)
    return found


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


def own_tables(sharding: Sharding) -> frozenset[str]:
    """Return the tables whose rows belong to one partition each."""
    return frozenset(table.name for table in sharding.tables if table.own)


def announced(sharding: Sharding, wanted: Wanted) -> bool:
    """Return whether announcements include all wanted rows: none of them is partition-local."""
    return not own_tables(sharding) & {name for name, rows in wanted.items() if rows is None or count(rows)}


def split_by_table(updates: Updates, names: Collection[str]) -> tuple[Updates, Updates]:
    """Return the updates of all other tables, and those of the tables in `names`."""

    def part(wanted: bool) -> Updates:
        return {
            shard: [
                {name: delta for name, delta in update.items() if (name in names) is wanted} for update in per_block
            ]
            for shard, per_block in updates.items()
        }

    return part(False), part(True)


def split_long_runs(updates: Updates) -> tuple[Updates, ToCome]:
    """Return the updates without long runs of rows, and the rows of these runs."""
    runs = {shard: [_long_runs(update) for update in per_block] for shard, per_block in updates.items()}
    short = {
        shard: [
            {name: delta for name, delta in update.items() if name not in long}
            for update, long in zip(per_block, runs[shard], strict=True)
        ]
        for shard, per_block in updates.items()
    }
    return short, runs


def _long_runs(update: Delta) -> dict[str, tuple[int, int]]:
    return {
        name: span(delta.rows)
        for name, delta in update.items()
        if isinstance(delta, RowDelta) and isinstance(delta.rows, slice) and delta.nbytes >= _LONG_BYTES
    }


def size(updates: Updates) -> int:
    """Return the size of updates in memory, in bytes."""
    return sum(delta.nbytes for delta in arrays(updates))


def arrays(updates: Updates) -> list[Array | RowDelta]:
    """Return the updates of all shards, blocks and tables."""
    return [delta for per_block in updates.values() for update in per_block for delta in update.values()]
