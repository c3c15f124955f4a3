"""Collection of the shards of a committed group, and of the states of partitions, from the nodes that have them.

It runs on the controller's machine, which serves nothing: all of it comes over the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from proteus_spot.psengine.protocol.answers import BadSum, Moved, NotYet, StaleEpoch, StaleRead
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.protocol.moved_state import StateRef
from proteus_spot.psengine.rpc.transport import Transfers
from proteus_spot.psengine.tables.sharding import Arrays, Sharding
from proteus_spot.psengine.tables.sparse_rows import full

_DEADLINE_S = 60.0

#: Rows of every shard, and the number of updates folded in each.
Collected = tuple[dict[int, Arrays], list[int]]


class GoneOn(RuntimeError):
    """The requested group is not available (any more): the training has gone on meanwhile."""


class NoModel(RuntimeError):
    """The servers have a sum that its table does not hold: no other attempt can succeed."""


async def from_servers(
    transfers: Transfers, sharding: Sharding, owners: Sequence[ShardOwner], committed: int
) -> Collected:
    """Return every shard at group `committed`, from its server.

    Raises
    ------
    GoneOn, RuntimeError, Unreachable
        A server does not have the group, or does not answer, or `owners` lacks shards.
    """
    answers = await _ask_all(transfers, "proteus_gather", _by_server(owners, committed=committed), sharding.all_bytes)
    shards = {shard: dict(arrays) for answer in answers for shard, arrays in answer.shards.items()}
    _check_all(sharding, shards)
    return shards, [folded for answer in answers for folded in answer.folded.values()]


async def marked(
    transfers: Transfers, sharding: Sharding, owners: Sequence[ShardOwner], group: int
) -> dict[int, Arrays]:
    """Return every shard at the marked group `group`, from its server; raises as `from_servers`."""
    answers = await _ask_all(transfers, "proteus_marked", _by_server(owners, group=group), sharding.all_bytes)
    return {shard: arrays for answer in answers for shard, arrays in answer.by_shard().items()}


async def from_replicas(
    transfers: Transfers, sharding: Sharding, backups: Sequence[ShardOwner], committed: int
) -> Collected:
    """Return every shard at group `committed`, from its backup, whose epoch is the replication round.

    Raises
    ------
    GoneOn, RuntimeError, Unreachable
        The backups have another round by now, or one does not answer.
    """
    asked: dict[str, dict[str, Any]] = {}
    for owner in backups:
        asked.setdefault(owner.address, {"shards": [], "number": owner.epoch})["shards"].append(owner.shard)
    answers = await _ask_all(transfers, "proteus_backups", asked, sharding.all_bytes)
    states = {shard: state for answer in answers for shard, state in answer.states.items()}
    if len(states) < len(backups) or any(state.group != committed for state in states.values()):
        raise GoneOn("the backups have gone on to a later clock")
    _check_all(sharding, states)
    shards = {shard: {name: full(table) for name, table in state.arrays.items()} for shard, state in states.items()}
    return shards, [state.folded for state in states.values()]


async def states_at(transfers: Transfers, states: Sequence[StateRef]) -> dict[int, Arrays]:
    """Return states of partitions, by partition, from the processes that have them; not those in a checkpoint.

    Raises
    ------
    GoneOn, Unreachable
        A process does not have a state any more, or does not answer.
    """
    asked: dict[str, dict[str, Any]] = {}
    for ref in states:
        if not ref.checkpoint:
            key = (ref.partition, ref.group, ref.attempt)
            asked.setdefault(ref.address, {"wanted": []})["wanted"].append(key)
    answers = await _ask_all(transfers, "proteus_states", asked, lambda wanted: 0)
    found = {state.partition: state.arrays for answer in answers for state in answer.states}
    if missing := {ref.partition for ref in states if not ref.checkpoint} - set(found):
        raise GoneOn(f"the states of partitions {sorted(missing)} are not available any more")
    return found


async def _ask_all(
    transfers: Transfers, op: str, asked: Mapping[str, dict[str, Any]], n_bytes: Callable[[Collection[Any]], int]
) -> list[Any]:
    """Return the answers of all processes, each asked by its message, whose first value names what it has to send."""
    answers = await asyncio.gather(
        *(
            transfers.call(address, op, _DEADLINE_S, n_bytes(next(iter(message.values()))), again=True, **message)
            for address, message in asked.items()
        )
    )
    for answer in answers:
        if isinstance(answer, BadSum):
            raise NoModel(answer.error)
        if isinstance(answer, Moved | StaleEpoch | StaleRead | NotYet):
            raise GoneOn(answer.error)
    return answers


def _by_server(owners: Sequence[ShardOwner], **message: int) -> dict[str, dict[str, Any]]:
    asked: dict[str, dict[str, Any]] = {}
    for owner in owners:
        asked.setdefault(owner.address, {"epochs": {}, **message})["epochs"][owner.shard] = owner.epoch
    return asked


def _check_all(sharding: Sharding, collected: Collection[int]) -> None:
    """Reject an incomplete set: a job restored from it would have lost the missing shards."""
    if missing := set(range(sharding.n_shards)) - set(collected):
        raise RuntimeError(f"no owner of shards {sorted(missing)} was given")
