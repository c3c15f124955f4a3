"""Orders that come again when much has happened since, and shards taken back: by agents and by the controller's map."""

from __future__ import annotations

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.membership.node_record import NodeRecord
from proteus_spot.psengine.protocol.answers import StaleEpoch
from proteus_spot.psengine.protocol.events import BatchDone, BatchFailed, ShardsNotTaken, ShardsTaken
from proteus_spot.psengine.protocol.instructions import ShardOwner, TakeShards, UpdateShardMap
from proteus_spot.psengine.protocol.read_version import Committed
from proteus_spot.psengine.tiers.shard_map import ShardMap
from proteus_spot.psengine.worker.agent import NodeAgent
from tests.support.agents import HERE, OWNERS, THERE, Wires, config, dispatch, story, take, values
from tests.support.servers import at_once


def test_an_order_to_take_a_shard_that_comes_once_more_does_not_bring_back_what_it_was() -> None:
    """Its server has not heard yet that it came over, and would hand it over again as it was then."""

    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(take(1, 1, 2), 1)
        await wires.report(ShardsTaken)
        here.instruct(UpdateShardMap("here", HERE, 2, (OWNERS[0], ShardOwner(1, "here", HERE, 2)), 1), 2)
        here.instruct(dispatch(1, 1, [(0, 1)], map_version=2), 3)
        await wires.report(BatchDone)
        here.instruct(take(1, 1, 2), 1)
        here.instruct(dispatch(2, 1, [(1, 1)], map_version=2), 4)
        await wires.report(BatchDone)
        assert at_once(here.server.read({1: 2}, Committed(1, exact=True))).shards[1]["w"][0, 0] == 1.0 + 2.0

    story(body)


def test_a_server_takes_back_what_nobody_got() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        wires.spoil = lambda op, n: "answer lost" if op == "proteus_hand_over" and n == 1 else ""
        here.instruct(take(1, 1, 2))
        await wires.report(ShardsNotTaken)
        here.instruct(dispatch(1, 1, [(0, 1)]))
        await wires.report(BatchFailed)
        there.instruct(TakeShards("there", THERE, config(), THERE, (1,), (1,), 3))
        assert (await wires.report(ShardsTaken)).epoch == 3
        here.instruct(UpdateShardMap("here", HERE, 2, (OWNERS[0], ShardOwner(1, "there", THERE, 3)), 1))
        here.instruct(dispatch(2, 1, [(0, 2)], map_version=2))
        await wires.report(BatchDone)
        assert (
            values(here, 0, 1)
            == at_once(there.server.read({1: 3}, Committed(1, exact=True))).shards[1]["w"][0, 0]
            == 1.0
        )
        late = await there.server.hand_over({1: 1}, "here", HERE, 2)
        assert isinstance(late, StaleEpoch), "the lost move comes late"

    story(body)


def test_a_shard_whose_move_failed_is_taken_back_where_it_is_to_stay() -> None:
    nodes = {name: NodeRecord(name, f"tcp://{name}", "reliable", 1) for name in ("a", "b")}
    shards, job = ShardMap(), JobConfig("job", n_shards=1)
    shards.open(job, ("a",), nodes)
    shards.opened("a", (0,), 1)
    assert shards.move(job, ("a",), nodes, {0}, 0) == []
    (there,) = shards.move(job, ("b",), nodes, {0}, 0)
    shards.not_taken((0,), there.epoch - 1)
    assert not shards.unsure, "of another move"
    shards.not_taken((0,), there.epoch)
    (back,) = shards.move(job, ("a",), nodes, {0}, 0)
    assert (back.node, back.from_address, back.served_under, back.epoch) == ("a", "tcp://a", (1,), 3)
    assert shards.taken((0,), 3)
    assert shards.move(job, ("a",), nodes, {0}, 0) == [], "once"
