"""Who serves what, as servers leave."""

from psengine.instructions import ShardOwner
from psengine.model import JobConfig
from psengine.nodes import NodeRecord
from psengine.shardmap import ShardMap

JOB = JobConfig("job", n_shards=5, clocks=1)
A, B, C = (NodeRecord(name, f"tcp://{name}", "reliable", 1) for name in "abc")


def opened() -> ShardMap:
    """Five shards: 0, 1 and 2 on `a`, 3 and 4 on `b`."""
    made = ShardMap()
    for order in made.open(JOB, [A, B]):
        made.opened(order.node, order.shards)
    return made


def test_what_leaves_goes_to_the_least_laden_and_keeps_its_owner_until_it_is_there() -> None:
    made = opened()
    before = made.owners
    orders = made.clear(JOB, {"a"}, [B, C])
    assert [(o.node, o.from_address, o.shards, o.served_under) for o in orders] == [
        ("c", A.address, (0, 1), (1, 1)),
        ("b", A.address, (2,), (1,)),
    ]
    assert made.owners == before
    assert made.moving
    assert made.serves("c"), "it was told to"
    assert made.clear(JOB, {"a"}, [B, C]) == [], "what is on its way is not sent twice"
    assert made.taken((0, 1), orders[0].epoch)
    assert made.version == 2
    assert made.owners[:2] == tuple(ShardOwner(shard, "c", C.address, orders[0].epoch) for shard in (0, 1))
    assert made.serves("a")
    assert made.taken((2,), orders[1].epoch)
    assert not made.serves("a")
    assert not made.moving


def test_a_move_that_failed_is_made_again_under_a_further_epoch_and_late_word_of_it_is_nothing() -> None:
    made = opened()
    (first,) = made.clear(JOB, {"b"}, [A])
    made.not_taken(first.shards, first.epoch)
    (second,) = made.clear(JOB, {"b"}, [A])
    assert second.epoch > first.epoch
    assert second.served_under == first.served_under
    assert not made.taken(first.shards, first.epoch)
    made.not_taken(first.shards, first.epoch)
    assert made.moving
    assert made.taken(second.shards, second.epoch)
    assert {owner.node for owner in made.owners} == {"a"}


def test_without_an_heir_nothing_moves() -> None:
    made = opened()
    assert made.clear(JOB, {"a"}, []) == []
    assert not made.moving
