"""Shards that lie side by side in memory are sent and read as one array, and are the same rows as apart."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.protocol.answers import JoinedRows, Rows, from_message, to_message
from proteus_spot.psengine.protocol.read_version import Committed, Complete
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.server.shard_store import ShardStore
from proteus_spot.psengine.tables.contiguous import joined, room, whole
from proteus_spot.psengine.tables.row_updates import RowDelta, added
from tests.support.servers import at_once, read_when_there

SIZES = st.lists(st.integers(0, 5), min_size=1, max_size=5)


@given(SIZES, st.integers(1, 3))
def test_pieces_of_one_array_are_found_to_be_one(sizes: list[int], columns: int) -> None:
    rows = [np.full((size, columns), at, np.float32) for at, size in enumerate(sizes)]
    places = room(rows)
    for place, of in zip(places, rows, strict=True):
        place[:] = of
    together = whole(places)
    assert together is not None
    assert np.array_equal(together, np.concatenate(rows))
    assert all(np.shares_memory(together, place) for place in places if place.size)
    if len(sizes) > 1:
        assert np.array_equal(joined(places[1:]), np.concatenate(rows[1:]))


def test_what_does_not_lie_side_by_side_is_copied_together() -> None:
    base = np.arange(24.0).reshape(8, 3)
    cases = [
        [np.ones((2, 3)), np.zeros((1, 3))],  # of two
        [base[:2], base[3:]],  # a gap
        [base[2:4], base[:2]],  # another order
        [base[:2, :2], base[2:, :2]],  # some columns
        [base[:2], base[2:].view(np.int64)],  # another type
        [base[::2], base[1::2]],  # every second
    ]
    for pieces in cases:
        assert whole(pieces) is None
        assert np.array_equal(joined(pieces), np.concatenate(pieces))


def store(shard: int, rows: int) -> ShardStore:
    tables = {"w": np.full((rows, 2), float(shard)), "n": np.zeros((rows, 1), np.int64)}
    return ShardStore(shard, 1, tables, 1)


def served(*sizes: int) -> ShardServer:
    server = ShardServer()
    server.stores = {shard: store(shard, rows) for shard, rows in enumerate(sizes)}
    return server


def push(server: ShardServer, clock: int, attempt: int = 1, **updates: Any) -> None:
    for of in server.stores.values():
        of.push(clock, 0, [attempt], {name: make(len(of.committed["w"])) for name, make in updates.items()})


@pytest.mark.parametrize("ahead", [False, True])
def test_shards_of_a_server_come_to_a_clock_side_by_side(ahead: bool) -> None:
    server, apart = served(3, 2, 4), served(3, 2, 4)
    epochs = dict.fromkeys(server.stores, 1)
    for clock in (1, 2, 3):
        for of in (server, apart):
            push(
                of,
                clock,
                w=lambda n: np.ones((n, 2)),
                n=lambda n: RowDelta(np.array([n - 1]), np.ones((1, 1), np.int64)),
            )
        answer = asyncio.run(
            read_when_there(server, epochs, Complete(clock))
            if ahead
            else server.read(epochs, Committed(clock, exact=True))
        )
        assert isinstance(answer, Rows)
        sent = from_message(to_message(answer.joined()))
        assert isinstance(sent, JoinedRows)
        assert [table.shape for table in sent.arrays()] == [(9, 2), (9, 1)]
        there = sent.by_shard()
        for shard, of in apart.stores.items():
            wanted = of.read(clock, exact=True)
            assert {name: rows.tobytes() for name, rows in there[shard].items()} == {
                name: rows.tobytes() for name, rows in wanted.items()
            }
        assert whole([of["w"] for of in there.values()]) is not None
        for of in server.stores.values():
            of.fold(clock)


def test_what_was_sent_of_a_clock_is_not_written_to_when_more_comes() -> None:
    """Who reads ahead may have it on the wire when another attempt's updates take the place of what it is made of."""
    server = served(3, 2)
    epochs = dict.fromkeys(server.stores, 1)
    push(server, 1, w=lambda n: np.ones((n, 2)))
    before = asyncio.run(read_when_there(server, epochs, Complete(1))).shards
    kept = {shard: tables["w"].copy() for shard, tables in before.items()}
    push(server, 1, attempt=2, w=lambda n: np.full((n, 2), 7.0))
    for of in server.stores.values():
        of.fold(1)  # as a push or a hand-over does, which makes no room
    after = at_once(server.read(epochs, Committed(1, exact=True))).shards
    for shard, rows in kept.items():
        assert np.array_equal(before[shard]["w"], rows)
        assert np.array_equal(after[shard]["w"], rows + 6.0)


def test_a_table_that_changes_in_some_shards_takes_no_room_for_the_others() -> None:
    server = served(3, 2)
    server.stores[0].push(1, 0, [1], {"w": np.ones((3, 2))})
    server.stores[1].push(1, 0, [1], {"n": np.ones((2, 1), np.int64)})
    at_once(server.read({0: 1, 1: 1}, Committed(1, exact=True)))
    assert {of.base is None for store in server.stores.values() for of in store.committed.values()} == {True}


def test_a_table_that_did_not_change_is_left_where_it_is() -> None:
    server = served(3, 2)
    push(server, 1, w=lambda n: np.ones((n, 2)))
    first = server.stores[0].committed["n"]
    answer = at_once(server.read({0: 1, 1: 1}, Committed(1, exact=True)))
    assert isinstance(answer, Rows)
    assert answer.shards[0]["n"] is first
    assert answer.joined() is answer, "they are sent as they are"
    assert answer.by_shard()[0]["n"] is first


@given(st.integers(1, 6), st.data())
def test_what_is_written_to_a_place_has_the_bits_of_what_is_made_anew(rows: int, data: st.DataObject) -> None:
    array = np.random.default_rng(rows).standard_normal((rows, 2)).astype(np.float32)
    some = np.array(sorted(data.draw(st.sets(st.integers(0, rows - 1), min_size=1))))
    for update in (
        np.float32(0.1) * array,
        RowDelta(slice(0, rows // 2), np.float32(0.1) * array[: rows // 2]),
        RowDelta(some, np.float32(0.3) * array[some]),
    ):
        (out,) = room([array])
        assert added(array, update, out) is out
        assert out.tobytes() == added(array, update).tobytes()
