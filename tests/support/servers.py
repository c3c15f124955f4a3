"""Requests to servers of shards that wait for nothing, without an event loop; states to open shards with."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from psengine.protocol.shard_state import ShardState


def at_once(request: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a request; it must not wait."""
    try:
        request.send(None)
    except StopIteration as answered:
        return answered.value
    request.close()
    raise AssertionError("it waits")


def first_states(shards: Mapping[int, Any], clock: int = 0, effects: int = 0) -> dict[int, ShardState]:
    """Return shards with these tables at `clock`."""
    return {shard: ShardState(dict(tables), clock, effects) for shard, tables in shards.items()}
