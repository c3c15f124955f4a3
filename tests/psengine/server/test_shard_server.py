"""Messages that come late or twice to a server: what was moved, opened or rolled back meanwhile stays as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from proteus_spot.psengine.protocol.answers import HandedOver, Moved, Pushed, Rows, StaleEpoch, StaleRead
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.protocol.read_version import Committed
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.server.store_work import LargeWork
from tests.support.servers import at_once
from tests.support.timeouts import PATIENCE


def state(value: float = 0.0) -> dict[int, ShardState]:
    return {0: ShardState({"w": np.full((1, 1), value)}, 0, 0)}


def server(epoch: int = 1) -> ShardServer:
    """Return the server of a shard with one number; two partitions update it."""
    found = ShardServer()
    at_once(found.open(state(), 2, epoch))
    return found


def push(to: ShardServer, epoch: int = 1, partitions: tuple[int, ...] = (0, 1)) -> None:
    for partition in partitions:
        update = {"w": np.ones((1, 1))}
        assert at_once(to.push(1, {0: epoch}, [(partition, [1])], {0: [update]})) == Pushed()


def value(of: ShardServer, group: int, epoch: int = 1) -> float:
    found = at_once(of.read({0: epoch}, Committed(group, exact=True)))
    assert isinstance(found, Rows), found
    return float(found.shards[0]["w"].item())


def test_a_repeated_opening_leaves_what_has_arrived_since() -> None:
    serving = server()
    push(serving)
    at_once(serving.open(state(), 2, 1))
    assert value(serving, 1) == 2.0
    at_once(serving.open(state(5.0), 2, 2))
    assert value(serving, 0, epoch=2) == 5.0, "a rollback replaces it"


def test_a_repeated_hand_over_returns_the_same_and_one_that_was_overtaken_nothing() -> None:
    serving = server()
    push(serving, partitions=(0,))
    first = at_once(serving.hand_over({0: 1}, "new", "tcp://new", 3))
    again = at_once(serving.hand_over({0: 1}, "new", "tcp://new", 3))
    assert isinstance(first, HandedOver)
    assert isinstance(again, HandedOver)
    assert [len(each.states[0].later) for each in (first, again)] == [1, 1]
    assert isinstance(at_once(serving.hand_over({0: 1}, "old", "tcp://old", 2)), StaleEpoch)


def test_a_state_that_comes_twice_is_taken_once() -> None:
    serving = ShardServer()
    serving.expect([0], 2)
    at_once(serving.take(2, state(), 2))
    push(serving, epoch=2)
    at_once(serving.take(2, state(), 2))
    assert value(serving, 1, epoch=2) == 2.0


def test_a_state_of_a_move_that_another_one_has_overtaken_is_not_taken() -> None:
    serving = ShardServer()
    serving.expect([0], 3)
    at_once(serving.take(2, state(1.0), 2))
    assert serving.stores == {}
    at_once(serving.take(2, state(2.0), 3))
    assert value(serving, 0, epoch=3) == 2.0


def test_a_client_of_an_older_generation_is_not_redirected() -> None:
    serving = server()
    at_once(serving.hand_over({0: 1}, "new", "tcp://new", 2))
    assert isinstance(at_once(serving.read({0: 1}, Committed(1, exact=True))), Moved)
    serving.forget([], 2)
    assert isinstance(at_once(serving.read({0: 1}, Committed(1, exact=True))), StaleEpoch)


def test_a_group_of_an_older_generation_is_not_committed() -> None:
    serving = server(epoch=2)
    push(serving, epoch=2)
    at_once(serving.fold(1, 1))
    assert value(serving, 0, epoch=2) == 0.0
    at_once(serving.fold(1, 2))
    assert value(serving, 1, epoch=2) == 2.0


def test_a_shard_that_was_handed_over_is_still_read_as_it_was_and_no_newer() -> None:
    serving = server()
    push(serving)
    at_once(serving.hand_over({0: 1}, "new", "tcp://new", 2))
    at_once(serving.fold(1, 1))
    assert value(serving, 0) == 0.0
    assert isinstance(at_once(serving.read({0: 1}, Committed(0, exact=False))), Moved), "it may lack updates"


def test_a_shard_that_was_handed_over_has_no_mark_of_a_group_that_it_may_lack_updates_of() -> None:
    serving = ShardServer()
    serving.mark_every = 1
    at_once(serving.open(state(), 2, 1))
    push(serving, partitions=(0,))
    at_once(serving.hand_over({0: 1}, "new", "tcp://new", 2))
    assert isinstance(at_once(serving.marked({0: 1}, 1)), StaleRead)
    assert isinstance(at_once(serving.marked({0: 1}, 0)), Rows)


def test_a_late_map_drops_no_shard_that_has_been_moved_here_since() -> None:
    serving = ShardServer()
    serving.expect([0], 2)
    at_once(serving.take(2, state(), 2))
    serving.forget([ShardOwner(0, "old", "tcp://old", 1)], 1)
    assert value(serving, 0, epoch=2) == 0.0


def test_nobody_waits_for_a_shard_whose_move_a_rollback_has_ended() -> None:
    async def run() -> None:
        serving = ShardServer()
        serving.expect([0], 2)
        waits = asyncio.ensure_future(serving.arrived([0]))
        await asyncio.sleep(0)
        serving.forget([ShardOwner(0, "other", "tcp://other", 2)], 2)
        await asyncio.sleep(0)
        assert not waits.done(), "it may still come"
        serving.forget([ShardOwner(0, "other", "tcp://other", 3)], 3)
        async with asyncio.timeout(PATIENCE):
            await waits

    asyncio.run(run())


def test_a_state_whose_opening_takes_long_does_not_replace_a_newer_one() -> None:
    async def run() -> None:
        serving, may_end = ShardServer(), asyncio.Event()

        async def slowly(work: Callable[[], Any]) -> Any:
            await may_end.wait()
            return work()

        serving.large = LargeWork(slowly, large_bytes=0)
        older = asyncio.ensure_future(serving.open(state(1.0), 2, 1))
        await asyncio.sleep(0)
        serving.large = LargeWork()
        await serving.open(state(2.0), 2, 2)
        may_end.set()
        await older
        assert serving.stores[0].epoch == 2
        assert value(serving, 0, epoch=2) == 2.0

    asyncio.run(run())
