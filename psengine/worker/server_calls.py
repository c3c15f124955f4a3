"""Requests to the servers of shards, and what a node does about each answer.

| answer | what follows |
|---|---|
| `Moved` | the request is sent to the owners that it names |
| none (`Unreachable`) | it is sent to the owners by the next map |
| `NotYet` | it is repeated, as often as the caller wants |
| `StaleEpoch`, `StaleRead` | the batch is given up: the job, or the group, has gone on |
| `LateUpdate`, `BadSum` | the job fails |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from proteus_spot.psengine.protocol.answers import BadSum, LateUpdate, Moved, NotYet, StaleEpoch, StaleRead
from proteus_spot.psengine.rpc.cancellation import all_or_none
from proteus_spot.psengine.rpc.transfers import Transfers
from proteus_spot.psengine.rpc.transport import Unreachable
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.worker.routing import Routes, SupersededError

#: Seconds that a server has to answer, in addition to the transfer time of the parameters.
_DEADLINE_S = 10.0
#: Number of times that a request is sent to one server, unless its shards move meanwhile.
TRIES = 3


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
