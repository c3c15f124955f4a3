"""Requests to the servers of shards by the shard map: redirects, retries, generations, and what follows each answer.

| answer | what follows |
|---|---|
| `Moved` | the request is sent to the owners that it names |
| none (`Unreachable`) | it is sent to the owners by the next map |
| `NotYet` | it is repeated, as often as the caller wants |
| `StaleEpoch`, `StaleRead` | the batch is given up: the job, or the group, has gone on |
| `LateUpdate`, `BadSum` | the job fails |

The map may arrive late: a server that has handed its shards over answers with their new owners, and one that has handed
over all of them leaves, maybe before the new map has arrived here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from proteus_spot.psengine.protocol.answers import BadSum, LateUpdate, Moved, NotYet, StaleEpoch, StaleRead
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.rpc.cancellation import all_or_none
from proteus_spot.psengine.rpc.transport import Transfers, Unreachable
from proteus_spot.psengine.server.shard_server import ShardServer

#: Maximum seconds to wait for the map with the new owners of shards whose server has left.
_MAP_S = 5.0
#: Minimum seconds to wait for the answer of a server that has handed over all requested shards: it may have left, and
#: Dask tries to connect to an absent process for the whole deadline.
_LEFT_S = 2.0
#: Seconds that a server has to answer, in addition to the transfer time of the parameters.
_DEADLINE_S = 10.0
#: Number of times that a request is sent to one server, unless its shards move meanwhile.
TRIES = 3


class SupersededError(Exception):
    """The present work is no longer wanted: its read or its servers have moved on."""


class Routes:
    """The servers of the shards, as known to this node.

    Attributes
    ----------
    version, generation : int
        Version and generation of the map; batches of an earlier generation are given up.
    """

    def __init__(self) -> None:
        self.version = self.generation = 0
        self._owners: tuple[ShardOwner, ...] = ()
        #: Done when the map changes; None while nothing waits for that.
        self._changed: asyncio.Future[None] | None = None
        #: Called when the map changes, by the calls that are under way.
        self._watching: set[Callable[[], None]] = set()
        #: Generation in which the batch under way was dispatched.
        self._batch_generation = 0

    def use(self, version: int, owners: Sequence[ShardOwner], generation: int) -> bool:
        """Route by this map from now on, if it is newer; return whether it is.

        Owners with a later epoch than in the map, known from redirects, stay.
        """
        if version <= self.version:
            return False
        later = {owner.shard: owner for owner in self._owners}
        self._owners = tuple(max(owner, later.get(owner.shard, owner), key=lambda o: o.epoch) for owner in owners)
        self.version, self.generation = version, generation
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None
        for look in self._watching:
            look()
        return True

    def begin(self, generation: int) -> None:
        """Begin a batch that was dispatched in `generation`; raises `SupersededError` if the map's differs.

        Other batches may be in flight: they are of the map's generation, since those of an earlier one were cancelled.
        """
        if generation != self.generation:
            raise SupersededError(f"batch of generation {generation}, rolled back to generation {self.generation}")
        self._batch_generation = generation

    def check(self) -> None:
        """Raise `SupersededError` if the batch under way was dispatched in another generation than the map's."""
        if self._batch_generation != self.generation:
            raise SupersededError(
                f"batch of generation {self._batch_generation}, rolled back to generation {self.generation}"
            )

    def by_server(self, shards: Iterable[int]) -> dict[str, dict[int, int]]:
        """Return the epochs of shards by server address."""
        wanted = set(shards)
        servers: dict[str, dict[int, int]] = {}
        for owner in self._owners:
            if owner.shard in wanted:
                servers.setdefault(owner.address, {})[owner.shard] = owner.epoch
        return servers

    async def await_new_owners(self, shards: Iterable[int], address: str, error: Unreachable) -> list[int]:
        """Return `shards` once the map has new owners for all of them; `address` did not answer (`error`).

        A server that has handed everything over leaves, maybe before the new map has arrived here. It has handed over
        the updates it took, so updates that are sent again count once.

        Raises
        ------
        Unreachable
            If no such map arrives in `_MAP_S` seconds.
        SupersededError
            If the job rolls back.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _MAP_S
        wanted = list(shards)
        while self._served_at(address, wanted):
            self.check()
            left_s = until_s - loop.time()
            if left_s <= 0:
                raise error
            await asyncio.wait((self._next_map(),), timeout=left_s)
        self.check()
        return wanted

    async def retry(
        self, address: str, op: str, shards: Iterable[int], call: Callable[[], Coroutine[Any, Any, Any]], tries: int
    ) -> Any:
        """Return the result of `call`, up to `tries` attempts while some of `shards` are served at `address`.

        Raises
        ------
        Unreachable
        """
        requested = frozenset(shards)
        for number in range(1, tries + 1):
            try:
                # A server that did not answer, and has handed over the shards, is not expected to answer.
                return await self._while_served(address, op, requested, call(), _LEFT_S if number == 1 else 0.0)
            except Unreachable:
                if number == tries or not self._served_at(address, requested):
                    raise
        raise AssertionError("unreachable")

    async def _while_served(
        self, address: str, op: str, shards: frozenset[int], call: Coroutine[Any, Any, Any], timeout_s: float
    ) -> Any:
        """Return the result of `call`; give it up if by the map none of the shards is served there any more.

        It is given up after `timeout_s`, or, unless that is 0, after as long as it has lasted already if that is more.
        """
        loop = asyncio.get_running_loop()
        began_s, given_up = loop.time(), False

        def look() -> None:
            nonlocal given_up
            if given_up == self._served_at(address, shards) and not patience.expired():
                given_up = not given_up
                # The answer to a long-running request may be on its way already.
                left_s = max(timeout_s, loop.time() - began_s) if timeout_s else 0.0
                patience.reschedule(loop.time() + left_s if given_up else None)

        try:
            async with asyncio.timeout(None) as patience:
                look()
                self._watching.add(look)
                try:
                    return await call
                finally:
                    self._watching.remove(look)
        except TimeoutError as error:
            gone = TimeoutError("it no longer serves the requested shards")
            raise Unreachable(address, op, gone) from error

    def _next_map(self) -> asyncio.Future[None]:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def _served_at(self, address: str, shards: Collection[int]) -> bool:
        """Return whether by the map some of these shards are served at an address."""
        return any(owner.address == address for owner in self._owners if owner.shard in shards)

    def redirect(self, epochs: Mapping[int, int], answer: Moved) -> list[int]:
        """Note the new owners in a server's `answer`; return the shards to request again: all of `epochs`."""
        moved = {owner.shard: owner for owner in answer.owners}
        if any(owner.epoch <= epochs[shard] for shard, owner in moved.items()):
            raise SupersededError(answer.error)  # it was redirected to an earlier owner
        self._owners = tuple(max(owner, moved.get(owner.shard, owner), key=lambda o: o.epoch) for owner in self._owners)
        return list(epochs)


