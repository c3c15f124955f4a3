"""Rounds of backups: what is kept where, and when it is of use."""

from proteus_spot.psengine.membership.node_record import NodeRecord
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.protocol.moved_state import StateRef
from proteus_spot.psengine.tiers.replication import Backup, ReplicationRounds, StateReplica
from proteus_spot.psengine.worker.hosts.shard_host import ReplicaStore

R, S = (NodeRecord(name, f"tcp://{name}", "reliable", 1) for name in "rs")
OWNERS = (
    ShardOwner(0, "a", "tcp://a", 3),
    ShardOwner(1, "b", "tcp://b", 4),
    ShardOwner(2, "a", "tcp://a", 5),
)
BACKUPS = {0: R, 1: R, 2: S}


def whole(backups: ReplicationRounds, group: int, since_s: float = 0.0, until_s: float = 1.0) -> None:
    for order in backups.begin(group, OWNERS, BACKUPS, since_s):
        last = backups.backed_up(order.address, order.number, order.shards, until_s)
    assert last


def test_a_round_is_one_order_a_server_and_whole_when_all_have_answered() -> None:
    backups = ReplicationRounds()
    first, second = backups.begin(7, OWNERS, BACKUPS, 0.0)
    assert (first.node, first.group, first.shards, first.epochs) == ("a", 7, (0, 2), (3, 5))
    assert first.backups == (R.address, S.address)
    assert (second.node, second.shards) == ("b", (1,))
    assert not backups.backed_up(first.address, first.number, first.shards, 1.0)
    assert backups.group is None, "half of a round is none"
    assert backups.restore([]) is None
    assert backups.backed_up(second.address, second.number, second.shards, 1.0)
    assert backups.group == 7
    kept = backups.restore([0, 1, 2])
    assert kept is not None
    assert (kept.group, dict(kept.at)) == (7, {0: R.address, 1: R.address, 2: S.address})
    places = backups.replica_owners()
    assert places is not None
    assert [(place.shard, place.node) for place in places] == [(0, "r"), (1, "r"), (2, "s")]


def test_until_the_next_round_is_whole_the_last_one_counts() -> None:
    backups = ReplicationRounds()
    whole(backups, 7)
    first, _ = backups.begin(9, OWNERS, BACKUPS, 2.0)
    assert first.last_complete == 1, "what was copied before it may be dropped"
    backups.backed_up(first.address, first.number, first.shards, 3.0)
    assert backups.group == 7
    backups.not_backed_up(first.number, 3.0)
    assert not backups.under_way
    assert backups.group == 7
    assert not backups.backed_up("tcp://b", first.number, (1,), 3.0), "late word of a round that came to nothing"


def test_a_round_rests_for_as_long_as_the_last_one_took() -> None:
    backups = ReplicationRounds()
    assert backups.due(0.0)
    whole(backups, 1, 0.0, 4.0)
    assert not backups.due(7.9)
    assert backups.due(8.0)
    backups.begin(2, OWNERS, BACKUPS, 8.0)
    assert not backups.due(100.0), "one at a time"


def test_a_round_of_what_reliable_nodes_serve_rests_for_a_second_and_nineteen_times_as_long_as_the_last_one() -> None:
    backups = ReplicationRounds()
    whole(backups, 7, 0.0, 0.01)
    assert [backups.due(now_s, rarely=True) for now_s in (1.0, 1.02)] == [False, True]
    whole(backups, 8, 2.0, 4.0)
    assert [backups.due(now_s, rarely=True) for now_s in (6.0, 41.9, 42.1)] == [False, False, True]
    assert backups.due(6.0), "a shard without a replica does not wait for that"


def test_copies_go_with_their_backup_and_a_round_with_anybody_who_has_a_part_in_it() -> None:
    backups = ReplicationRounds()
    whole(backups, 7)
    assert backups.has_replica("s")
    backups.lose(S.address)
    assert backups.restore([0, 1]) is not None, "the lost shards' copies are there"
    assert backups.restore([2]) is None
    assert backups.replica_owners() is None, "what is left is not the whole"
    assert backups.lacks({0: "r", 2: "r"})
    assert not backups.lacks({0: "r", 1: "r"})
    for gone in ("tcp://b", R.address):
        backups.begin(9, OWNERS, BACKUPS, 9.0)
        backups.lose("tcp://stranger")
        assert backups.under_way
        backups.lose(gone)
        assert not backups.under_way


