"""Replicas of a shard: which rounds stay when another one comes."""

import pytest

from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.worker.hosts.shard_host import ReplicaStore


@pytest.mark.parametrize(
    ("puts", "stored"),
    [
        ([(1, 0), (2, 1)], [1, 2]),
        ([(1, 0), (2, 1), (3, 1)], [1, 3]),  # round 2 failed
        ([(1, 0), (2, 1), (3, 2)], [2, 3]),
        ([(1, 0), (3, 2), (2, 1)], [2, 3]),  # the message of round 2 was delayed
    ],
)
def test_the_last_complete_round_stays_until_a_later_one_is_complete(
    puts: list[tuple[int, int]], stored: list[int]
) -> None:
    store = ReplicaStore()
    for number, last_complete in puts:
        store.put(number, last_complete, {0: ShardState({}, number, 0)}, is_backup=True)
    assert [number for number in range(4) if store.get([0], number)] == stored


@pytest.mark.parametrize(
    ("as_backup", "stays"), [([True], True), ([False], False), ([False, True], True), ([True, False], False)]
)
def test_a_backup_keeps_its_replicas_when_others_serve_the_shard(as_backup: list[bool], stays: bool) -> None:
    store = ReplicaStore()
    for number, is_backup in enumerate(as_backup, 1):
        store.put(number, number - 1, {0: ShardState({}, number, 0)}, is_backup=is_backup)
    store.forget([0, 1])
    assert bool(len(store)) is stays
