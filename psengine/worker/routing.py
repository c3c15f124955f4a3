"""Where a client's messages go: who serves which shard, and what becomes of a call to who has them no longer.

A map says who serves what. It may come late: a server that has handed its shards over says who has them now, and one that
has handed over all of them goes, maybe before the map that says so has come here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from psengine.protocol.instructions import ShardOwner
from psengine.rpc.cancellation import cancel_all
from psengine.rpc.transport import Unreachable

#: seconds that a map may be under way which says who serves what a server that is gone has handed over
_MAP_S = 5.0
#: Seconds that an answer is waited for, at least, from a server that has handed over all that it is asked for: it may be
#: gone, and Dask tries for the whole deadline to connect to whoever is not there.
_LEFT_S = 2.0


class SupersededError(Exception):
    """The work at hand is no longer wanted: its read or its servers have moved on."""


class Routes:
    """Who serves what, as far as this node knows.

    Attributes
    ----------
    version, generation : int
        Of the map; what was begun in an earlier generation is not gone on with.
    """

    def __init__(self) -> None:
        self.version = self.generation = 0
        self._owners: tuple[ShardOwner, ...] = ()
        #: set when there is another map
        self._changed = asyncio.Event()
        #: the generation in which the batch under way was ordered
        self._ordered_in = 0

    def use(self, version: int, owners: Sequence[ShardOwner], generation: int) -> bool:
        """Route by this map from now on, if it is newer; return whether it is.

        A shard that has moved on since stays where it is known to be.
        """
        if version <= self.version:
            return False
        later = {owner.shard: owner for owner in self._owners}
        self._owners = tuple(
            max(owner, later.get(owner.shard, owner), key=lambda known: known.epoch) for owner in owners
        )
        self.version, self.generation = version, generation
        self._changed.set()
        self._changed = asyncio.Event()
        return True

    def begin(self, generation: int) -> None:
        """Begin a batch that was ordered in `generation`; raises `SupersededError` when another one has begun already."""
        self._ordered_in = generation
        self.check()

    def check(self) -> None:
        """Raise `SupersededError` when the batch under way was ordered in an earlier generation."""
        if self._ordered_in != self.generation:
            raise SupersededError(
                f"of generation {self._ordered_in}, and all have gone back to begin {self.generation}"
            )

    def by_server(self, shards: Iterable[int]) -> dict[str, dict[int, int]]:
        """Return the epochs of shards by who serves them."""
        wanted = set(shards)
        servers: dict[str, dict[int, int]] = {}
        for owner in self._owners:
            if owner.shard in wanted:
                servers.setdefault(owner.address, {})[owner.shard] = owner.epoch
        return servers

    async def remapped(self, shards: Iterable[int], address: str, gone: Unreachable) -> list[int]:
        """Return `shards` once the map says that none of them is served at `address`, which is `gone`.

        A server that has handed everything over goes, maybe before the map that says so has come here. What it took it
        has handed over, so that what is sent anew counts once.

        Raises
        ------
        Unreachable
            When no such map comes in a while.
        SupersededError
            When all go back.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _MAP_S
        wanted = list(shards)
        while self._served_at(address, wanted):
            self.check()
            left_s = until_s - loop.time()
            if left_s <= 0:
                raise gone
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)
        self.check()
        return wanted

    async def retried(
        self, address: str, op: str, shards: Iterable[int], call: Callable[[], Coroutine[Any, Any, Any]], tries: int
    ) -> Any:
        """Return what a `call` for `shards` gives, tried again if need be, as long as some of them are served there.

        Raises
        ------
        Unreachable
        """
        there = frozenset(shards)
        for number in range(1, tries + 1):
            try:
                # Of who did not answer, and has handed over what he was asked for, no answer is to be expected.
                return await self._while_served(address, op, there, call(), _LEFT_S if number == 1 else 0.0)
            except Unreachable:
                if number == tries or not self._served_at(address, there):
                    raise
        raise AssertionError("unreachable")

    async def _while_served(
        self, address: str, op: str, shards: frozenset[int], call: Coroutine[Any, Any, Any], patience_s: float
    ) -> Any:
        """Return what a `call` gives, unless the map says that none of the shards is served there any more.

        Then it is given up after `patience_s`, or, if there is any, after as long as it has lasted already.
        """
        loop = asyncio.get_running_loop()
        began_s, asking = loop.time(), loop.create_task(call)
        try:
            while not asking.done():
                if self._served_at(address, shards):
                    another = loop.create_task(self._changed.wait())
                    try:
                        await asyncio.wait((asking, another), return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        another.cancel()
                else:
                    # What has been asked for a while may be on its way already.
                    left_s = max(patience_s, loop.time() - began_s) if patience_s else 0.0
                    if not (await asyncio.wait((asking,), timeout=left_s))[0]:
                        raise Unreachable(address, op, TimeoutError("it serves nothing of that any more"))
            return asking.result()
        finally:
            await cancel_all((asking,))

    def _served_at(self, address: str, shards: Collection[int]) -> bool:
        """Return whether the map says that some of these shards are served at an address."""
        return any(owner.address == address for owner in self._owners if owner.shard in shards)

    def rerouted(self, epochs: dict[int, int], answer: Mapping[str, Any]) -> list[int]:
        """Note who serves what a server no longer does; return the shards that are to be asked for again, all of them."""
        moved = {owner.shard: owner for owner in answer["owners"]}
        if any(owner.epoch <= epochs[shard] for shard, owner in moved.items()):
            raise SupersededError(answer["error"])  # it was sent back to where it has been
        self._owners = tuple(
            max(owner, moved.get(owner.shard, owner), key=lambda known: known.epoch) for owner in self._owners
        )
        return list(epochs)
