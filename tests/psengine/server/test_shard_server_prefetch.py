"""A server and those who read ahead: what they wait for, what they are given, and that nothing is committed by it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import proteus_spot.psengine.server.shard_server
from proteus_spot.psengine.apps.registry import initial_shards
from proteus_spot.psengine.protocol.answers import Moved, NotYet, Pushed, Rows, StaleEpoch, StaleRead
from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.protocol.read_version import Before, Committed, Complete
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.server.shard_store import ShardStore
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.sharding import Sharding
from tests.psengine.server.test_shard_store import Zeros
from tests.support.servers import at_once, read_when_there
from tests.support.timeouts import PATIENCE


def serving(n_partitions: int = 2) -> ShardServer:
    made, sharding = ShardServer(), Sharding(Zeros().tables(), 2)
    initial = initial_shards(Zeros(), sharding, 7, [0, 1])  # type: ignore[arg-type]
    at_once(made.open({shard: ShardState({**arrays}, 0, 0) for shard, arrays in initial.items()}, n_partitions, 1))
    return made


def push(server: ShardServer, partition: int, attempt: int = 1, group: int = 1) -> None:
    shapes = {shard: store.committed["w"].shape for shard, store in server.stores.items()}
    updates = {s: [{"w": np.full(shape, 0.1 + partition, np.float32)}] for s, shape in shapes.items()}
    blocks = [(partition, [attempt])]
    assert at_once(server.push(group, dict.fromkeys(shapes, 1), blocks, updates)) == Pushed()


async def waiting(server: ShardServer, **message: Any) -> asyncio.Task[Any]:
    task = asyncio.create_task(read_when_there(server, {0: 1, 1: 1}, Complete(1), **message))
    while not len(server._waits):
        await asyncio.sleep(0)
    return task


def test_who_reads_ahead_gets_what_will_be_committed_when_all_updates_are_there() -> None:
    async def run() -> None:
        server = serving()
        asked = await waiting(server)
        some = asyncio.create_task(read_when_there(server, {0: 1}, Complete(1), {0: {"w": slice(1, 2)}}))
        push(server, 0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        push(server, 1)
        answer, rows = await asked, (await some).shards[0]["w"]
        assert answer.attempt == 1
        assert isinstance(at_once(server.read({0: 1}, Committed(0, exact=True))), Rows), "nothing is committed by it"
        later = at_once(server.read({0: 1, 1: 1}, Committed(1, exact=True)))
        for shard in (0, 1):
            assert later.shards[shard]["w"].tobytes() == answer.shards[shard]["w"].tobytes()
        assert rows.tobytes() == answer.shards[0]["w"][1:2].tobytes()
        assert (await read_when_there(server, {0: 1}, Complete(1))).attempt == 1, "also when it is committed"

    asyncio.run(run())


def test_who_reads_ahead_is_woken_by_the_last_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proteus_spot.psengine.server.shard_server, "AHEAD_WAITS_S", 1000 * PATIENCE)

    async def run() -> None:
        server = serving()
        asked = await waiting(server)
        push(server, 0)
        push(server, 1)
        async with asyncio.timeout(5 * PATIENCE):
            assert isinstance(await asked, Rows)

    asyncio.run(run())


def undisturbed() -> Any:
    server = serving()
    for partition in (0, 1):
        push(server, partition)
    at_once(server.read({0: 1, 1: 1}, Committed(1, exact=True)))
    return server.stores[0].committed["w"]


@pytest.mark.parametrize("how", [Moved, StaleEpoch, NotYet])
def test_who_reads_ahead_is_not_kept_waiting_for_nothing(how: type, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where it is let know, that is not because its time has run out.
    monkeypatch.setattr(
        proteus_spot.psengine.server.shard_server, "AHEAD_WAITS_S", 0.01 if how is NotYet else 1000 * PATIENCE
    )

    async def run() -> None:
        server = serving()
        asked = await waiting(server)
        if how is Moved:
            at_once(server.hand_over({1: 1}, "t", "tcp://t", 2))
        elif how is StaleEpoch:  # of another generation
            server.forget([], 2)
        async with asyncio.timeout(5 * PATIENCE):
            answer = await asked
        assert isinstance(answer, how)
        assert not len(server._waits)

    asyncio.run(run())


def test_updates_of_several_attempts_are_not_read_ahead() -> None:
    async def run() -> None:
        server = serving()
        asked = await waiting(server)
        push(server, 0)
        push(server, 1, attempt=2)
        assert not asked.done()
        assert isinstance(at_once(server.read({0: 1, 1: 1}, Committed(1, exact=True))), Rows)
        server._waits.wake()
        assert isinstance(await asked, StaleRead)

    asyncio.run(run())


def test_a_higher_attempt_takes_the_place_of_what_was_read_ahead() -> None:
    store = ShardStore(0, 1, {"w": np.zeros((1, 1), np.float32)}, 2)
    for partition in (0, 1):
        store.push(1, partition, [1], {"w": np.ones((1, 1), np.float32)})
    assert store.attempt(1) == 1
    assert store.ahead(1)["w"] == 2
    assert store.committed["w"] == 0
    store.push(1, 1, [2], {"w": np.full((1, 1), 5, np.float32)})
    assert store.attempt(1) == 0
    store.fold(1)
    assert (store.committed["w"], store.folded, store.attempt(1)) == (6, 2, 0)
    assert (store.attempt(2), store.attempt(3)) == (0, 0)


def test_a_higher_attempt_at_other_rows_takes_the_place_of_what_was_written_early() -> None:
    store = ShardStore(0, 1, {"w": np.zeros((4, 1), np.float32)}, 2)

    def push(partition: int, attempt: int, row: int) -> None:
        rows = RowDelta(np.array([row]), np.ones((1, 1), np.float32))
        assert store.push(1, partition, [attempt], {"w": rows}) == "accepted"

    store.ahead(0, {"w": None})  # from now on updates are written as they arrive
    push(0, 1, row=0)
    push(0, 2, row=1)
    push(1, 2, row=2)
    assert store.ahead(1, {"w": None})["w"].ravel().tolist() == [0, 1, 1, 0]
    store.fold(1)
    assert store.committed["w"].ravel().tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("lacks", [0, 1])
def test_a_read_that_names_tasks_waits_for_their_updates_on_each_shard(lacks: int) -> None:
    server, version = serving(), Before(2, ((1, 0),), 0, (1,))
    rows = {shard: {"w": slice(0, 1)} for shard in (0, 1)}
    for shard, expected in ((1 - lacks, NotYet), (lacks, Rows)):
        update = [{"w": np.ones(server.stores[shard].committed["w"].shape, np.float32)}]
        assert at_once(server.push(1, {shard: 1}, [(0, [1])], {shard: update})) == Pushed()
        assert isinstance(at_once(server.read({0: 1, 1: 1}, version, rows)), expected)
