"""Large work of a server on threads: its loop goes on, and requests that arrive meanwhile are answered as in turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.config import Replace, TableSpec
from proteus_spot.psengine.protocol.answers import Pushed, Rows
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.protocol.read_version import Before, Committed, Complete, KeptSum
from proteus_spot.psengine.server import next_group
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.server.store_work import LARGE_BYTES, LargeWork
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.sharding import Sharding
from tests.support.servers import at_once, first_states, read_when_there
from tests.support.timeouts import PATIENCE

PARTITIONS, ROWS = 3, 6
EPOCHS = {0: 1, 1: 1}


class Held:
    """Threads that do what they are given when the test lets them."""

    def __init__(self) -> None:
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()
        self.times = 0

    async def __call__(self, work: Callable[[], Any]) -> Any:
        self.times += 1
        self.begun.set()
        await self.goes_on.wait()
        return work()


def served(large: LargeWork | None = None, groups: int = 1) -> ShardServer:
    """A server of two shards that has all updates of the first groups; group 0 is marked."""
    server = ShardServer()
    server.mark_every = 1
    first = {shard: {"w": np.full((ROWS, 2), 0.1 * shard, np.float32)} for shard in (0, 1)}
    at_once(server.open(first_states(first), PARTITIONS, 1))
    for group in range(1, groups + 1):
        for partition in range(PARTITIONS):
            assert at_once(push(server, partition, group)) == Pushed()
    server.large = server.large if large is None else large
    return server


def push(server: ShardServer, partition: int, group: int, attempt: int = 1, committed: int = 0) -> Any:
    values = np.random.default_rng([partition, group, attempt]).standard_normal((ROWS, 2)).astype(np.float32)
    updates = {shard: [{"w": values * (shard + 1)}] for shard in EPOCHS}
    return server.push(group, EPOCHS, [(partition, [attempt])], updates, committed)


def plain(answer: Any) -> Any:
    """Return an answer, or what it holds, with the bits of arrays."""
    if isinstance(answer, np.ndarray):
        return answer.tobytes()
    if isinstance(answer, dict):
        return {key: plain(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [plain(value) for value in answer]
    return {"is": type(answer), **plain(vars(answer))} if hasattr(answer, "__dict__") else answer


async def reset(server: ShardServer) -> None:
    server.forget([], 2)
    await server.open(first_states({0: {"w": np.ones((ROWS, 2), np.float32)}}), PARTITIONS, 2)


async def told_who_serves(server: ShardServer) -> Any:
    server.forget([ShardOwner(1, "t", "tcp://t", 3)], 3)
    return await server.read(EPOCHS, Committed(1, exact=True))


async def taken_back(server: ShardServer) -> Any:
    answer: Any = await server.hand_over({1: 1}, "t", "tcp://t", 2, committed=1)
    server.expect([1], 3)
    await server.take(PARTITIONS, answer.states, 3)
    return await server.read({0: 1, 1: 3}, Committed(1, exact=True))


#: {what arrives while the sum of group 1 is on a thread}
MEANWHILE: dict[str, Callable[[ShardServer], Coroutine[Any, Any, Any]]] = {
    "push": lambda server: push(server, 1, 2, committed=1),
    "repeated push": lambda server: push(server, 1, 1),
    "later attempt": lambda server: push(server, 1, 1, attempt=2),
    "commit": lambda server: server.read(EPOCHS, Committed(1, exact=True)),
    "live read": lambda server: server.read(EPOCHS, Committed(0, exact=False)),
    "read of a later clock": lambda server: server.read(EPOCHS, Committed(2, exact=True)),
    "read of an earlier clock": lambda server: server.read(EPOCHS, Committed(0, exact=True)),
    "read ahead": lambda server: read_when_there(server, EPOCHS, Complete(1)),
    "read of rows": lambda server: read_when_there(
        server, EPOCHS, Before(2, ((1, 0),), 1, (2,)), {shard: {"w": slice(1, 3)} for shard in EPOCHS}
    ),
    "checkpoint": lambda server: server.gather(EPOCHS, 1),
    "evaluation": lambda server: server.marked(EPOCHS, 0),
    "replica": lambda server: server.copy(EPOCHS, 1),
    "movement": lambda server: server.hand_over({1: 1}, "t", "tcp://t", 2),
    "movement back": taken_back,
    "reset": reset,
    "map": told_who_serves,
}


#: {what is on a thread}
FIRST: dict[str, Callable[[ShardServer], Coroutine[Any, Any, Any]]] = {
    "sum": lambda server: server.read(EPOCHS, Committed(1, exact=True)),
    "push": lambda server: push(server, 2, 2),
}


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("kind", MEANWHILE)
def test_what_arrives_while_a_thread_works_is_answered_as_after_it(first: str, kind: str) -> None:
    async def both(threads: Held | None) -> Any:
        server = served(None if threads is None else LargeWork(threads, 0))
        working = asyncio.create_task(FIRST[first](server))
        async with asyncio.timeout(5 * PATIENCE):
            await (working if threads is None else threads.begun.wait())
        arriving = asyncio.create_task(MEANWHILE[kind](server))
        await asyncio.sleep(0)
        if threads is not None:
            assert not working.done()
            threads.goes_on.set()
        async with asyncio.timeout(5 * PATIENCE):
            answers = [await working, await arriving]
        assert isinstance(answers[0], Rows | Pushed)
        states = {shard: store.state() for shard, store in server.stores.items()}
        return plain([answers, states, server._moved])

    assert asyncio.run(both(Held())) == asyncio.run(both(None))


def test_a_heartbeat_is_answered_while_a_thread_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of updates of 8 MB waits for the loop, which would stand still if the sum were done there."""
    answered, with_update = threading.Event(), next_group.with_update

    def waits(*args: Any) -> Any:
        assert answered.wait(5 * PATIENCE), "the event loop stands still"
        return with_update(*args)

    async def run() -> None:
        server = ShardServer()
        await server.open(first_states({0: {"w": np.zeros((2048, 1024), np.float32)}}), 1, 1)
        update = {0: [{"w": np.ones((2048, 1024), np.float32)}]}
        assert await server.push(1, {0: 1}, [(0, [1])], update) == Pushed()
        monkeypatch.setattr(next_group, "with_update", waits)
        reading = asyncio.create_task(server.read({0: 1}, Committed(1, exact=True)))
        await asyncio.sleep(0)
        server.expect([1], 2)
        server.cancel_expected([1], 2)
        await server.arrived([0, 1])
        answered.set()
        assert (await reading).shards[0]["w"].min() == 1.0

    asyncio.run(run())


