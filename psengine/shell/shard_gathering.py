"""Collection of the shards of a committed clock from servers or backup owners.

It runs on the controller's machine, which serves nothing: all shards come over the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from psengine.protocol.answers import GatheredRows
from psengine.protocol.instructions import ShardOwner
from psengine.rpc.transfers import Transfers
from psengine.shell.evaluator import by_server
from psengine.shell.state_gathering import GoneOn
from psengine.tables.sharding import Arrays, Sharding
from psengine.tables.sparse_rows import full

_DEADLINE_S = 60.0

#: Rows of every shard, and the number of effects folded in each.
Collected = tuple[dict[int, Arrays], list[int]]


async def from_servers(
    transfers: Transfers, sharding: Sharding, owners: Sequence[ShardOwner], committed: int
) -> Collected:
    """Return every shard at clock `committed`, from its server.

    Raises
    ------
    GoneOn, RuntimeError, Unreachable
        A server does not have the clock, or does not answer, or `owners` lacks shards.
    """
    answers = await asyncio.gather(
        *(
            transfers.call(
                address,
                "proteus_gather",
                _DEADLINE_S,
                sharding.all_bytes(epochs),
                again=True,
                epochs=epochs,
                committed=committed,
            )
            for address, epochs in by_server(owners).items()
        )
    )
    shards: dict[int, Arrays] = {}
    folded: list[int] = []
    for answer in answers:
        if not isinstance(answer, GatheredRows):
            raise GoneOn(answer.error)
        shards |= {shard: dict(arrays) for shard, arrays in answer.shards.items()}
        folded += answer.folded.values()
    _check_all(sharding, shards)
    return shards, folded


async def from_replicas(
    transfers: Transfers, sharding: Sharding, backup_owners: Sequence[ShardOwner], committed: int
) -> Collected:
    """Return every shard at clock `committed`, from its backup owner, whose epoch is the replication round.

    Raises
    ------
    GoneOn, RuntimeError, Unreachable
        The backup owners have another round by now, or one does not answer.
    """
    by_owner: dict[str, list[int]] = {}
    for owner in backup_owners:
        by_owner.setdefault(owner.address, []).append(owner.shard)
    number = {owner.address: owner.epoch for owner in backup_owners}
    answers = await asyncio.gather(
        *(
            transfers.call(
                address,
                "proteus_kept",
                _DEADLINE_S,
                sharding.all_bytes(shards),
                again=True,
                shards=shards,
                number=number[address],
            )
            for address, shards in by_owner.items()
        )
    )
    states = {shard: state for answer in answers for shard, state in answer.states.items()}
    if len(states) < len(backup_owners) or any(state.clock != committed for state in states.values()):
        raise GoneOn("the backup owners have gone on to a later clock")
    _check_all(sharding, states)
    return {shard: {name: full(table) for name, table in state.arrays.items()} for shard, state in states.items()}, [
        s.folded for s in states.values()
    ]


def _check_all(sharding: Sharding, collected: Collection[int]) -> None:
    """Reject an incomplete set: a job restored from it would have lost the missing shards."""
    if missing := set(range(sharding.n_shards)) - set(collected):
        raise RuntimeError(f"no owner of shards {sorted(missing)} was given")
