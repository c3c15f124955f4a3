"""Shards of a committed group, from those who serve or keep them, however long that takes for their size."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.protocol.answers import GatheredRows, StaleRead, StoredReplicas
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.rpc.transport import Transfers
from proteus_spot.psengine.shell.gathering import from_replicas, from_servers
from proteus_spot.psengine.tables.sharding import Sharding

SHARDING = Sharding((TableSpec("w", 1_000_000, 1),), 4)
#: Two shards at one address, one at each of two others.
OWNERS = [ShardOwner(shard, name, f"tcp://{name}", 7) for shard, name in enumerate("abac")]


class Transport:
    """Answers for everybody, with shards of one row that is their number."""

    def __init__(self, group: int = 0, refusal: StaleRead | None = None) -> None:
        self._group, self._refusal, self.calls = group, refusal, dict[str, tuple[str, float]]()

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        self.calls[address] = op, deadline_s
        await asyncio.sleep(0)
        shards = message.get("shards", message.get("epochs"))
        rows = {shard: {"w": np.full((1, 1), shard)} for shard in shards}
        if op == "proteus_backups":
            return StoredReplicas({shard: ShardState(arrays, self._group, 5) for shard, arrays in rows.items()})
        return self._refusal or GatheredRows(rows, dict.fromkeys(rows, 5))


def test_servers_have_the_time_that_their_shards_take() -> None:
    transport = Transport()
    shards, folded = asyncio.run(from_servers(Transfers(transport), SHARDING, OWNERS, 3))
    assert {shard: arrays["w"].item() for shard, arrays in shards.items()} == {0: 0, 1: 1, 2: 2, 3: 3}
    assert folded == [5] * 4
    assert {address: op for address, (op, _) in transport.calls.items()} == dict.fromkeys(
        ("tcp://a", "tcp://b", "tcp://c"), "proteus_gather"
    )
    two, one = (transport.calls[address][1] for address in ("tcp://a", "tcp://b"))
    assert (two, one) == pytest.approx((60.0 + 2_000_000 / 10_000, 60.0 + 1_000_000 / 10_000), abs=0.1)


def test_a_server_that_cannot_is_told_in_its_words() -> None:
    transport = Transport(refusal=StaleRead("shard 1 is at clock 9"))
    with pytest.raises(RuntimeError, match="shard 1 is at clock 9"):
        asyncio.run(from_servers(Transfers(transport), SHARDING, OWNERS, 3))


def test_backups_must_all_have_the_clock() -> None:
    transport = Transport(group=3)
    shards, folded = asyncio.run(from_replicas(Transfers(transport), SHARDING, OWNERS, 3))
    assert sorted(shards) == [0, 1, 2, 3]
    assert folded == [5] * 4
    assert transport.calls["tcp://a"] == ("proteus_backups", pytest.approx(60.0 + 2_000_000 / 10_000, abs=0.1))
    with pytest.raises(RuntimeError, match="a later clock"):
        asyncio.run(from_replicas(Transfers(transport), SHARDING, OWNERS, 2))


def test_some_of_the_shards_are_not_taken_for_all() -> None:
    with pytest.raises(RuntimeError, match=r"no owner of shards \[3\] was given"):
        asyncio.run(from_servers(Transfers(Transport()), SHARDING, OWNERS[:3], 3))
    with pytest.raises(RuntimeError, match=r"no owner of shards \[0, 1, 2, 3\] was given"):
        asyncio.run(from_replicas(Transfers(Transport(group=3)), SHARDING, [], 3))