@pytest.mark.parametrize("times", [1, 3])
def test_a_push_that_is_cancelled_while_a_thread_applies_it_is_applied_and_read(times: int) -> None:
    async def run() -> None:
        threads = Held()
        server = served(LargeWork(threads, 0), groups=0)
        for partition in (1, 2):
            pushing = asyncio.create_task(push(server, partition, 1))
            threads.goes_on.set()
            await pushing
        ahead = asyncio.create_task(read_when_there(server, EPOCHS, Complete(1)))
        while not len(server._waits):
            await asyncio.sleep(0)
        threads.goes_on.clear()
        threads.begun.clear()
        last = asyncio.create_task(push(server, 0, 1))
        async with asyncio.timeout(5 * PATIENCE):
            await threads.begun.wait()
        for _ in range(times):
            last.cancel()
            await asyncio.sleep(0)
        assert not last.done(), "the thread has the server's shards"
        threads.goes_on.set()
        await asyncio.wait([last])
        assert last.cancelled()
        async with asyncio.timeout(5 * PATIENCE):
            assert plain((await ahead).shards) == plain(at_once(served().read(EPOCHS, Committed(1, exact=True))).shards)

    asyncio.run(run())


# -- what is large --------------------------------------------------------------------------------------------------

TABLES = (
    TableSpec("w", ROWS, 1),
    TableSpec("kept", ROWS, 1, rule=Replace(keeps_sums=True)),
)
Request = Callable[[ShardServer], Coroutine[Any, Any, Any]]
WANTED = {0: {"w": np.arange(ROWS)}}


