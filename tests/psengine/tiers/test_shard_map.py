"""Who serves what: shards are opened, move, and are opened anew."""

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.membership.node_record import NodeRecord
from proteus_spot.psengine.protocol.instructions import ReplicaSet, ShardOwner
from proteus_spot.psengine.tiers.shard_map import ShardMap

JOB = JobConfig("job", n_shards=5, clocks=1)
A, B, C = (NodeRecord(name, f"tcp://{name}", "reliable", 1) for name in "abc")
NODES = {node.name: node for node in (A, B, C)}
ALL = range(5)


def opened() -> ShardMap:
    """Five shards: 0, 1 and 2 on `a`, 3 and 4 on `b`."""
    made = ShardMap()
    for order in made.open(JOB, ("a", "a", "a", "b", "b"), NODES):
        made.opened(order.node, order.shards, order.epoch)
    return made


def test_a_shard_that_moves_keeps_its_owner_until_it_is_there() -> None:
    made = opened()
    before = made.owners
    wanted = ("c", "c", "b", "b", "b")
    orders = made.move(JOB, wanted, NODES, ALL, 7)
    assert [(o.node, o.from_address, o.shards, o.served_under) for o in orders] == [
        ("c", A.address, (0, 1), (1, 1)),
        ("b", A.address, (2,), (1,)),
    ]
    assert {order.committed for order in orders} == {7}
    assert made.owners == before
    assert made.final == wanted
    assert made.moving
    assert made.serves("c"), "it was told to"
    assert made.move(JOB, wanted, NODES, ALL, 7) == [], "what is on its way is not sent twice"
    assert made.taken((0, 1), orders[0].epoch)
    assert made.version == 2
    assert made.owners[:2] == tuple(ShardOwner(shard, "c", C.address, orders[0].epoch) for shard in (0, 1))
    assert made.serves("a")
    assert made.taken((2,), orders[1].epoch)
    assert not made.serves("a")
    assert not made.moving


def test_only_what_may_move_does_and_nothing_goes_to_nobody() -> None:
    made = opened()
    assert made.move(JOB, (None, "a", "a", "b", "b"), NODES, ALL, 7) == []
    (order,) = made.move(JOB, ("c",) * 5, NODES, {3}, 7)
    assert order.shards == (3,)


def test_a_move_that_failed_is_made_again_under_a_further_epoch_and_late_word_of_it_is_nothing() -> None:
    made = opened()
    (first,) = made.move(JOB, ("a",) * 5, NODES, ALL, 7)
    made.not_taken(first.shards, first.epoch)
    (second,) = made.move(JOB, ("a",) * 5, NODES, ALL, 7)
    assert second.epoch > first.epoch
    assert second.served_under == first.served_under
    assert not made.taken(first.shards, first.epoch)
    made.not_taken(first.shards, first.epoch)
    assert made.moving
    assert made.taken(second.shards, second.epoch)
    assert {owner.node for owner in made.owners} == {"a"}


def test_shards_that_are_opened_anew_begin_a_generation_and_move_no_more() -> None:
    made = opened()
    (move,) = made.move(JOB, ("a",) * 5, NODES, ALL, 7)
    assert made.not_at({A.address}) == [3, 4], "their server is not there"
    assert made.not_at({B.address, C.address}) == [0, 1, 2, 3, 4], "nor is he to whom 3 and 4 are on their way"
    kept = ReplicaSet(1, 7, tuple((shard, C.address) for shard in ALL))
    orders = made.open(JOB, ("b", "b", "c", "b", "b"), NODES, None, kept)
    assert [(o.node, o.shards, o.replicas) for o in orders] == [("b", (0, 1, 3, 4), kept), ("c", (2,), kept)]
    assert made.opening
    assert not made.moving
    assert not made.taken(move.shards, move.epoch), "it comes too late"
    assert not made.opened("b", (0, 1, 3, 4), 1), "of the generation before"
    assert made.generation == orders[0].epoch > move.epoch
    assert not made.opened("b", (0, 1, 3, 4), made.generation)
    assert made.opened("c", (2,), made.generation)
    assert made.update_for(A).generation == made.generation