def never(tried: int) -> bool:
    """Return that a request is not repeated (see `ServerCalls.at_owners`)."""
    del tried
    return False


class ElsewhereError(SupersededError):
    """Shards have moved, and the request is of no use at their new owners."""


class BadSumError(Exception):
    """The servers have a sum that its table does not hold; the message names table, row and group."""


class ServerCalls:
    """Requests of one process.

    Parameters
    ----------
    address : str
        See `ParameterClient`.

    Attributes
    ----------
    batch : int
        Number of the batch under way.
    """

    def __init__(self, address: str, transfers: Transfers, routes: Routes, own: ShardServer) -> None:
        self._address, self._transfers, self._routes = address, transfers, routes
        self._own = own
        self.batch = 0

    async def at_owners(
        self,
        shards: Iterable[int],
        ask: Callable[[str, dict[int, int]], Awaitable[Any]],
        follow: bool = True,
        again: Callable[[int], bool] = never,
    ) -> None:
        """Have `ask` send a request to each server of `shards`, until each has carried it out.

        Parameters
        ----------
        ask : callable
            Sends the request to an address, for shards with their epochs, and returns the answer.
        follow : bool
            Whether the request is sent to new owners of shards.
        again : callable
            Returns whether a request is repeated after a number of answers that the server does not have it yet.

        Raises
        ------
        SupersededError
            The batch is to be given up, or, as an `ElsewhereError`, shards have moved and `follow` is false.
        Unreachable
        ValueError
            If a task has read rows before they were written (`LateUpdate`).
        BadSumError
        """

        async def at_owner(address: str, epochs: dict[int, int]) -> None:
            tried = 0
            while True:
                try:
                    answer = await ask(address, epochs)
                except Unreachable as error:
                    if not follow:
                        raise
                    moved = await self._routes.await_new_owners(epochs, address, error)
                    return await self.at_owners(moved, ask, follow, again)
                match answer:
                    case Moved() if follow:
                        return await self.at_owners(self._routes.redirect(epochs, answer), ask, follow, again)
                    case Moved():
                        raise ElsewhereError(answer.error)
                    case NotYet() if again(tried := tried + 1):
                        continue
                    case NotYet() | StaleEpoch() | StaleRead():
                        raise SupersededError(answer.error)
                    case LateUpdate():
                        raise ValueError(answer.error)
                    case BadSum():
                        raise BadSumError(answer.error)
                return None

        await all_or_none(at_owner(*server) for server in self._routes.by_server(shards).items())

    async def ask(
        self, address: str, op: str, epochs: dict[int, int], n_bytes: int, tries: int = TRIES, **message: Any
    ) -> Any:
        """Return the answer of one server; at most `n_bytes` of parameters are transferred.

        Raises
        ------
        SupersededError, Unreachable
        """
        self._routes.check()
        message["epochs"] = epochs
        if address != self._address:
            if op == "proteus_read":
                # Servers answer in the order of the batches.
                message |= {"turn": self.batch, "reader": self._address}
            call = partial(self._transfers.call, address, op, _DEADLINE_S, n_bytes, **message)
            return await self._routes.retry(address, op, epochs, call, tries)
        if op == "proteus_read":
            await self._own.until_readable(epochs, message["version"])
            self._routes.check()
            return await self._own.read(**message)
        await self._own.arrived(epochs)
        self._routes.check()
        return await self._own.push(**message)
