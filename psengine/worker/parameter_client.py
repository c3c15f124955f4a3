"""The parameter client of a node: one cache and one update log per process, one or two messages per server (`flush`).

A cached value that shows c completed tasks serves any task that has to see at most c; under BSP only one that has to
see exactly c, because there a read is of exactly one state. Updates are flushed before completions are reported. If a
batch wants only some rows of a table, their union is read.

Source: Litz (2017), 3.1 and 5.
Differs: updates are summed by blocks of partitions (see `tree_sum`), where Litz sums all: only then is the sum on the
server the same bit for bit wherever partitions were worked on, and can the updates of lost tasks be replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proteus_spot.psengine.config import Add
from proteus_spot.psengine.protocol.answers import JoinedRows, Rows
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.protocol.read_version import Before, Committed, Complete, KeptSum, ReadVersion
from proteus_spot.psengine.rpc.narrowing import wire_bytes
from proteus_spot.psengine.rpc.transport import Transfers, Transport, Unreachable
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.tables.row_cache import RowCache
from proteus_spot.psengine.tables.row_sets import Array, RowBlock, RowSet, Wanted, cut
from proteus_spot.psengine.tables.sharding import Arrays, Sharding
from proteus_spot.psengine.telemetry.byte_counts import count_moved
from proteus_spot.psengine.worker.routing import TRIES, ElsewhereError, Routes, ServerCalls, SupersededError, never
from proteus_spot.psengine.worker.shard_messages import (
    BlockSum,
    PendingReads,
    arrays,
    as_blocks,
    asks_all,
    cut_update,
    cut_wanted,
    size,
)

#: Maximum number of times that a read-ahead is repeated while a server does not have the group yet.
_AHEAD_TRIES = 30


class ParameterClient:
    """Reads and writes the model for every task of one process.

    Parameters
    ----------
    address : str
        Address of this process, never used by another one: the server there is called as an object, without the
        network.

    Attributes
    ----------
    routes : Routes
        The servers of the shards, as known to this node.
    """

    def __init__(self, address: str, transport: Transport, own: ShardServer) -> None:
        self._address = address
        #: Calls of this process that move parameters.
        self.transfers = Transfers(transport)
        self.routes = Routes()
        self._calls = ServerCalls(address, self.transfers, self.routes, own)
        #: Whether a read that waits for updates is given up: the next batch of this process may produce them.
        self.gives_way: Callable[[], bool] = lambda: False
        self._cache = RowCache()
        self._reading = PendingReads()
        #: Bytes of parameters by kind, since the beginning: `read` and `push` went over the network, `own` is the
        #: state of partitions, which was not read since it was on this node.
        self.moved: dict[str, int] = {"read": 0, "push": 0, "own": 0}

    def use_map(self, version: int, owners: Sequence[ShardOwner], generation: int = 0) -> None:
        """Route by this map from now on, if it is newer; owners with a later epoch, known from redirects, stay."""
        if self.routes.use(version, owners, generation):
            self._cache.clear()

    def begin(self, generation: int, batch: int, completions: int = 0) -> None:
        """Begin a batch that was dispatched in `generation`; nothing of it is sent once another generation has begun.

        `completions`: the number that it has to see; what later batches do not need is dropped from the cache.

        Raises
        ------
        SupersededError
            If another generation has begun already.
        """
        self.routes.begin(generation)
        self._calls.batch = batch
        self._cache.drop_before(completions)

    async def read_rows(
        self,
        sharding: Sharding,
        wanted: Wanted,
        completions: int,
        committed: int,
        exact: bool,
    ) -> dict[str, RowBlock]:
        """Return tables, or rows of them, that show so many completions; do not modify them.

        Rows that were read for another task that has to see as many or more, or are being read, are not read again
        (`row_cache`). The first read for a number of completions is sent to every server, even for no rows, so that
        each learns which groups it may fold.

        Raises
        ------
        SupersededError, Unreachable
        """
        while True:
            blocks = {name: self._cache.find(name, rows, completions, exact) for name, rows in wanted.items()}
            found = {name: block for name, block in blocks.items() if block is not None}
            missing = {name: rows for name, rows in wanted.items() if name not in found}
            if not missing and self._cache.is_known(completions, exact):
                return found
            under_way = self._reading.find(missing, completions, exact)
            if under_way is None:
                return found | await self._read_missing(sharding, missing, completions, committed, exact)
            await asyncio.wait([under_way])

    async def _read_missing(
        self, sharding: Sharding, missing: Wanted, completions: int, committed: int, exact: bool
    ) -> dict[str, RowBlock]:
        generation = self.routes.generation
        with self._reading.under_way(missing, completions, exact):
            shards, _ = await self._read(sharding, _rows_by_shard(sharding, missing), Committed(committed, exact))
            self.routes.check()
            if self.routes.generation != generation:
                raise SupersededError(f"read in generation {generation}, rolled back to {self.routes.generation}")
            read = as_blocks(sharding, missing, shards)
            self._cache.put(read, completions, exact)
            return read

    async def kept_sum(self, sharding: Sharding, table: str, partitions: Sequence[int], committed: int) -> Array | None:
        """Return the sum of what exactly these partitions have added to a table; None if a server does not keep it.

        Raises
        ------
        SupersededError
        """
        every = dict.fromkeys(range(sharding.n_shards))
        try:
            version = KeptSum(committed, table, tuple(partitions))
            shards, _ = await self._read(sharding, every, version, follow=False)
        except (Unreachable, ElsewhereError):
            return None  # the sums do not move
        if len(shards) < sharding.n_shards:
            return None
        return as_blocks(sharding, {table: None}, shards)[table].values

    async def read_ahead(self, sharding: Sharding, wanted: Wanted, group: int) -> tuple[dict[str, RowBlock], int]:
        """Return the rows that `read_rows` returns at the committed group `group`, once the servers have its updates.

        Returns
        -------
        read : dict
        attempt : int
            The rows are valid only if the controller counts the completions of `group` under this attempt.

        Raises
        ------
        SupersededError, Unreachable
            The rows cannot be read ahead; use `read_rows` when the controller dispatches `group` + 1.
        """
        shards, attempts = await self._read(
            sharding,
            _rows_by_shard(sharding, wanted),
            Complete(group),
            follow=False,  # the new map is on its way
            tries=1,
            again=lambda tried: tried < _AHEAD_TRIES,
        )
        if len(attempts) > 1:
            raise SupersededError(f"the updates of clock {group} are of several attempts")
        return as_blocks(sharding, wanted, shards), attempts.pop()

    async def read_before(
        self,
        sharding: Sharding,
        wanted: Wanted,
        group: int,
        after: Sequence[tuple[int, int]],
        committed: int,
        readers: Sequence[int],
        named: Mapping[str, RowSet],
    ) -> dict[str, RowBlock]:
        """Return rows as they are before `group`, once the updates `after` (group, partition) have arrived.

        That group need not be committed, but `committed` is. `gives_way` is called every few seconds.

        Servers of none of the rows are asked, too: what the tasks write there comes after the updates `after`, so that
        a task which comes after these tasks need not name the writers before.

        Parameters
        ----------
        readers : sequence of int
            The partitions whose tasks of `group` read.
        named : mapping
            Of tables of which `wanted` are more rows than the tasks have named: these.

        Raises
        ------
        SupersededError, Unreachable
        ValueError
            If a table has an update rule.
        """
        for table in sharding.tables:
            if table.name in wanted and not isinstance(table.rule, Add):
                raise ValueError(
                    f"a task that reads 'rows' with `after` wants table {table.name!r}, whose update rule is applied "
                    "to whole groups: let it read 'group'"
                )
        asked = {shard: cut_wanted(sharding, wanted, shard) for shard in range(sharding.n_shards)}
        fewer = _cut_to_shards(sharding, named) if named else {}
        version = Before(group, tuple(after), committed, tuple(readers), fewer)
        shards, _ = await self._read(sharding, asked, version, again=lambda tried: not self.gives_way())
        self.routes.check()
        return as_blocks(sharding, wanted, {shard: shards.get(shard, {}) for shard in asked})

    async def flush(self, sharding: Sharding, group: int, sums: Sequence[BlockSum], committed: int = 0) -> None:
        """Send the sums of a batch, together for each server, and return when every server has taken its part.

        The servers may fold the groups up to `committed` from then on.

        Raises
        ------
        SupersededError, Unreachable
            The batch is to be given up; servers that took their message keep it, under its attempts.
        """

        async def send_to(address: str, epochs: dict[int, int]) -> Any:
            updates = {shard: [cut_update(sharding, total, shard) for *_, total in sums] for shard in epochs}
            try:
                return await self._calls.ask(
                    address,
                    "proteus_push",
                    epochs,
                    size(updates),
                    group=group,
                    blocks=[(low, attempts) for low, attempts, _ in sums],
                    updates=updates,
                    committed=committed,
                )
            finally:
                if address != self._address:
                    count_moved(self.moved, "push", address, sum(wire_bytes(delta) for delta in arrays(updates)))

        await self._calls.at_owners(range(sharding.n_shards), send_to)

    async def _read(
        self,
        sharding: Sharding,
        rows: Mapping[int, Wanted | None],
        version: ReadVersion,
        *,
        follow: bool = True,
        tries: int = TRIES,
        again: Callable[[int], bool] = never,
    ) -> tuple[dict[int, Arrays], set[int]]:
        """Return the rows of the shards in `rows`, by shard, and the attempts that servers have named.

        None in `rows` stands for all that the request is of. For `follow` and `again` see `ServerCalls.at_owners`.
        """
        shards: dict[int, Arrays] = {}
        attempts: set[int] = set()

        async def read_from(address: str, epochs: dict[int, int]) -> Any:
            some = {shard: wanted for shard in epochs if (wanted := rows[shard]) is not None}
            named = {"rows": some} if some else {}
            answer = await self._calls.ask(
                address, "proteus_read", epochs, sharding.all_bytes(epochs), tries=tries, version=version, **named
            )
            if isinstance(answer, Rows | JoinedRows):
                self._count_read(address, answer, some)
                shards.update(answer.by_shard())
                attempts.add(answer.attempt)
            return answer

        await self._calls.at_owners(rows, read_from, follow, again)
        return shards, attempts

    def _count_read(self, address: str, answer: Rows | JoinedRows, asked: Mapping[int, Wanted]) -> None:
        """Count the bytes read, as they were sent, and of the row numbers."""
        if address != self._address:
            read = sum(wire_bytes(array) for array in answer.arrays())
            named = [rows for of_shard in asked.values() for rows in of_shard.values()]
            count_moved(self.moved, "read", address, read + sum(wire_bytes(rows) for rows in named))


def _rows_by_shard(sharding: Sharding, wanted: Wanted) -> dict[int, Wanted | None]:
    """Return the wanted rows of each shard, counted from its first rows; None for all rows of all tables."""
    shards = range(sharding.n_shards)
    if asks_all(sharding, wanted):
        return dict.fromkeys(shards)
    return {shard: cut_wanted(sharding, wanted, shard) for shard in shards}


def _cut_to_shards(sharding: Sharding, rows: Mapping[str, RowSet]) -> dict[int, Wanted]:
    """Return rows by shard, counted from its first ones; none of a table are an empty set."""
    tables = [table for table in sharding.tables if table.name in rows]
    return {
        shard: {table.name: cut(rows[table.name], *sharding.rows(shard, table)) for table in tables}
        for shard in range(sharding.n_shards)
    }
