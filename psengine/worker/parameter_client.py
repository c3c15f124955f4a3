"""The parameter client of a node: one cache and one update log per process, one or two messages per server (`flush`).

A cached value fetched under parent clock c serves any micro-task with a parent clock <= c; under BSP only that exact
clock, because there a read is of exactly one state. Updates are flushed before completions are reported. If a batch
wants only some rows of a table, their union is read.

Source: Litz (2017), 3.1 and 5.
Differs: updates are summed by blocks of partitions (see `tree_sum`), where Litz sums all: only then is the sum on the
server the same bit for bit wherever partitions were worked on, and can the effects of lost micro-tasks be replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from psengine.config import Add
from psengine.protocol.instructions import ShardOwner
from psengine.rpc.cancellation import all_or_none
from psengine.rpc.integer_narrowing import wire_bytes
from psengine.rpc.transfers import Transfers
from psengine.rpc.transport import Transport, Unreachable
from psengine.server.shard_server import ShardServer
from psengine.tables.contiguous import unpacked
from psengine.tables.row_cache import RowCache
from psengine.tables.row_sets import Array, RowBlock, RowSet, Wanted, count
from psengine.tables.sharding import Arrays, Sharding
from psengine.telemetry.byte_counts import count_moved
from psengine.worker.push_messages import BlockSum, Updates, arrays, cut_update, size
from psengine.worker.read_messages import PendingReads, as_blocks, asks_all, cut_wanted
from psengine.worker.routing import Routes, SupersededError

#: Seconds that a server has to answer, in addition to the transfer time of the parameters.
_DEADLINE_S = 10.0
_TRIES = 3
_READS = ("proteus_pull", "proteus_pull_ahead", "proteus_pull_before")
#: Maximum number of times that a read-ahead is repeated while a server does not have the clock yet.
_AHEAD_TRIES = 30


class ParameterClient:
    """Reads and writes the model for every micro-task of one process.

    Parameters
    ----------
    sender : str
        Unique to this process.
    address : str
        Address of this process: the server at this address is called as an object, without the network.

    Attributes
    ----------
    routes : Routes
        The servers of the shards, as known to this node.
    """

    def __init__(self, sender: str, address: str, transport: Transport, own: ShardServer) -> None:
        self._sender, self._address, self._own = sender, address, own
        #: Calls of this process that move parameters.
        self.transfers = Transfers(transport)
        self.routes = Routes()
        #: Whether a read that waits for effects is given up: the next batch of this process may produce them.
        self.gives_way: Callable[[], bool] = lambda: False
        #: Number of the batch under way.
        self._batch = 0
        self._cache = RowCache()
        self._reading = PendingReads()
        self._sequence: dict[str, int] = {}
        #: Bytes of parameters by kind, since the beginning: `read` and `push` went over the network, `own` is the
        #: state of executors, which was not read since it was on this node.
        self.moved: dict[str, int] = {"read": 0, "push": 0, "own": 0}

    def use_map(self, version: int, owners: Sequence[ShardOwner], generation: int = 0) -> None:
        """Route by this map from now on, if it is newer; owners with a later epoch, known from redirects, stay."""
        if self.routes.use(version, owners, generation):
            self._cache.clear()

    def begin(self, generation: int, batch: int, parent_clock: int = 0) -> None:
        """Begin a batch that was dispatched in `generation`; nothing of it is sent once another generation has begun.

        `parent_clock`: what later batches do not need is dropped from the cache.

        Raises
        ------
        SupersededError
            If another generation has begun already.
        """
        self.routes.begin(generation)
        self._batch = batch
        self._cache.drop_before(parent_clock)

    async def read(self, sharding: Sharding, parent_clock: int, committed: int, exact: bool) -> Arrays:
        """Return all tables with every effect up to `parent_clock`; do not modify them.

        Raises
        ------
        SupersededError, Unreachable
        """
        all_rows: dict[str, RowSet | None] = {table.name: None for table in sharding.tables}
        blocks_read = await self.read_rows(sharding, all_rows, parent_clock, committed, exact)
        return {name: block.values for name, block in blocks_read.items()}

    async def read_rows(
        self,
        sharding: Sharding,
        wanted: Wanted,
        parent_clock: int,
        committed: int,
        exact: bool,
    ) -> dict[str, RowBlock]:
        """Return tables, or rows of them, with every effect up to `parent_clock`; do not modify them.

        Rows that were read for another task under this clock, or a newer one, or are being read, are not read again
        (`row_cache`). The first read under a clock is sent to every server, even for no rows, so that each learns which
        clocks it may fold.

        Raises
        ------
        SupersededError, Unreachable
        """
        while True:
            blocks = {name: self._cache.find(name, rows, parent_clock, exact) for name, rows in wanted.items()}
            found = {name: block for name, block in blocks.items() if block is not None}
            missing = {name: rows for name, rows in wanted.items() if name not in found}
            if not missing and self._cache.is_known(parent_clock, exact):
                return found
            under_way = self._reading.find(missing, parent_clock, exact)
            if under_way is None:
                return found | await self._read_missing(sharding, missing, parent_clock, committed, exact)
            await asyncio.wait([under_way])

    async def _read_missing(
        self, sharding: Sharding, missing: Wanted, parent_clock: int, committed: int, exact: bool
    ) -> dict[str, RowBlock]:
        generation = self.routes.generation
        with self._reading.under_way(missing, parent_clock, exact):
            shards = await self._pull(range(sharding.n_shards), sharding, missing, committed, exact)
            self.routes.check()
            if self.routes.generation != generation:
                raise SupersededError(f"read in generation {generation}, rolled back to {self.routes.generation}")
            read = as_blocks(sharding, missing, shards)
            self._cache.put(read, parent_clock, exact)
            return read

    async def kept_sum(self, sharding: Sharding, table: str, executors: Sequence[int], committed: int) -> Array | None:
        """Return the sum of what exactly these executors have added to a table; None if a server does not keep it.

        Raises
        ------
        SupersededError
        """
        wanted = {"table": table, "executors": list(executors)}

        async def read_from(address: str, epochs: dict[int, int]) -> dict[int, Arrays]:
            most = sum(sharding.nbytes(shard) for shard in epochs)
            try:
                answer = await self._ask(
                    address, "proteus_pull", most, epochs=epochs, committed=committed, exact=True, summed=wanted
                )
            except Unreachable:
                return {}
            if answer["status"] == "moved":
                return {}  # the sums do not move
            self._count_read(address, answer["shards"], {})
            return unpacked(answer["shards"])

        found = await all_or_none(
            read_from(*server) for server in self.routes.by_server(range(sharding.n_shards)).items()
        )
        shards = {shard: rows for by_shard in found for shard, rows in by_shard.items()}
        if len(shards) < sharding.n_shards:
            return None
        return as_blocks(sharding, {table: None}, shards)[table].values

    async def read_ahead(self, sharding: Sharding, wanted: Wanted, clock: int) -> tuple[dict[str, RowBlock], int]:
        """Return the rows that `read_rows` returns at the committed clock `clock`, once the servers have its effects.

        Returns
        -------
        read : dict
        attempt : int
            The rows are valid only if the controller counts the completions of `clock` under this attempt.

        Raises
        ------
        SupersededError, Unreachable
            The rows cannot be read ahead; use `read_rows` when the controller dispatches `clock` + 1.
        """
        all_rows = asks_all(sharding, wanted)

        async def read_from(address: str, epochs: dict[int, int]) -> tuple[dict[int, Arrays], int]:
            request: dict[str, Any] = {}
            if not all_rows:
                request["rows"] = {shard: cut_wanted(sharding, wanted, shard) for shard in epochs}
            for _ in range(_AHEAD_TRIES):
                most = sum(sharding.nbytes(shard) for shard in epochs)
                answer = await self._ask(
                    address, "proteus_pull_ahead", most, tries=1, epochs=epochs, clock=clock, **request
                )
                if answer["status"] == "ok":
                    self._count_read(address, answer["shards"], request)
                    return unpacked(answer["shards"]), answer["attempt"]
                if answer["status"] == "moved":
                    break  # the new map is on its way
            raise SupersededError(answer["error"])

        servers = self.routes.by_server(range(sharding.n_shards))
        found = await all_or_none(read_from(*server) for server in servers.items())
        attempts = {attempt for _, attempt in found}
        if len(attempts) > 1:
            raise SupersededError(f"the effects of clock {clock} are of several attempts")
        shards = {shard: rows for by_shard, _ in found for shard, rows in by_shard.items()}
        return as_blocks(sharding, wanted, shards), attempts.pop()

    async def read_before(
        self, sharding: Sharding, wanted: Wanted, clock: int, after: Sequence[tuple[int, int]], committed: int
    ) -> dict[str, RowBlock]:
        """Return rows as they are before `clock`, once the effects `after` (clock, partition) have arrived.

        That clock need not be committed, but `committed` is. `gives_way` is asked every few seconds.

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
        some = [shard for shard in asked if any(rows is None or count(rows) for rows in asked[shard].values())]
        shards = await self._pull_before(some, sharding, asked, clock, after, committed)
        self.routes.check()
        return as_blocks(sharding, wanted, {shard: shards.get(shard, {}) for shard in asked})

    async def _pull_before(
        self,
        shards: Iterable[int],
        sharding: Sharding,
        asked: Mapping[int, Wanted],
        clock: int,
        after: Sequence[tuple[int, int]],
        committed: int,
    ) -> dict[int, Arrays]:
        async def read_from(address: str, epochs: dict[int, int]) -> dict[int, Arrays]:
            request: dict[str, Any] = {"rows": {shard: asked[shard] for shard in epochs}}
            most = sum(sharding.nbytes(shard) for shard in epochs)
            while True:
                try:
                    answer = await self._ask(
                        address,
                        "proteus_pull_before",
                        most,
                        epochs=epochs,
                        clock=clock,
                        after=after,
                        committed=committed,
                        **request,
                    )
                except Unreachable as error:
                    again = await self.routes.await_new_owners(epochs, address, error)
                    return await self._pull_before(again, sharding, asked, clock, after, committed)
                if answer["status"] == "moved":
                    again = self.routes.redirect(epochs, answer)
                    return await self._pull_before(again, sharding, asked, clock, after, committed)
                if answer["status"] == "ok":
                    self._count_read(address, answer["shards"], request)
                    return unpacked(answer["shards"])
                if self.gives_way():
                    raise SupersededError(answer["error"])

        found = await all_or_none(read_from(*server) for server in self.routes.by_server(shards).items())
        return {shard: rows for by_shard in found for shard, rows in by_shard.items()}

    async def flush(self, sharding: Sharding, clock: int, sums: Sequence[BlockSum], committed: int = 0) -> None:
        """Send the sums of a batch, together for each server, and return when every server has taken its part.

        The servers may fold the clocks up to `committed` from then on.

        Raises
        ------
        SupersededError, Unreachable
            The batch is to be given up; servers that took their message keep it, under its attempts.
        """
        await self._push(range(sharding.n_shards), sharding, clock, sums, committed)

    async def _pull(
        self,
        shards: Iterable[int],
        sharding: Sharding,
        wanted: Wanted,
        committed: int,
        exact: bool,
    ) -> dict[int, Arrays]:
        """Return the wanted rows of `shards` from their servers."""
        all_rows = asks_all(sharding, wanted)

        async def read_from(address: str, epochs: dict[int, int]) -> dict[int, Arrays]:
            request: dict[str, Any] = {}
            if not all_rows:
                request["rows"] = {shard: cut_wanted(sharding, wanted, shard) for shard in epochs}
            most = sum(sharding.nbytes(shard) for shard in epochs)
            try:
                answer = await self._ask(
                    address, "proteus_pull", most, epochs=epochs, committed=committed, exact=exact, **request
                )
            except Unreachable as error:
                again = await self.routes.await_new_owners(epochs, address, error)
                return await self._pull(again, sharding, wanted, committed, exact)
            if answer["status"] == "moved":
                return await self._pull(self.routes.redirect(epochs, answer), sharding, wanted, committed, exact)
            self._count_read(address, answer["shards"], request)
            return unpacked(answer["shards"])

        found = await all_or_none(read_from(*server) for server in self.routes.by_server(shards).items())
        return {shard: rows for by_shard in found for shard, rows in by_shard.items()}

    def _count_read(self, address: str, shards: Mapping[Any, Any], asked: Mapping[str, Any]) -> None:
        """Count the bytes read of `shards`, as they were sent (see `contiguous.packed`), and of the row numbers."""
        if address != self._address:
            sent = [shards["tables"]] if "tables" in shards else shards.values()
            named = [rows for of_shard in asked.get("rows", {}).values() for rows in of_shard.values()]
            read = sum(wire_bytes(array) for tables in sent for array in tables.values())
            count_moved(self.moved, "read", address, read + sum(wire_bytes(rows) for rows in named))

    def count_push(self, address: str, sums: Sequence[BlockSum]) -> None:
        """Count the bytes of sums that were sent to another node."""
        count_moved(
            self.moved, "push", address, sum(wire_bytes(delta) for *_, update in sums for delta in update.values())
        )

    async def _push(
        self, shards: Iterable[int], sharding: Sharding, clock: int, sums: Sequence[BlockSum], committed: int
    ) -> None:
        """Send the updates of `shards` to their servers."""

        async def send_to(address: str, epochs: dict[int, int]) -> None:
            self._sequence[address] = sequence = self._sequence.get(address, 0) + 1
            message: dict[str, Any] = {
                "sender": self._sender,
                "sequence": sequence,
                "clock": clock,
                "epochs": epochs,
                "blocks": [(low, attempts) for low, attempts, _ in sums],
                "updates": {shard: [cut_update(sharding, total, shard) for *_, total in sums] for shard in epochs},
                "committed": committed,
            }
            try:
                answer = await self._send(address, "proteus_push", **message)
            except Unreachable as error:
                again = await self.routes.await_new_owners(epochs, address, error)
                await self._push(again, sharding, clock, sums, committed)
                return
            if answer["status"] == "moved":
                await self._push(self.routes.redirect(epochs, answer), sharding, clock, sums, committed)

        await all_or_none(send_to(*server) for server in self.routes.by_server(shards).items())

    async def _send(self, address: str, op: str, updates: Updates, **message: Any) -> Any:
        """Send updates to a server, count them, and return its answer."""
        try:
            return await self._ask(address, op, size(updates), updates=updates, **message)
        finally:
            if address != self._address:
                count_moved(self.moved, "push", address, sum(wire_bytes(delta) for delta in arrays(updates)))

    async def _ask(self, address: str, op: str, n_bytes: int, tries: int = _TRIES, **message: Any) -> Any:
        """Return a server's answer; at most `n_bytes` of parameters are transferred."""
        self.routes.check()
        if address != self._address:
            if op in _READS:
                # Servers answer in the order of the batches.
                message |= {"turn": self._batch, "reader": self._sender}
            call = partial(self.transfers.call, address, op, _DEADLINE_S, n_bytes, **message)
            answer = await self.routes.retry(address, op, message["epochs"], call, tries)
        elif op == "proteus_pull_ahead":
            answer = await self._own.pull_ahead(**message)
        elif op == "proteus_pull_before":
            await self._own.arrived(message["epochs"])
            self.routes.check()
            answer = await self._own.pull_before(**message)
        else:
            await self._own.arrived(message["epochs"])
            self.routes.check()
            local: dict[str, Callable[..., Any]] = {
                "proteus_pull": self._own.pull,
                "proteus_push": self._own.push,
            }
            answer = local[op](**message)
        if answer["status"] not in ("ok", "moved", "not-yet"):
            raise SupersededError(answer["error"])
        return answer
