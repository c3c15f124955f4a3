"""Work on several shards of one server, with about how many bytes it reads and writes: large work is done on a thread.

The loop answers heartbeats and other requests meanwhile. The shards of a request are in the order of their numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from proteus_spot.psengine.protocol.answers import Rows, StaleRead
from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.server.shard_store import ShardStore, StaleReadError
from proteus_spot.psengine.tables.contiguous import full_tables, room
from proteus_spot.psengine.tables.row_sets import Wanted
from proteus_spot.psengine.tables.sharding import Arrays
from proteus_spot.psengine.tables.sparse_rows import SparseRows, Tables, full
from proteus_spot.psengine.tables.tree_sum import Delta

T = TypeVar("T")

#: Bytes read and written from which on work is large. The way to a thread and back takes 0.05 to 0.1 ms, as the sum of
#: 2 MB does.
LARGE_BYTES = 1 << 22


class LargeWork:
    """Does work on a thread if it is large, else at once.

    Parameters
    ----------
    run : callable
        Does the work that it is given off the event loop.
    large_bytes : int
        Bytes read and written from which on work is large.
    """

    def __init__(
        self, run: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread, large_bytes: int = LARGE_BYTES
    ) -> None:
        self._run, self._large_bytes = run, large_bytes

    async def do(self, n_bytes: int, work: Callable[[], T]) -> T:
        """Return the result of `work`, which reads and writes about `n_bytes`.

        It is never left half done: if the caller is cancelled, this ends when the thread has.
        """
        if n_bytes < self._large_bytes:
            return work()
        running: asyncio.Future[T] = asyncio.ensure_future(self._run(work))
        try:
            return await asyncio.shield(running)
        finally:
            while not running.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([running])


Stores = Mapping[int, ShardStore]
#: Bytes that work reads and writes, and what does it.
Work = tuple[int, Callable[[], T]]


def fold(stores: Collection[ShardStore], through: int) -> Work[None]:
    """Commit the groups up to `through`."""

    def work() -> None:
        for store in stores:
            store.fold(through)

    return sum(store.fold_bytes(through) for store in stores), work


def push(
    pushed: Sequence[tuple[ShardStore, Sequence[Delta]]],
    group: int,
    blocks: Sequence[tuple[int, Sequence[int]]],
    committed: int,
) -> Work[None]:
    """Apply the updates of a batch, as `ShardServer.push` does."""

    def work() -> None:
        for store, per_block in pushed:
            store.fold(committed)
            for (first, attempts), update in zip(blocks, per_block, strict=True):
                store.push(group, first, attempts, update)

    n_bytes = sum(store.push_bytes(group, update, committed) for store, per_block in pushed for update in per_block)
    return n_bytes + sum(store.fold_bytes(committed) for store, _ in pushed), work


def read(
    stores: Stores, committed: int, exact: bool, rows: Mapping[int, Wanted] | None, memory: bool = False
) -> Work[Rows | StaleRead]:
    """Return rows at a committed group (`Committed`), with `memory` that of their update rules, too."""

    def work() -> Rows | StaleRead:
        try:
            if rows is None:
                _make_room(list(stores.values()), committed)
                tables = {s: st.read(committed, exact, None if memory else st.readable) for s, st in stores.items()}
                return Rows(full_tables(tables))
            found = {s: store.read(committed, exact, rows[s]) for s, store in stores.items()}
            return Rows({s: _some(tables, rows[s]) for s, tables in found.items()})
        except StaleReadError as error:
            return StaleRead(str(error))

    return sum(st.read_bytes(committed, exact, None if rows is None else rows[s]) for s, st in stores.items()), work


def kept_sums(stores: Stores, committed: int, table: str, partitions: Collection[int]) -> Work[Rows | StaleRead]:
    """Return the sum of what these partitions have added to a table (`ShardStore.kept_sum`), or no shard."""

    def work() -> Rows | StaleRead:
        try:
            sums = {shard: store.kept_sum(committed, table, partitions) for shard, store in stores.items()}
        except StaleReadError as error:
            return StaleRead(str(error))
        known = {shard: {table: total} for shard, total in sums.items() if total is not None}
        return Rows(known if len(known) == len(sums) else {})

    return sum(store.read_bytes(committed, True) + store.kept_bytes(table) for store in stores.values()), work


def read_ahead(stores: Stores, group: int, attempt: int, rows: Mapping[int, Wanted] | None) -> Work[Rows]:
    """Return rows at `group` (`Complete`), all of whose updates are of this `attempt`."""

    def work() -> Rows:
        if rows is None:
            _make_room(list(stores.values()), group)
            return Rows(full_tables({s: store.ahead(group) for s, store in stores.items()}), attempt)
        return Rows({s: _some(store.ahead(group, rows[s]), rows[s]) for s, store in stores.items()}, attempt)

    return sum(store.ahead_bytes(group, None if rows is None else rows[s]) for s, store in stores.items()), work


def read_before(stores: Stores, group: int, rows: Mapping[int, Wanted]) -> Work[Rows | StaleRead]:
    """Return rows before `group` (`Before`), once the updates that they need have arrived."""

    def work() -> Rows | StaleRead:
        try:
            return Rows({shard: store.before(group, rows[shard]) for shard, store in stores.items()})
        except StaleReadError as error:
            return StaleRead(str(error))

    return sum(store.before_bytes(group, rows[shard]) for shard, store in stores.items()), work


def marked(stores: Stores, group: int) -> Work[Rows]:
    """Return the rows of a marked group."""
    names = sorted(frozenset[str]().union(*(store.readable for store in stores.values())))

    def work() -> Rows:
        return Rows(
            {shard: {name: full(store.marks[group][name]) for name in names} for shard, store in stores.items()}
        )

    return sum(store.read_bytes(0, True) for store in stores.values()), work


def state(stores: Stores) -> Work[dict[int, ShardState]]:
    """Return all of each shard."""
    n_bytes = sum(store.state_bytes() for store in stores.values())
    return n_bytes, lambda: {shard: store.state() for shard, store in stores.items()}


def _make_room(stores: Sequence[ShardStore], group: int) -> None:
    """Have the tables that change in all the shards written side by side in memory for `group`."""
    names = set.intersection(*(store.changes(group) for store in stores)) if len(stores) > 1 else set()
    tables = {name: [store.committed[name] for store in stores] for name in sorted(names)}
    # The new state of a sparse table is full for a moment only.
    arrays = {name: room(rows) for name, rows in tables.items() if not any(isinstance(t, SparseRows) for t in rows)}
    for at, store in enumerate(stores if names else ()):
        store.write_to({name: by_store[at] for name, by_store in arrays.items()})


def _some(tables: Tables, rows: Wanted) -> Arrays:
    return {name: full(table) if (wanted := rows[name]) is None else table[wanted] for name, table in tables.items()}