def test_rounds_that_come_to_nothing_in_a_row_are_told_until_one_is_whole() -> None:
    backups = ReplicationRounds()
    for failing in (False, True):
        (order, _) = backups.begin(9, OWNERS, BACKUPS, 0.0)
        backups.not_backed_up(order.number, 1.0)
        assert backups.failing == failing
    whole(backups, 10)
    assert not backups.failing


def test_of_rounds_that_come_to_nothing_the_last_alone_is_held_beside_the_whole_one() -> None:
    copies, state = ReplicaStore(), object()
    copies.put(1, 0, {0: state}, is_backup=True)  # type: ignore[dict-item]
    for number in range(2, 9):
        copies.put(number, 1, {0: state}, is_backup=True)  # type: ignore[dict-item]
        assert len(copies) == 2
    copies.put(6, 1, {0: state}, is_backup=True)  # type: ignore[dict-item]
    assert set(copies.get([0], 8)) == {0}, "what was long on its way takes nothing away"
    assert set(copies.get([0], 1)) == {0}


def test_states_of_executors_are_copied_in_the_same_round_and_are_of_use_while_one_copy_of_each_is_there() -> None:
    backups, backup = ReplicationRounds(), Backup("r", R.address)
    refs = [StateRef(0, 7, 1, "tcp://a"), StateRef(1, 6, 2, "tcp://w"), StateRef(2, 7, 1, R.address)]
    copies = [*(StateReplica(ref, backup) for ref in refs), StateReplica(StateRef(3, 5, 0, checkpoint="old"), None)]
    names = {"tcp://a": "a", "tcp://b": "b", "tcp://w": "w", R.address: "r"}
    orders = {order.node: order for order in backups.begin(7, OWNERS, BACKUPS, 0.0, copies, names)}
    assert {node: order.states for node, order in orders.items()} == {
        "a": ((refs[0], R.address),),
        "b": (),
        "w": ((refs[1], R.address),),  # it serves nothing
        "r": ((refs[2], ""),),  # it is its own backup
    }
    for node, order in orders.items():
        assert backups.group is None
        backups.backed_up(order.address, order.number, order.shards, 1.0, [ref.partition for ref, _ in order.states])
        assert (backups.group is None) == (node != list(orders)[-1])
    assert not backups.lacks({0: "r", 1: "r", 2: "s"}, ["r", "s"])
    assert backups.lacks({0: "r", 1: "r", 2: "s"}, ["s"]), "a backup that is to go"
    backups.saved("new", {(3, "old")})
    backups.lose("tcp://w")
    assert [(ref.address, ref.checkpoint) for ref in backups.states()] == [
        ("tcp://a", ""),
        (R.address, ""),
        (R.address, ""),
        ("", "new"),
    ]
    assert backups.restore([]) is not None
    backups.saved("newer", {(3, "old")})
    assert backups.restore([]) is None, "the checkpoint with the state of partition 3 was removed"
    backups.lose(R.address)
    assert backups.replica_owners() is None


def test_a_process_that_is_lost_after_it_has_copied_its_states_has_none_of_them_when_the_round_is_whole() -> None:
    backups, ref = ReplicationRounds(), StateRef(0, 7, 1, "tcp://w")
    names = {"tcp://a": "a", "tcp://b": "b", "tcp://w": "w"}
    copies = [StateReplica(ref, Backup("r", R.address))]
    *others, worker = backups.begin(7, OWNERS, BACKUPS, 0.0, copies, names)
    backups.backed_up(worker.address, worker.number, (), 1.0, [0])
    backups.lose("tcp://w")
    for order in others:
        backups.backed_up(order.address, order.number, order.shards, 1.0)
    assert backups.group == 7
    assert [state.address for state in backups.states()] == [R.address]


def test_a_round_that_is_due_waits_for_nodes_that_hand_over_but_not_for_long() -> None:
    backups = ReplicationRounds()
    assert [backups.gives_way(now_s) for now_s in (5.0, 34.9, 35.1)] == [True, True, False]
    whole(backups, 7, 40.0, 60.0)
    assert [backups.gives_way(now_s) for now_s in (90.0, 169.9, 170.1)] == [True, True, False], "four rounds of 20 s"


def test_those_who_copy_are_instructed_to_stop_when_a_round_is_broken_off() -> None:
    backups = ReplicationRounds()
    whole(backups, 7)
    orders = backups.begin(9, OWNERS, BACKUPS, 2.0)
    assert [(stop.node, stop.address, stop.number) for stop in backups.abandon()] == [
        (order.node, order.address, order.number) for order in orders
    ]
    assert (backups.under_way, backups.group, backups.abandon()) == (False, 7, [])
