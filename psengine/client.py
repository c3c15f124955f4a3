"""The process-wide client of a node: one cache, one update log, one message a server.

A cached value fetched under parent clock c serves any micro-task with a parent clock <= c; under BSP only that very
clock, because there a read is of exactly one state. Updates are flushed before completions are reported.

Source: Litz (2017), 3.1 and 5.
Differs: updates are summed by blocks of partitions (see `sums`), where Litz sums all: only then is the sum on the server
the same bit for bit wherever partitions were worked on, and can the effects of lost micro-tasks be replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from psengine.instructions import ShardOwner
from psengine.servers import ShardServer, shard_arrays
from psengine.sharding import Arrays, Sharding
from psengine.sums import Block, Delta, blocks, tree_sum
from psengine.transport import Transport, Unreachable

#: (first partition, attempts, sum of the updates) of a block
BlockSum = tuple[int, tuple[int, ...], Delta]

_DEADLINE_S = 10.0
_TRIES = 3


class SupersededError(Exception):
    """The work at hand is no longer wanted: its read or its servers have moved on."""


class ParameterClient:
    """Reads and writes the model for every micro-task of one process.

    Parameters
    ----------
    sender : str
        Unique to this process.
    address : str
        Of this process: servers at this address are called as objects, without the network.
    """

    def __init__(self, sender: str, address: str, transport: Transport, own: ShardServer) -> None:
        self._sender, self._address, self._transport, self._own = sender, address, transport, own
        self._owners: tuple[ShardOwner, ...] = ()
        self.map_version = 0
        self._cache: tuple[int, Arrays] | None = None
        self._sequence: dict[str, int] = {}
        #: {(partition, attempt): whole-table updates} of the batch under way
        self._log: dict[tuple[int, int], Arrays] = {}
        #: its blocks
        self._sums: list[BlockSum] = []

    def use_map(self, version: int, owners: Sequence[ShardOwner]) -> None:
        """Route by this map from now on, if it is newer; a shard that has moved on since stays where it is known to be."""
        if version > self.map_version:
            later = {owner.shard: owner for owner in self._owners}
            self._owners = tuple(
                max(owner, later.get(owner.shard, owner), key=lambda known: known.epoch) for owner in owners
            )
            self.map_version, self._cache = version, None

    async def read(self, sharding: Sharding, parent_clock: int, committed: int, exact: bool) -> Arrays:
        """Return whole tables that show every effect up to `parent_clock`; they are not to be written to.

        Raises
        ------
        SupersededError, Unreachable
        """
        if self._cache is not None:
            tag, tables = self._cache
            if tag == parent_clock or (tag > parent_clock and not exact):
                return tables
        shards = await self._pull(range(sharding.n_shards), committed, exact)
        tables = sharding.join([shards[shard] for shard in range(sharding.n_shards)])
        for table in tables.values():
            table.flags.writeable = False
        self._cache = (parent_clock, tables)
        return tables

    def log(self, partition: int, attempt: int, updates: Arrays) -> None:
        """Keep the updates of a micro-task until `flush`."""
        self._log[partition, attempt] = updates

    def sum_up(self, n_partitions: int) -> None:
        """Add up what was logged, as far as it may be; to be called before `flush`, on any thread."""
        attempts = dict(self._log.keys())
        updates = {partition: update for (partition, _), update in self._log.items()}
        self._sums = [
            (low, tuple(attempts[partition] for partition in range(low, high)), _sum((low, high), updates))
            for low, high in blocks(attempts, n_partitions)
        ]
        self._log = {}

    async def flush(self, sharding: Sharding, clock: int) -> None:
        """Send the sums, one message a server, and return when every server has taken its message.

        Raises
        ------
        SupersededError, Unreachable
            What was logged is dropped; servers that took their message keep it, under its attempt.
        """
        sums, self._sums = self._sums, []
        await self._push(range(sharding.n_shards), sharding, clock, sums)

    def discard(self) -> None:
        """Forget what was logged and not flushed."""
        self._log, self._sums = {}, []

    async def _pull(self, shards: Iterable[int], committed: int, exact: bool) -> dict[int, Arrays]:
        """Return the rows of `shards`, from wherever they are served."""

        async def of(address: str, epochs: dict[int, int]) -> dict[int, Arrays]:
            answer = await self._ask(address, "proteus_pull", epochs=epochs, committed=committed, exact=exact)
            if answer["status"] == "moved":
                return await self._pull(self._rerouted(epochs, answer), committed, exact)
            return shard_arrays(answer["shards"])

        found = await asyncio.gather(*(of(*server) for server in self._by_server(shards).items()))
        return {shard: rows for some in found for shard, rows in some.items()}

    async def _push(self, shards: Iterable[int], sharding: Sharding, clock: int, sums: Sequence[BlockSum]) -> None:
        """Bring the updates of `shards` to wherever they are served."""

        async def to(address: str, epochs: dict[int, int]) -> None:
            self._sequence[address] = sequence = self._sequence.get(address, 0) + 1
            answer = await self._ask(
                address,
                "proteus_push",
                sender=self._sender,
                sequence=sequence,
                clock=clock,
                epochs=epochs,
                blocks=[(first, attempts) for first, attempts, _ in sums],
                updates={shard: [sharding.cut(total, shard) for *_, total in sums] for shard in epochs},
            )
            if answer["status"] == "moved":
                await self._push(self._rerouted(epochs, answer), sharding, clock, sums)

        await asyncio.gather(*(to(*server) for server in self._by_server(shards).items()))

    def _by_server(self, shards: Iterable[int]) -> dict[str, dict[int, int]]:
        wanted = set(shards)
        servers: dict[str, dict[int, int]] = {}
        for owner in self._owners:
            if owner.shard in wanted:
                servers.setdefault(owner.address, {})[owner.shard] = owner.epoch
        return servers

    def _rerouted(self, epochs: dict[int, int], answer: Mapping[str, Any]) -> list[int]:
        """Note who serves what a server no longer does; return the shards that are to be asked for again, all of them."""
        moved = {owner.shard: owner for owner in answer["owners"]}
        if any(owner.epoch <= epochs[shard] for shard, owner in moved.items()):
            raise SupersededError(answer["error"])  # it was sent back to where it has been
        self._owners = tuple(moved.get(owner.shard, owner) for owner in self._owners)
        return list(epochs)

    async def _ask(self, address: str, op: str, **message: Any) -> Any:
        if address == self._address:
            await self._own.arrived(message["epochs"])
            local: dict[str, Callable[..., Any]] = {"proteus_pull": self._own.pull, "proteus_push": self._own.push}
            answer = local[op](**message)
        else:
            answer = await _retried(lambda: self._transport.call(address, op, _DEADLINE_S, **message))
        if answer["status"] not in ("ok", "moved"):
            raise SupersededError(answer["error"])
        return answer


def _sum(block: Block, updates: Mapping[int, Delta]) -> Delta:
    return tree_sum(block, lambda part: updates[part[0]] if part[1] - part[0] == 1 else None) or {}


async def _retried(call: Callable[[], Awaitable[Any]]) -> Any:
    for left in reversed(range(_TRIES)):
        try:
            return await call()
        except Unreachable:
            if not left:
                raise
    raise AssertionError("unreachable")
