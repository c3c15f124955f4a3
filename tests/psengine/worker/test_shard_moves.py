"""Shards that move from one agent to another, with updates and reads under way."""

from __future__ import annotations

import asyncio

import pytest

from proteus_spot.psengine.protocol.answers import HandedOver, Rows, StaleEpoch
from proteus_spot.psengine.protocol.events import BatchDone, BatchFailed, ShardsNotTaken, ShardsTaken
from proteus_spot.psengine.protocol.instructions import ShardOwner, UpdateShardMap
from proteus_spot.psengine.protocol.read_version import Committed
from proteus_spot.psengine.worker.agent import NodeAgent
from proteus_spot.psengine.worker.routing import TRIES
from tests.support.agents import CONTROLLER, HERE, OWNERS, THERE, Wires, dispatch, story, take, values
from tests.support.servers import at_once
from tests.support.timeouts import PATIENCE


def test_a_shard_moves_with_what_has_come_and_what_comes_late_is_sent_on() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(dispatch(1, 1, [(0, 1)]))  # by the old map
        await wires.report(BatchDone)
        here.instruct(take(1, 1, 2))
        assert (await wires.report(ShardsTaken)).shards == (1,)
        here.instruct(dispatch(2, 1, [(1, 1)]))  # still by the old map: sent to `there`, and on to `here`
        await wires.report(BatchDone)
        assert wires.calls[-2:] == [(THERE, "proteus_push"), (CONTROLLER, "proteus_event")]
        assert values(here, 0, 1) == 3.0
        assert at_once(here.server.read({1: 2}, Committed(1, exact=True))).shards[1]["w"][0, 0] == 3.0
        assert here.server.stores[1].folded == 2
        wires.calls.clear()
        here.instruct(dispatch(3, 2, [(0, 1)], committed=1))
        await wires.report(BatchDone)
        assert [address for address, _ in wires.calls] == [CONTROLLER], "it knows where the shard is now"

    story(body)


def test_who_comes_for_a_shard_on_its_way_waits_and_what_was_committed_is_read_where_it_was() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.server.expect([1], 2)
        gone = at_once(there.server.hand_over({1: 1}, "here", HERE, 2))
        here.instruct(dispatch(1, 1, [(0, 1), (1, 1)]))  # it reads group 0 at `there`, and cannot push yet
        async with asyncio.timeout(5 * PATIENCE):
            while (THERE, "proteus_push") not in wires.calls:
                await asyncio.sleep(0)
        assert (THERE, "Committed") in wires.calls
        assert not wires.reports
        at_once(here.server.take(4, gone.states, 2))
        await wires.report(BatchDone)
        assert at_once(here.server.read({1: 2}, Committed(1, exact=True))).shards[1]["w"][0, 0] == 3.0

    story(body)


def test_a_move_that_fails_is_reported_and_can_be_made_again() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        wires.spoil = lambda op, n: "answer lost" if op == "proteus_hand_over" and n == 1 else ""
        here.instruct(take(1, 1, 2))
        failed = await wires.report(ShardsNotTaken)
        assert (failed.shards, failed.epoch) == ((1,), 2)
        assert "answer lost" in failed.error
        here.instruct(dispatch(1, 1, [(0, 1)]))
        assert "epoch 2 requested, None served" in (await wires.report(BatchFailed)).error
        here.instruct(take(1, 1, 3))
        await wires.report(ShardsTaken)
        here.instruct(UpdateShardMap("here", HERE, 2, (OWNERS[0], ShardOwner(1, "here", HERE, 3)), 1))
        here.instruct(dispatch(2, 1, [(0, 2)], map_version=2))
        await wires.report(BatchDone)
        assert at_once(here.server.read({1: 3}, Committed(1, exact=True))).shards[1]["w"][0, 0] == 1.0

    story(body)


def test_who_is_asked_for_a_shard_that_he_does_not_serve_says_so_and_nothing_moves() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(take(1, 7, 8))
        assert "epoch 7 is not served here" in (await wires.report(ShardsNotTaken)).error
        assert isinstance(at_once(there.server.read({1: 1}, Committed(0, exact=True))), Rows)
        assert isinstance(at_once(there.server.hand_over({1: 1}, "late", "tcp://late", 9)), HandedOver)
        older = at_once(there.server.hand_over({1: 1}, "here", HERE, 8))
        assert isinstance(older, StaleEpoch), "an older move comes late"

    story(body)


def test_what_was_handed_over_is_dropped_when_the_map_says_who_has_it() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(take(1, 1, 2))
        await wires.report(ShardsTaken)
        assert 1 in there.server.stores
        moved = (OWNERS[0], ShardOwner(1, "here", HERE, 2))
        there.instruct(UpdateShardMap("there", THERE, 2, moved, 1))
        assert 1 not in there.server.stores
        assert at_once(there.server.read({1: 1}, Committed(0, exact=True))).owners == (moved[1],), (
            "late readers are sent on"
        )

    story(body)


@pytest.mark.parametrize("op", ["Committed", "proteus_push"])
def test_a_server_that_handed_over_may_be_gone_before_the_map_that_says_so_has_come(op: str) -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(take(1, 1, 2))
        await wires.report(ShardsTaken)
        wires.spoil = lambda asked, n: "lost" if asked == op else ""
        here.instruct(dispatch(1, 1, [(0, 1), (1, 1)]))
        async with asyncio.timeout(5 * PATIENCE):
            while sum(asked == op for _, asked in wires.calls) < TRIES:
                await asyncio.sleep(0)
        here.instruct(UpdateShardMap("here", HERE, 2, (OWNERS[0], ShardOwner(1, "here", HERE, 2)), 1))
        assert (await wires.report(BatchDone)).group == 1
        assert not [one for one in wires.reports if isinstance(one, BatchFailed)]
        assert float(at_once(here.server.read({1: 2}, Committed(1, exact=True))).shards[1]["w"][0, 0]) == 3.0

    story(body)