def counted(n_cols: int, is_compact: bool, *requests: Request) -> list[int]:
    """Return how often threads are used by each of these requests to a server of a table of so many columns."""
    used: list[int] = []

    async def count(work: Callable[[], Any]) -> Any:
        used[-1] += 1
        return work()

    async def run() -> None:
        server = ShardServer()
        server.large, server.is_compact, server.mark_every = LargeWork(count), is_compact, 1
        server.sharding = Sharding(TABLES, 1)
        for request in requests:
            used.append(0)
            answer = await request(server)
            assert answer is None or not hasattr(answer, "error"), answer

    asyncio.run(run())
    return used


def opened(n_cols: int) -> Request:
    tables = {name: np.zeros((ROWS, n_cols), np.int32) for name in ("w", "kept")}
    return lambda server: server.open(first_states({0: tables}), 2, 1)


def pushed(n_cols: int, group: int, partition: int, rows: bool = False, committed: int = 0) -> Request:
    values = np.zeros((ROWS, n_cols), np.int32)
    values[:, 0] = 1 + partition
    half = slice(3 * partition, 3 * partition + 3)
    update: Any = {"w": RowDelta(half, values[half])} if rows else {"w": values, "kept": values}
    return lambda server: server.push(group, {0: 1}, [(partition, [1])], {0: [update]}, committed)


CASES: dict[str, Callable[[int], tuple[bool, list[Request]]]] = {
    "read": lambda n: (False, [lambda server: server.read({0: 1}, Committed(1, exact=True))]),
    "live read": lambda n: (False, [lambda server: server.read({0: 1}, Committed(0, exact=False))]),
    "read ahead": lambda n: (False, [lambda server: read_when_there(server, {0: 1}, Complete(1))]),
    "copy of rows": lambda n: (False, [lambda server: server.read({0: 1}, Committed(0, exact=True), WANTED)]),
    "rows before": lambda n: (False, [lambda server: server.read({0: 1}, Before(2, ((1, 0),), 0, (1,)), WANTED)]),
    "commit by a push": lambda n: (False, [pushed(n, 2, 0, committed=1)]),
    "commit by a move": lambda n: (False, [lambda server: server.hand_over({0: 1}, "t", "tcp://t", 2, 1)]),
    "replica": lambda n: (False, [lambda server: server.copy({0: 1}, 1)]),
    "sums of nodes": lambda n: (
        False,
        [
            lambda server: server.copy({0: 1}, 1),
            lambda server: server.read({0: 1}, KeptSum(1, "kept", (0, 1))),
        ],
    ),
    "rows written early": lambda n: (
        False,
        [
            *(pushed(n, 2, partition, rows=True, committed=1) for partition in (0, 1)),
            *[lambda server: read_when_there(server, {0: 1}, Complete(2), WANTED)] * 2,
            pushed(n, 3, 0, rows=True, committed=2),
        ],
    ),
    "sparse updates": lambda n: (True, [pushed(n, 2, 0)]),
    "checkpoint of sparse rows": lambda n: (True, [lambda server: server.gather({0: 1}, 0)]),
    "evaluation of sparse rows": lambda n: (True, [lambda server: server.marked({0: 1}, 0)]),
    "move of sparse updates": lambda n: (True, [lambda server: server.hand_over({0: 1}, "t", "tcp://t", 2)]),
}


@pytest.mark.parametrize("kind", CASES)
def test_work_on_tables_of_8_mb_is_done_on_threads_and_on_small_ones_at_once(kind: str) -> None:
    used = {}
    for n_cols in (64, 2 * LARGE_BYTES // ROWS // 4):
        is_compact, requests = CASES[kind](n_cols)
        before = [opened(n_cols), pushed(n_cols, 1, 0), pushed(n_cols, 1, 1)]
        used[n_cols] = counted(n_cols, is_compact, *before, *requests)
    small, large = used.values()
    assert not any(small)
    assert large[0] == 1, "it is opened on a thread"
    assert large[-1] >= 1
