"""A server and those who read ahead: what they wait for, what they are given, and that nothing is committed by it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import psengine.server.shard_server
from psengine.server.shard_server import ShardServer
from psengine.server.shard_store import ShardStore
from psengine.tables.row_updates import RowDelta
from tests.psengine.server.test_shard_store import Zeros
from tests.support.timeouts import PATIENCE


def serving(n_partitions: int = 2) -> ShardServer:
    from psengine.tables.sharding import Sharding

    made = ShardServer()
    made.open(Zeros(), Sharding(Zeros().tables(), 2), n_partitions, 7, [0, 1], 1)  # type: ignore[arg-type]
    return made


def push(server: ShardServer, partition: int, attempt: int = 1, clock: int = 1) -> None:
    shapes = {shard: store.committed["w"].shape for shard, store in server.stores.items()}
    updates = {s: [{"w": np.full(shape, 0.1 + partition, np.float32)}] for s, shape in shapes.items()}
    number = 100 * clock + 10 * attempt + partition
    blocks = [(partition, [attempt])]
    assert server.push("n", number, clock, dict.fromkeys(shapes, 1), blocks, updates)["status"] == "ok"


async def waiting(server: ShardServer, **message: Any) -> asyncio.Task[Any]:
    task = asyncio.create_task(server.pull_ahead({0: 1, 1: 1}, 1, **message))
    while not server._waiting:
        await asyncio.sleep(0)
    return task


def test_who_reads_ahead_gets_what_will_be_committed_when_all_effects_are_there() -> None:
    async def run() -> None:
        server = serving()
        asked = await waiting(server)
        some = asyncio.create_task(server.pull_ahead({0: 1}, 1, {0: {"w": slice(1, 2)}}))
        push(server, 0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        push(server, 1)
        answer, rows = await asked, (await some)["shards"][0]["w"]
        assert (answer["status"], answer["attempt"]) == ("ok", 1)
        assert server.pull({0: 1}, 0, exact=True)["status"] == "ok", "nothing is committed by it"
        later = server.pull({0: 1, 1: 1}, 1, exact=True)
        for shard in (0, 1):
            assert later["shards"][shard]["w"].tobytes() == answer["shards"][shard]["w"].tobytes()
        assert rows.tobytes() == answer["shards"][0]["w"][1:2].tobytes()
        assert (await server.pull_ahead({0: 1}, 1))["attempt"] == 1, "also when it is committed"

    asyncio.run(run())


def announcement(server: ShardServer, partition: int, attempt: int = 1, clock: int = 1) -> dict[str, Any]:
    updates = {
        s: [{"w": np.full(store.committed["w"].shape, 0.1 + partition, np.float32)}]
        for s, store in server.stores.items()
    }
    return {"clock": clock, "epochs": {0: 1, 1: 1}, "blocks": [(partition, [attempt])], "updates": updates}


def rest(server: ShardServer, partition: int, attempt: int = 1, clock: int = 1) -> str:
    """Push what was not announced, which is nothing, and return the answer."""
    message = {**announcement(server, partition, attempt, clock), "updates": {0: [{}], 1: [{}]}}
    return str(server.push("n", 100 * clock + 10 * attempt + partition, announced=True, **message)["status"])


def test_who_reads_what_was_announced_does_not_wait_for_the_rest() -> None:
    async def run() -> None:
        server = serving()
        whole = await waiting(server)
        asked = asyncio.create_task(server.pull_ahead({0: 1, 1: 1}, 1, announced=True))
        for partition in (0, 1):
            assert server.announce(**announcement(server, partition)) == {"status": "ok"}
        answer = await asked
        assert (answer["status"], answer["attempt"], whole.done()) == ("ok", 1, False)
        assert server.pull({0: 1}, 0, exact=True)["status"] == "ok", "nothing is committed by it"
        assert [rest(server, partition) for partition in (0, 1)] == ["ok", "ok"]
        await whole
        later = server.pull({0: 1, 1: 1}, 1, exact=True)
        for shard in (0, 1):
            assert server.stores[shard].folded == 2
            assert later["shards"][shard]["w"].tobytes() == answer["shards"][shard]["w"].tobytes()

    asyncio.run(run())


def test_who_reads_other_rows_does_not_wait_for_a_long_run_of_them() -> None:
    def run_of(low: int, high: int) -> RowDelta:
        return RowDelta(slice(low, high), np.full((high - low, 1), 0.5, np.float32))

    async def run() -> None:
        server = ShardServer()
        server.restore(0, 1, {"w": np.zeros((4, 1), np.float32)}, 2, 0, 0)
        server.stores[0].ahead(0, {"w": None})  # as in every clock but the first
        asked, whole, touching = (
            asyncio.create_task(server.pull_ahead({0: 1}, 1, rows, announced=True))
            for rows in ({0: {"w": slice(2, 4)}}, None, {0: {"w": slice(1, 3)}})
        )
        while len(server._waiting) < 3:
            await asyncio.sleep(0)
        message: dict[str, Any] = {"clock": 1, "epochs": {0: 1}}
        server.announce(blocks=[(1, [1])], updates={0: [{"w": run_of(2, 4)}]}, **message)
        server.announce(blocks=[(0, [1])], updates={0: [{}]}, to_come={0: [{"w": (0, 2)}]}, **message)
        answer = await asked
        assert (answer["status"], answer["attempt"]) == ("ok", 1)
        assert answer["shards"][0]["w"].tolist() == [[0.5], [0.5]]
        assert not whole.done()
        assert not touching.done()
        with_rest = {**message, "blocks": [(0, [1])], "updates": {0: [{}]}, "sender": "n", "sequence": 1}
        assert server.push(announced=True, **with_rest)["status"] == "unannounced", "they are still to come"
        server.announce(blocks=[(0, [1])], updates={0: [{"w": run_of(0, 2)}]}, **message)
        assert (await whole)["shards"][0]["w"].tolist() == 4 * [[0.5]]
        assert (await touching)["shards"][0]["w"].tolist() == 2 * [[0.5]]
        assert server.push(announced=True, **with_rest)["status"] == "ok"

    asyncio.run(run())


@pytest.mark.parametrize("announced_last", [True, False])
def test_who_reads_ahead_does_not_wait_where_some_have_nothing_to_announce(announced_last: bool) -> None:
    async def run() -> None:
        server = serving()
        asked = asyncio.create_task(server.pull_ahead({0: 1, 1: 1}, 1, announced=True))
        while not server._waiting:
            await asyncio.sleep(0)
        if announced_last:
            push(server, 1)
        server.announce(**announcement(server, 0))
        if not announced_last:
            push(server, 1)
        assert (await asyncio.wait_for(asked, 1.0))["status"] == "ok"
        assert rest(server, 0) == "ok"
        assert server.pull({0: 1, 1: 1}, 1, exact=True)["status"] == "ok"

    asyncio.run(run())


@pytest.mark.parametrize("rest_last", [True, False])
def test_what_was_not_announced_is_worked_out_soon(rest_last: bool) -> None:
    async def run() -> None:
        server = serving()
        server.announce(**announcement(server, 0))
        for last in (False, True):
            if last is rest_last:
                assert rest(server, 0) == "ok"
            else:
                push(server, 1)
        assert not server.stores[0]._coming._next
        async with asyncio.timeout(10):
            while not server.stores[0]._coming._next:
                await asyncio.sleep(0.001)

    asyncio.run(run())


def test_the_rest_of_what_was_not_announced_is_not_taken() -> None:
    async def run() -> None:
        server = serving()
        assert rest(server, 0) == "unannounced"
        server.announce(**announcement(server, 0, attempt=2))
        assert rest(server, 0) == "unannounced", "that was another attempt"
        assert not server.stores[0].pending
        push(server, 0)  # all of it, under the number of the message that was not taken
        push(server, 1)
        assert server.pull({0: 1, 1: 1}, 1, exact=True)["status"] == "ok"
        assert server.stores[0].folded == 2, "the attempt that was only announced does not count"
        assert server.stores[0].committed["w"].tobytes() == undisturbed().tobytes()

    asyncio.run(run())


def test_a_server_that_has_handed_over_takes_no_announcement() -> None:
    async def run() -> None:
        server = serving()
        server.announce(**announcement(server, 0))
        state = server.hand_over({0: 1, 1: 1}, "b", "tcp://b", 2)["states"][0]
        assert server.announce(**announcement(server, 1))["status"] == "moved"
        assert rest(server, 0) == "moved"
        assert state.later == (), "what was announced stays behind"

    asyncio.run(run())


def undisturbed() -> Any:
    server = serving()
    for partition in (0, 1):
        push(server, partition)
    server.pull({0: 1, 1: 1}, 1, exact=True)
    return server.stores[0].committed["w"]


@pytest.mark.parametrize("how", ["moved", "another generation", "not-yet"])
def test_who_reads_ahead_is_not_kept_waiting_for_nothing(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where it is let know, that is not because its time has run out.
    monkeypatch.setattr(psengine.server.shard_server, "AHEAD_WAITS_S", 0.01 if how == "not-yet" else 1000 * PATIENCE)

    async def run() -> None:
        server = serving()
        asked = await waiting(server)
        if how == "moved":
            server.hand_over({1: 1}, "t", "tcp://t", 2)
        elif how == "another generation":
            server.forget([], 2)
        async with asyncio.timeout(5 * PATIENCE):
            answer = await asked
        assert answer["status"] == {"another generation": "stale-epoch"}.get(how, how)
        assert not server._waiting

    asyncio.run(run())


def test_effects_of_several_attempts_are_not_read_ahead() -> None:
    async def run() -> None:
        server = serving()
        asked = await waiting(server)
        push(server, 0)
        push(server, 1, attempt=2)
        assert not asked.done()
        assert server.pull({0: 1, 1: 1}, 1, exact=True)["status"] == "ok"
        server._wake()
        assert (await asked)["status"] == "stale-read"

    asyncio.run(run())


def test_rows_that_are_to_come_of_another_attempt_are_not_left_out() -> None:
    async def run() -> None:
        server = serving()
        runs = {shard: [{"w": (0, 1)}] for shard in (0, 1)}
        server.announce(**{**announcement(server, 0, attempt=2), "updates": {0: [{}], 1: [{}]}}, to_come=runs)
        push(server, 0)
        push(server, 1)
        asked = asyncio.create_task(server.pull_ahead({0: 1, 1: 1}, 1))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        assert server.pull({0: 1, 1: 1}, 1, exact=True)["status"] == "ok"
        server._wake()
        answer = await asked
        assert answer["shards"][0]["w"].tobytes() == undisturbed().tobytes()

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
