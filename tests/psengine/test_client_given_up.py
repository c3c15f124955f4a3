"""Of a batch that was given up nothing is sent any more, also of the messages that waited for another map."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
import pytest

from psengine.client import ParameterClient, SupersededError
from psengine.instructions import ShardOwner
from psengine.model import TableSpec
from psengine.servers import ShardServer
from psengine.sharding import Sharding
from psengine.transport import Unreachable

STALE, GONE, HEIR = "tcp://stale", "tcp://gone", "tcp://heir"
SHARDING = Sharding((TableSpec("w", 4, 1),), 2)


class OneIsGone:
    """One server refuses what is of before, the other one is gone; all else is taken."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, int]] = []

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        self.sent.append((address, op, message.get("clock", 0)))
        if address == GONE:
            raise Unreachable(address, op, OSError("gone"))
        await asyncio.sleep(0.05)  # the other message has found nobody, and waits for a map, when this one is refused
        return {"status": "stale-epoch", "error": "all have gone back"} if address == STALE else {"status": "ok"}


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_message_that_waits_for_a_map_is_not_sent_in_the_next_batch(way: str) -> None:
    async def run() -> None:
        wires = OneIsGone()
        client = ParameterClient("here", "tcp://here", wires, ShardServer())
        client.use_map(1, [ShardOwner(0, "stale", STALE, 1), ShardOwner(1, "gone", GONE, 1)], 1)
        client.begin(1, 1)
        push = partial(client.flush, SHARDING, 4, [(0, (1,), {"w": np.ones((4, 1), np.float32)})], 3)
        pull = partial(client.read, SHARDING, 3, 3, exact=True)
        with pytest.raises(SupersededError):
            await (push if way == "push" else pull)()
        client.use_map(2, [ShardOwner(0, "heir", HEIR, 2), ShardOwner(1, "heir", HEIR, 2)], 2)
        client.begin(2, 2)
        await asyncio.sleep(0.05)
        assert [address for address, *_ in wires.sent if address == HEIR] == []

    asyncio.run(run())
