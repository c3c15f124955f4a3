"""The process-wide client of a node: one cache, one update log, one message a server, or two (`flush`).

A cached value fetched under parent clock c serves any micro-task with a parent clock <= c; under BSP only that very
clock, because there a read is of exactly one state. Updates are flushed before completions are reported. Of a table of
which a batch wants some rows only, their union is read; rows that belong to one partition each are kept (`own`).

Source: Litz (2017), 3.1 and 5.
Differs: updates are summed by blocks of partitions (see `sums`), where Litz sums all: only then is the sum on the server
the same bit for bit wherever partitions were worked on, and can the effects of lost micro-tasks be replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from psengine.config import TableSpec
from psengine.protocol.instructions import ShardOwner, TaskKey
from psengine.rpc.cancellation import all_or_none, cancel_all
from psengine.rpc.integer_narrowing import wire_bytes
from psengine.rpc.transport import Transport, Unreachable, deadline_s
from psengine.server.shard_server import ShardServer
from psengine.tables.contiguous import joined, unpacked
from psengine.tables.row_sets import Array, RowBlock, RowSet, Wanted, count, cut, read_only
from psengine.tables.sharding import Arrays, Sharding
from psengine.worker.executor_cache import Left, OwnRows
from psengine.worker.push_messages import (
    BlockSum,
    Updates,
    announced,
    arrays,
    cut_update,
    divided,
    foretold,
    own_tables,
    size,
)
from psengine.worker.routing import Routes, SupersededError

#: Seconds that a server has to answer, besides the time that the parameters may take.
_DEADLINE_S = 10.0
_TRIES = 3
_READS = ("proteus_pull", "proteus_pull_ahead")
#: In bytes: so much that others need not wait for is worth a message of its own, on a slow link at the least.
_REST_BYTES = 4096
#: Seconds that it waits at most for what the node reads ahead, which would have to share the way with it.
_REST_WAITS_S = 0.01
#: In bytes: so much may be sent twice, with the word of what will come and with all else.
_SHORT_BYTES = 1 << 16
#: Seconds that an announcement waits at most for the word that it will come: sent together, the longer one would be first.
_TOLD_WAITS_S = 0.01
#: how often a server is asked anew for what is not there yet, when it is read ahead
_PATIENT_TRIES = 30


class ParameterClient:
    """Reads and writes the model for every micro-task of one process.

    Parameters
    ----------
    sender : str
        Unique to this process.
    address : str
        Of this process: servers at this address are called as objects, without the network.

    Attributes
    ----------
    routes : Routes
        Who serves what, as far as is known here.
    """

    def __init__(self, sender: str, address: str, transport: Transport, own: ShardServer) -> None:
        self._sender, self._address, self._transport, self._own = sender, address, transport, own
        self.routes = Routes()
        #: number of the batch under way
        self._batch = 0
        #: parent clock, and what was read under it
        self._cache: tuple[int, dict[str, RowBlock]] | None = None
        self._own_rows = OwnRows()
        #: its generation when the batch under way was begun
        self._begun = 0
        self._sequence: dict[str, int] = {}
        #: bytes of parameters by kind, since the beginning: `read` and `push` went over the network, `own` did not have to be
        #: read because they were kept
        self.moved: dict[str, int] = {"read": 0, "push": 0, "own": 0}

    def use_map(self, version: int, owners: Sequence[ShardOwner], generation: int = 0) -> None:
        """Route by this map from now on, if it is newer; a shard that has moved on since stays where it is known to be."""
        if self.routes.use(version, owners, generation):
            self._cache = None
            self.forget_own()

    def forget_own(self) -> None:
        """Forget the rows that were kept: the next micro-tasks read them from the servers."""
        self._own_rows.forget()

    def kept(self, task: TaskKey, clock: int, own: Mapping[str, RowSet]) -> dict[str, Array]:
        """Return by table the rows of its own that a micro-task need not read; they are not to be written to."""
        return self._own_rows.find(task, clock, own)

    def begin(self, generation: int, batch: int) -> None:
        """Begin a batch that was ordered in `generation`; nothing of it is sent once another generation has begun.

        Raises
        ------
        SupersededError
            When it has already.
        """
        self._batch, self._begun = batch, self._own_rows.generation
        self.routes.begin(generation)

    async def read(self, sharding: Sharding, parent_clock: int, committed: int, exact: bool) -> Arrays:
        """Return whole tables that show every effect up to `parent_clock`; they are not to be written to.

        Raises
        ------
        SupersededError, Unreachable
        """
        whole: dict[str, RowSet | None] = {table.name: None for table in sharding.tables}
        blocks_read = await self.read_rows(sharding, whole, parent_clock, committed, exact)
        return {name: block.values for name, block in blocks_read.items()}

    async def read_rows(
        self,
        sharding: Sharding,
        wanted: Wanted,
        parent_clock: int,
        committed: int,
        exact: bool,
        clock: int | None = None,
    ) -> dict[str, RowBlock]:
        """Return tables, or rows of them, that show every effect up to `parent_clock`; they are not to be written to.

        What was read under this clock already is not read again. The first read under a clock asks every server, also
        for nothing: so they learn what they may fold.

        Rows that belong to one partition each are those before `clock`, the one that is read for: what an earlier
        attempt at it may have left there is not to be seen.

        Raises
        ------
        SupersededError, Unreachable
        """
        found: dict[str, RowBlock] = {}
        first = True
        if self._cache is not None:
            tag, before = self._cache
            if tag == parent_clock or (tag > parent_clock and not exact):
                parent_clock, found, first = tag, before, False
        missing = {name: rows for name, rows in wanted.items() if name not in found or not found[name].has(rows)}
        if first or missing:
            until = {} if exact or clock is None else {of.name: clock - 1 for of in sharding.tables if of.own}
            shards = await self._pull(range(sharding.n_shards), sharding, missing, committed, exact, until)
            self.routes.check()
            fresh = _blocks(sharding, missing, shards)
            # Rows of their own are read once, and kept elsewhere.
            own = {table.name for table in sharding.tables if table.own and missing.get(table.name) is not None}
            self._cache = parent_clock, found | {name: block for name, block in fresh.items() if name not in own}
            found = found | fresh
        return {name: found[name] for name in wanted}

    async def read_ahead(self, sharding: Sharding, wanted: Wanted, clock: int) -> tuple[dict[str, RowBlock], int]:
        """Return what `read_rows` will at the committed clock `clock`, as soon as the servers have all effects of it.

        Returns
        -------
        read : dict
        attempt : int
            It is worth something only if the controller counts the completions of `clock` under this attempt.

        Raises
        ------
        SupersededError, Unreachable
            Nothing is to be had ahead; when the controller orders `clock` + 1, `read_rows` is the way.
        """
        whole = _all_of(sharding, wanted)

        async def of(address: str, epochs: dict[int, int]) -> tuple[dict[int, Arrays], int]:
            some: dict[str, Any] = {"announced": announced(sharding, wanted)}
            if not whole:
                some["rows"] = {shard: _cut_wanted(sharding, wanted, shard) for shard in epochs}
            for _ in range(_PATIENT_TRIES):
                most = sum(sharding.nbytes(shard) for shard in epochs)
                answer = await self._ask(
                    address, "proteus_pull_ahead", most, tries=1, epochs=epochs, clock=clock, **some
                )
                if answer["status"] == "ok":
                    self._count_read(address, answer["shards"], some)
                    return unpacked(answer["shards"]), answer["attempt"]
                if answer["status"] == "moved":
                    break  # the map that says so is on its way
            raise SupersededError(answer["error"])

        found = await all_or_none(of(*server) for server in self.routes.by_server(range(sharding.n_shards)).items())
        attempts = {attempt for _, attempt in found}
        if len(attempts) > 1:
            raise SupersededError(f"the effects of clock {clock} are of several attempts")
        shards = {shard: rows for some, _ in found for shard, rows in some.items()}
        return _blocks(sharding, wanted, shards), attempts.pop()

    async def flush(
        self,
        sharding: Sharding,
        clock: int,
        sums: Sequence[BlockSum],
        committed: int = 0,
        came: asyncio.Event | None = None,
    ) -> None:
        """Send the sums of a batch, all for a server together, and return when every server has taken what is its.

        The servers learn that they may fold the clocks up to `committed`. Where others read ahead, what they read is
        announced first, and rows of partitions' own follow, if there is much of them. Before long runs of rows it is told
        which they are: this node is sent what it reads while it sends them.

        Parameters
        ----------
        came : asyncio.Event, optional
            Given where others read ahead, and set when what this node reads has come; the rest waits for it, not long.

        Raises
        ------
        SupersededError, Unreachable
            The batch is to be given up; servers that took their message keep it, under its attempts.
        """
        await self._push(range(sharding.n_shards), sharding, clock, sums, committed, came)

    def keep(self, clock: int, committed: int, left: Iterable[tuple[TaskKey, Left]], kept_bytes: int) -> None:
        """Keep what micro-tasks of `clock` left of the rows of their own, after `flush`; drop what is older than `committed`.

        `kept_bytes` they had not to read, because it had been kept.
        """
        self.moved["own"] += kept_bytes
        if self._begun == self._own_rows.generation:
            for task, rows in left:
                self._own_rows.keep(task, clock, rows)
        self._own_rows.drop_before(committed)

    async def _pull(
        self,
        shards: Iterable[int],
        sharding: Sharding,
        wanted: Wanted,
        committed: int,
        exact: bool,
        until: Mapping[str, int],
    ) -> dict[int, Arrays]:
        """Return what is wanted of `shards`, from wherever they are served."""
        whole = _all_of(sharding, wanted)

        async def of(address: str, epochs: dict[int, int]) -> dict[int, Arrays]:
            some: dict[str, Any] = {"until": until} if until else {}
            if not whole:
                some["rows"] = {shard: _cut_wanted(sharding, wanted, shard) for shard in epochs}
            most = sum(sharding.nbytes(shard) for shard in epochs)
            try:
                answer = await self._ask(
                    address, "proteus_pull", most, epochs=epochs, committed=committed, exact=exact, **some
                )
            except Unreachable as gone:
                again = await self.routes.remapped(epochs, address, gone)
                return await self._pull(again, sharding, wanted, committed, exact, until)
            if answer["status"] == "moved":
                return await self._pull(self.routes.rerouted(epochs, answer), sharding, wanted, committed, exact, until)
            self._count_read(address, answer["shards"], some)
            return unpacked(answer["shards"])

        found = await all_or_none(of(*server) for server in self.routes.by_server(shards).items())
        return {shard: rows for some in found for shard, rows in some.items()}

    def _count_read(self, address: str, shards: Mapping[Any, Any], asked: Mapping[str, Any]) -> None:
        """Count what was read of `shards`, as they were sent (see `adjacent.packed`), and what naming the rows took."""
        if address != self._address:
            sent = [shards["tables"]] if "tables" in shards else shards.values()
            self.moved["read"] += sum(wire_bytes(array) for tables in sent for array in tables.values())
            named = [rows for of_shard in asked.get("rows", {}).values() for rows in of_shard.values()]
            self.moved["read"] += sum(wire_bytes(rows) for rows in named)

    async def _push(
        self,
        shards: Iterable[int],
        sharding: Sharding,
        clock: int,
        sums: Sequence[BlockSum],
        committed: int,
        came: asyncio.Event | None = None,
    ) -> None:
        """Bring the updates of `shards` to wherever they are served."""
        own = own_tables(sharding) if came is not None else frozenset()

        async def to(address: str, epochs: dict[int, int]) -> None:
            self._sequence[address] = sequence = self._sequence.get(address, 0) + 1
            updates = {shard: [cut_update(sharding, total, shard) for *_, total in sums] for shard in epochs}
            blocks = [(low, attempts) for low, attempts, _ in sums]
            same: dict[str, Any] = {"clock": clock, "epochs": epochs, "blocks": blocks, "committed": committed}
            named: dict[str, Any] = {**same, "sender": self._sender, "sequence": sequence}
            answer = None
            first, rest = divided(updates, own)
            try:
                if came is not None and size(rest) >= _REST_BYTES:
                    async with self._foretelling(address, first, **same):
                        answer = await self._send(address, "proteus_announce", updates=first, **same)
                    if answer["status"] == "ok":
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(came.wait(), _REST_WAITS_S)
                        answer = await self._send(address, "proteus_push", updates=rest, announced=True, **named)
                if answer is None or answer["status"] == "unannounced":
                    answer = await self._send(address, "proteus_push", updates=updates, **named)
            except Unreachable as gone:
                await self._push(await self.routes.remapped(epochs, address, gone), sharding, clock, sums, committed)
                return
            if answer["status"] == "moved":
                await self._push(self.routes.rerouted(epochs, answer), sharding, clock, sums, committed)

        await all_or_none(to(*server) for server in self.routes.by_server(shards).items())

    @contextlib.asynccontextmanager
    async def _foretelling(self, address: str, updates: Updates, **message: Any) -> AsyncIterator[None]:
        """Tell a server which long runs of rows the block will send it; nobody waits for it where the way there is full.

        What is short goes with it, and if there is much else, nothing is told.
        """
        short, to_come = foretold(updates)
        some = any(runs for per_block in to_come.values() for runs in per_block)
        if address == self._address or not some or size(short) > _SHORT_BYTES:
            yield
            return

        async def tell() -> None:
            with contextlib.suppress(Unreachable, SupersededError):  # what is sent next finds out
                await self._send(address, "proteus_announce", updates=short, to_come=to_come, tries=1, **message)

        told = asyncio.create_task(tell())
        try:
            await asyncio.wait([told], timeout=_TOLD_WAITS_S)
            yield
        finally:
            await cancel_all([told])

    async def _send(self, address: str, op: str, updates: Updates, **message: Any) -> Any:
        """Send updates to a server, count them, and return its answer."""
        try:
            return await self._ask(address, op, size(updates), updates=updates, **message)
        finally:
            if address != self._address:
                self.moved["push"] += sum(wire_bytes(of) for of in arrays(updates))

    async def _ask(self, address: str, op: str, n_bytes: int, tries: int = _TRIES, **message: Any) -> Any:
        """Return a server's answer; `n_bytes` of parameters may travel, at the most."""
        self.routes.check()
        if address != self._address:
            if op in _READS:
                # servers answer in the order of the batches
                message |= {"turn": self._batch, "reader": self._sender}
            within_s = deadline_s(_DEADLINE_S, n_bytes)
            answer = await self.routes.retried(
                address, op, message["epochs"], lambda: self._transport.call(address, op, within_s, **message), tries
            )
        elif op == "proteus_pull_ahead":
            answer = await self._own.pull_ahead(**message)
        else:
            await self._own.arrived(message["epochs"])
            self.routes.check()
            local: dict[str, Callable[..., Any]] = {
                "proteus_pull": self._own.pull,
                "proteus_push": self._own.push,
                "proteus_announce": self._own.announce,
            }
            answer = local[op](**message)
            if op == "proteus_announce":
                await asyncio.sleep(0)  # those who have waited for it are on their way
        if answer["status"] not in ("ok", "moved", "not-yet", "unannounced"):
            raise SupersededError(answer["error"])
        return answer


