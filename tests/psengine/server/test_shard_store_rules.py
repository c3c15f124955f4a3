"""Tables with update rules on a server: the same bits ahead and committed, moved and restored."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from proteus_spot.psengine.config import Adam, Nesterov, Replace, TableSpec
from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.protocol.read_version import Committed, Complete
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.server.shard_store import ShardStore
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.sharding import Sharding
from proteus_spot.psengine.tables.update_rules import advance_tables, init_optimizer_state
from tests.support.servers import at_once, read_when_there

TABLES = (TableSpec("w", 6, 2, rule=Adam(0.1)), TableSpec("plain", 6, 1))
SHARDING = Sharding(TABLES, 1)
MEMORY = {"w:mean", "w:square", "w:count"}


def zeros() -> dict[str, Any]:
    return {table.name: np.zeros((table.n_rows, table.n_cols), table.dtype) for table in TABLES}


def update(value: float, partition: int) -> dict[str, Any]:
    """An update of other rows than the other partition's, which a server writes as they come where it may."""
    rows = RowDelta(slice(3 * partition, 3 * partition + 3), np.full((3, 2), value, np.float32))
    return {"w": rows, "plain": np.full((6, 1), value, np.float32)}


def store() -> ShardStore:
    return ShardStore(0, 1, zeros(), 2, sharding=SHARDING)


def push(shard: ShardStore, group: int, attempts: tuple[int, int] = (1, 1)) -> None:
    for partition, attempt in enumerate(attempts):
        shard.push(group, partition, [attempt], update(group + 0.1 * partition + attempt, partition))


def expected(groups: int, attempt: int = 1) -> dict[str, bytes]:
    state = init_optimizer_state(TABLES, zeros())
    for group in range(1, groups + 1):
        one, other = (update(group + 0.1 * partition + attempt, partition) for partition in (0, 1))
        total = {
            "w": np.concatenate([one["w"].values, other["w"].values]),
            "plain": one["plain"] + other["plain"],
        }
        state = advance_tables(TABLES, state, total)
    return {name: array.tobytes() for name, array in state.items()}


def bits(arrays: Any) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays.items()}


def test_what_is_read_ahead_is_what_is_committed_and_the_rule_is_applied_once() -> None:
    shard = store()
    for group in (1, 2, 3):
        shard.ahead(group - 1, {"w": None, "plain": None})  # as in a read-ahead: tables are written early if possible
        push(shard, group, (2, 2))
        replaced = shard.ahead(group, {"w": slice(0, 2), "plain": None})["plain"].copy()
        push(shard, group, (3, 3))
        assert shard.attempt(group) == 3
        ahead = shard.ahead(group)
        assert set(ahead) == {"w", "plain"}
        assert bits(ahead) == {name: expected(group, 3)[name] for name in ahead}
        assert ahead["plain"].tobytes() != replaced.tobytes()
        shard.fold(group)
        assert bits(shard.committed) == expected(group, 3)
        assert shard.committed["w"].tobytes() == shard.ahead(group)["w"].tobytes()
        again = shard.committed
        shard.fold(group)
        assert shard.committed is again


def test_notes_of_a_clock_are_heeded_by_a_server_in_that_clock_alone() -> None:
    tables = (TableSpec("w", 6, 2, rule=Nesterov(0.5, 0.9, "notes")), TableSpec("notes", 6, 2, rule=Replace()))
    state = {table.name: np.zeros((6, 2), np.float32) for table in tables}
    shard = ShardStore(0, 1, state, 2, sharding=Sharding(tables, 1))
    change, notes = np.full((6, 2), 3, np.float32), np.tile(np.float32([1, 0]), (6, 1))
    state = init_optimizer_state(tables, state)
    for clock, said in ((1, notes), (2, None), (3, notes[:, ::-1].copy())):
        shard.push(clock, 0, [1], {"w": change} if said is None else {"w": change, "notes": said})
        shard.push(clock, 1, [1], {})
        shard.fold(clock)
        state = advance_tables(tables, state, {"w": change} if said is None else {"w": change, "notes": said}, 2)
        assert bits(shard.committed) == bits(state)


def test_stale_readers_see_no_pending_update_of_a_table_with_a_rule() -> None:
    shard = store()
    push(shard, 1)
    shard.push(2, 0, [1], update(5.0, 0))
    read = shard.read(1, exact=False)
    assert read["w"].tobytes() == expected(1)["w"]
    assert read["plain"].tobytes() != expected(1)["plain"], "updates that are added are visible at once"
    shard.push(2, 1, [1], update(5.0, 1))
    assert shard.read(1, exact=False, tables=["w"])["w"].tobytes() == expected(1)["w"]


def test_the_memory_moves_with_the_shard_and_with_its_copy() -> None:
    shard = store()
    push(shard, 1)
    shard.fold(1)
    push(shard, 2)
    moved = ShardStore.of(0, 2, 2, shard.state(), SHARDING)
    copied = ShardStore.of(0, 2, 2, shard.copy(1), SHARDING)
    push(copied, 2)
    for each in (moved, copied):
        each.fold(2)
        assert bits(each.committed) == expected(2)


def test_tasks_are_not_sent_the_memory_and_checkpoints_are() -> None:
    async def run() -> None:
        server = ShardServer()
        server.sharding = SHARDING
        server.mark_every = 1
        at_once(server.open({0: ShardState(zeros(), 0, 0)}, 2, 1))
        push(server.stores[0], 1)
        ahead = await read_when_there(server, {0: 1}, Complete(1))
        pulled = at_once(server.read({0: 1}, Committed(1, exact=True)))
        for answer in (ahead, pulled, at_once(server.marked({0: 1}, 1))):
            assert set(answer.shards[0]) == {"w", "plain"}
            assert answer.shards[0]["w"].tobytes() == expected(1)["w"]
        gathered = at_once(server.gather({0: 1}, 1)).shards[0]
        assert bits(gathered) == expected(1)
        other = ShardServer()
        other.sharding = SHARDING
        at_once(other.open({0: ShardState(gathered, 1, 2)}, 2, 2))
        push(other.stores[0], 2)
        assert bits(at_once(other.gather({0: 2}, 2)).shards[0]) == expected(2)
        assert set(other.stores[0].committed) == MEMORY | {"w", "plain"}

    asyncio.run(run())
