"""Of a batch that was given up nothing is sent any more, also of the messages that waited for another map."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.protocol.answers import Pushed, Rows, StaleEpoch
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.rpc.transport import Unreachable
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.tables.sharding import Sharding
from proteus_spot.psengine.worker.parameter_client import ParameterClient
from proteus_spot.psengine.worker.routing import SupersededError
from tests.support.virtual_time import run_virtual

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
        return StaleEpoch("all have gone back") if address == STALE else Pushed()


@pytest.mark.parametrize("way", ["push", "pull"])
def test_a_message_that_waits_for_a_map_is_not_sent_in_the_next_batch(way: str) -> None:
    async def run() -> None:
        wires = OneIsGone()
        client = ParameterClient("tcp://here", wires, ShardServer())
        client.use_map(1, [ShardOwner(0, "stale", STALE, 1), ShardOwner(1, "gone", GONE, 1)], 1)
        client.begin(1, 1)
        push = partial(client.flush, SHARDING, 4, [(0, (1,), {"w": np.ones((4, 1), np.float32)})], 3)
        pull = partial(client.read_rows, SHARDING, {"w": None}, 3, 3, exact=True)
        with pytest.raises(SupersededError):
            await (push if way == "push" else pull)()
        client.use_map(2, [ShardOwner(0, "heir", HEIR, 2), ShardOwner(1, "heir", HEIR, 2)], 2)
        client.begin(2, 2)
        await asyncio.sleep(0.05)
        assert [address for address, *_ in wires.sent if address == HEIR] == []

    asyncio.run(run())


class OneHasLeft:
    """One server has gone after it handed over, and whoever calls it tries to connect for ever; the heir takes all.

    With `broken` its connection breaks first.
    """

    def __init__(self, broken: bool) -> None:
        self._broken = broken
        self.calling = asyncio.Event()
        self.given_up = 0

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        if address == GONE:
            if self._broken:
                self._broken = False
                raise Unreachable(address, op, OSError("closed"))
            self.calling.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.given_up += 1
                raise
        shards = {shard: {"w": np.full((2, 1), shard, np.float32)} for shard in message["epochs"]}
        return Pushed() if op == "proteus_push" else Rows(shards)


@pytest.mark.parametrize(("broken", "within_s"), [(True, 0.1), (False, 5.0)])
@pytest.mark.parametrize("way", ["push", "pull"])
def test_who_has_handed_over_and_does_not_answer_is_not_waited_for(way: str, broken: bool, within_s: float) -> None:
    """Dask tries to connect to it until the deadline is over, three times: more than a minute for a large table."""

    async def run() -> None:
        loop, wires = asyncio.get_running_loop(), OneHasLeft(broken)
        client = ParameterClient("tcp://here", wires, ShardServer())
        client.use_map(1, [ShardOwner(0, "gone", GONE, 1), ShardOwner(1, "gone", GONE, 1)], 1)
        client.begin(1, 1)
        push = client.flush(SHARDING, 4, [(0, (1,), {"w": np.ones((4, 1), np.float32)})], 3)
        pull = client.read_rows(SHARDING, {"w": None}, 3, 3, exact=True)
        work = asyncio.ensure_future(push if way == "push" else pull)
        (pull if way == "push" else push).close()
        await wires.calling.wait()
        client.use_map(2, [ShardOwner(0, "heir", HEIR, 2), ShardOwner(1, "gone", GONE, 1)], 1)
        await asyncio.sleep(4.0)
        assert (work.done(), wires.given_up) == (False, 0), "some of it is served there still"
        began_s = loop.time()
        client.use_map(3, [ShardOwner(0, "heir", HEIR, 2), ShardOwner(1, "heir", HEIR, 2)], 1)
        read = await work
        assert loop.time() - began_s <= within_s
        assert wires.given_up == 1
        assert way == "push" or read["w"].values.ravel().tolist() == [0, 0, 1, 1]

    run_virtual(run(), 60.0)
