"""Where messages for a shard go, as maps and answers of servers tell it, in whatever order they come."""

from proteus_spot.psengine.protocol.answers import Moved
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.worker.routing import Routes


def owned_by(node: str, epoch: int) -> ShardOwner:
    return ShardOwner(0, node, f"tcp://{node}", epoch)


def test_an_answer_that_was_long_on_its_way_does_not_bring_an_earlier_owner_back() -> None:
    routes = Routes()
    routes.use(1, (owned_by("a", 1),), 1)
    assert routes.redirect({0: 1}, Moved((owned_by("b", 2),), "")) == [0]
    assert routes.by_server([0]) == {"tcp://b": {0: 2}}
    routes.use(2, (owned_by("c", 3),), 1)
    routes.redirect({0: 1}, Moved((owned_by("b", 2),), ""))
    assert routes.by_server([0]) == {"tcp://c": {0: 3}}