def _all_of(sharding: Sharding, wanted: Wanted) -> bool:
    return len(wanted) == len(sharding.tables) and all(rows is None for rows in wanted.values())


def _blocks(sharding: Sharding, wanted: Wanted, shards: Mapping[int, Arrays]) -> dict[str, RowBlock]:
    """Return what was read of all shards, by table."""
    return {
        table.name: RowBlock(wanted[table.name], _joined(table, sharding, shards))
        for table in sharding.tables
        if table.name in wanted
    }


def _cut_wanted(sharding: Sharding, wanted: Wanted, shard: int) -> dict[str, RowSet | None]:
    """Return what is wanted of a shard, counted from its first rows."""
    out: dict[str, RowSet | None] = {}
    for table in sharding.tables:
        if table.name in wanted:
            rows = wanted[table.name]
            there = None if rows is None else cut(rows, *sharding.rows(shard, table))
            if there is None or count(there):
                out[table.name] = there
    return out


def _joined(table: TableSpec, sharding: Sharding, shards: Mapping[int, Arrays]) -> Array:
    """Return what was read of a table from all shards, in order."""
    there = [rows[table.name] for shard in range(sharding.n_shards) if table.name in (rows := shards[shard])]
    some = [rows for rows in there if len(rows)]
    if not some:
        return read_only(np.zeros((0, table.n_cols), table.dtype))
    return read_only(joined(some))
