"""The shards of a committed clock, collected from those who serve or keep them.

Whoever asks is on the controller's machine, which serves nothing: all of it comes over the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence

from psengine.protocol.instructions import ShardOwner
from psengine.rpc.transport import Transport, call_again, deadline_s
from psengine.shell.dask_transport import unpack
from psengine.shell.evaluator import by_server
from psengine.tables.sharding import Arrays, Sharding

_DEADLINE_S = 60.0

#: The rows of every shard, and how many effects each has folded.
Collected = tuple[dict[int, Arrays], list[int]]


class GoneOn(RuntimeError):
    """Who was asked for a clock has not that one, or no longer: the training has gone on meanwhile."""


async def from_servers(
    transport: Transport, sharding: Sharding, owners: Sequence[ShardOwner], committed: int
) -> Collected:
    """Return every shard as its server has it at clock `committed`.

    Raises
    ------
    GoneOn, RuntimeError, Unreachable
        A server cannot, or does not say, or `owners` are not those of all shards.
    """
    answers = await asyncio.gather(
        *(
            call_again(
                transport, address, "proteus_gather", _within_s(sharding, epochs), epochs=epochs, committed=committed
            )
            for address, epochs in by_server(owners).items()
        )
    )
    shards: dict[int, Arrays] = {}
    folded: list[int] = []
    for answer in answers:
        if answer["status"] != "ok":
            raise GoneOn(answer["error"])
        shards |= {int(shard): arrays for shard, arrays in answer["shards"].items()}
        folded += answer["folded"].values()
    _check_all(sharding, shards)
    return shards, folded


async def from_keepers(
    transport: Transport, sharding: Sharding, keepers: Sequence[ShardOwner], committed: int
) -> Collected:
    """Return every shard as its keeper has it, all of them of clock `committed`; a keeper's epoch is its round of copies.

    Raises
    ------
    GoneOn, RuntimeError, Unreachable
        The keepers have another round by now, or one does not say.
    """
    by_keeper: dict[str, list[int]] = {}
    for keeper in keepers:
        by_keeper.setdefault(keeper.address, []).append(keeper.shard)
    number = {keeper.address: keeper.epoch for keeper in keepers}
    answers = await asyncio.gather(
        *(
            call_again(
                transport, address, "proteus_kept", _within_s(sharding, shards), shards=shards, number=number[address]
            )
            for address, shards in by_keeper.items()
        )
    )
    states = {int(shard): unpack(state) for answer in answers for shard, state in answer["states"].items()}
    if len(states) < len(keepers) or any(state.clock != committed for state in states.values()):
        raise GoneOn("the keepers have gone on to a later clock")
    _check_all(sharding, states)
    return {shard: dict(state.arrays) for shard, state in states.items()}, [s.folded for s in states.values()]


def _check_all(sharding: Sharding, there: Collection[int]) -> None:
    """Refuse what is not the whole: whoever went on from it would have lost the rest."""
    if missing := set(range(sharding.n_shards)) - set(there):
        raise RuntimeError(f"nobody was asked for shards {sorted(missing)}")


def _within_s(sharding: Sharding, shards: Iterable[int]) -> float:
    return deadline_s(_DEADLINE_S, sharding.all_bytes(shards))
