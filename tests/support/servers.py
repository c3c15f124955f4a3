"""Requests to servers of shards that wait for nothing, without an event loop; states to open shards with."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.protocol.read_version import ReadVersion
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.tables.row_sets import Wanted


def at_once(request: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a request; it must not wait."""
    try:
        request.send(None)
    except StopIteration as answered:
        return answered.value
    request.close()
    raise AssertionError("it waits")


async def read_when_there(
    server: ShardServer, epochs: Mapping[int, int], version: ReadVersion, rows: Mapping[int, Wanted] | None = None
) -> Any:
    """Return what a server answers to a read, once there is no use in waiting."""
    await server.until_readable(epochs, version)
    return await server.read(epochs, version, rows)


def first_states(shards: Mapping[int, Any], clock: int = 0, n_updates: int = 0) -> dict[int, ShardState]:
    """Return shards with these tables at `clock`."""
    return {shard: ShardState(dict(tables), clock, n_updates) for shard, tables in shards.items()}
