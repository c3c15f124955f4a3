"""Sparse rows of counts: what is read of them has the bits of the full arrays, whatever came in which form."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.protocol.read_version import Committed
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.server.shard_store import ShardStore
from proteus_spot.psengine.tables.row_sets import Wanted
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.sparse_rows import WORTH, SparseRows, compact, compact_delta, full
from proteus_spot.psengine.tables.tree_sum import Delta
from tests.support.servers import at_once

ROWS, COLUMNS, PARTITIONS, CLOCKS = 40, 300, 4, 5


def counts(seed: int, share: float, most: int = 5, dtype: str = "int32", n_rows: int = ROWS) -> np.ndarray:
    """Return a table with some rows full, some empty, and in the others `share` of the entries."""
    rng = np.random.default_rng(seed)
    table = rng.integers(-most, most + 1, (n_rows, COLUMNS)) * (rng.random((n_rows, COLUMNS)) < share)
    table[::7], table[3::7] = rng.integers(1, most + 1, table[::7].shape), 0
    return table.astype(dtype)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 99),
    st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    st.sampled_from([5, 300, 2**40]),
    st.sampled_from(["int16", "int32", "int64"]),
    st.data(),
)
def test_rows_are_read_as_they_were(seed: int, share: float, most: int, dtype: str, data: st.DataObject) -> None:
    table = counts(seed, share, min(most, np.iinfo(dtype).max - 1), dtype)
    stored = compact(table)
    assert full(stored).tobytes() == table.tobytes()
    assert full(stored).dtype == table.dtype
    assert len(stored) == ROWS
    low, high = sorted(data.draw(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS))))
    some = np.array(sorted(data.draw(st.sets(st.integers(0, ROWS - 1)))), np.int64)
    for rows in (slice(low, high), slice(None), some):
        assert stored[rows].tobytes() == table[rows].tobytes()
    if isinstance(stored, SparseRows):
        assert stored.nbytes <= WORTH * table.nbytes
        assert pickle.loads(pickle.dumps(stored))[:].tobytes() == table.tobytes()


def test_numbers_that_no_float_holds_stay_whole() -> None:
    table = np.zeros((40, 300), np.int64)
    table[1, 2], table[3, 4] = 2**60 + 1, -1
    stored = compact(table)
    assert isinstance(stored, SparseRows)
    assert full(stored).tobytes() == table.tobytes()


def test_only_what_saves_memory_is_sparse() -> None:
    sparse = counts(1, 0.02)
    stored = compact(sparse)
    assert isinstance(stored, SparseRows)
    assert stored.nbytes < sparse.nbytes / 8
    large = np.random.default_rng(1).integers(2**20, 2**30, (ROWS, COLUMNS)).astype(np.int32)
    for table in (large, sparse.astype(np.float32), sparse[:, :1].copy(), np.zeros((2, 4), np.int64)):
        assert compact(table) is table


def updates(seed: int, clock: int, overlap: bool) -> list[Delta]:
    """Return what each partition adds in a clock: its block of rows, or rows that others have, too."""
    found: list[Delta] = []
    for partition in range(PARTITIONS):
        rng = np.random.default_rng([seed, clock, partition])
        low = 0 if overlap else partition * ROWS // PARTITIONS
        rows = slice(low, low + ROWS // PARTITIONS)
        of: Delta = {"word_topic": RowDelta(rows, counts(int(rng.integers(10**6)), 0.03, n_rows=ROWS // PARTITIONS))}
        if overlap and partition % 2:
            of = {"word_topic": counts(int(rng.integers(10**6)), 0.02), "topics": np.full((1, COLUMNS), partition)}
        found.append(of)
    return found


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_a_compact_server_answers_with_the_same_bits(overlap: bool, early: bool) -> None:
    """Reads of runs, of named rows and of whole shards; live, exact and ahead; also after a move and a copy."""
    servers = {True: ShardServer(), False: ShardServer()}
    for is_compact, server in servers.items():
        server.is_compact, server.mark_every = is_compact, 1
        table = np.zeros((ROWS, COLUMNS), np.int32)
        topics, empty = np.zeros((1, COLUMNS), np.int64), np.zeros((0, COLUMNS), np.int64)
        at_once(server.open({0: ShardState({"word_topic": table, "topics": topics}, 0, 0)}, PARTITIONS, 1))
        at_once(server.open({1: ShardState({"word_topic": table.copy(), "topics": empty}, 0, 0)}, PARTITIONS, 1))
    some = np.array([0, 3, 7, 8, 39])
    for clock in range(1, CLOCKS + 1):
        seen = []
        for server in servers.values():
            answers = []
            for partition, update in enumerate(updates(7, clock, overlap)):
                if early:
                    server.stores[0].ahead(clock - 1, {"word_topic": None})
                at_once(server.push(clock, {0: 1, 1: 1}, [(partition, [1])],
                            {0: [update], 1: [{"word_topic": update["word_topic"]}]}))  # fmt: skip
                answers.append(at_once(server.read({0: 1}, Committed(clock - 1, exact=False))).shards[0])
            rows: Wanted = {"word_topic": some}
            ahead = server.stores[0].ahead(clock, rows)["word_topic"]
            answers.append({"ahead": ahead[some] if clock % 2 else full(ahead)})
            runs: dict[int, Wanted] = {0: rows, 1: {"word_topic": slice(3, 9)}}
            mixed: dict[int, Wanted] = {0: {"topics": None}, 1: rows}
            for wanted in (None, runs, mixed):
                answers += at_once(server.read({0: 1, 1: 1}, Committed(clock, exact=True), wanted)).shards.values()
            answers.append(at_once(server.marked({0: 1}, clock)).shards[0])
            seen.append([(name, of.dtype, of.tobytes()) for answer in answers for name, of in sorted(answer.items())])
        assert seen[0] == seen[1]
    sparse, dense = servers[True], servers[False]
    assert all(isinstance(store.committed["word_topic"], SparseRows) for store in sparse.stores.values())
    assert not any(isinstance(store.committed["word_topic"], SparseRows) for store in dense.stores.values())
    last = updates(7, CLOCKS + 1, overlap)[0]
    for server in servers.values():
        server.stores[0].push(CLOCKS + 1, 0, [1], last)
    live = full(dense.stores[0].read(CLOCKS, exact=False)["word_topic"]).tobytes()
    for server in servers.values():
        state = at_once(server.copy({0: 1}, CLOCKS))[0]
        assert full(state.arrays["word_topic"]).tobytes() == full(dense.stores[0].committed["word_topic"]).tobytes()
        moved = ShardStore.of(0, 2, PARTITIONS, server.stores[0].state(), is_compact=server.is_compact)
        assert isinstance(moved.committed["word_topic"], SparseRows) == server.is_compact
        assert full(moved.read(CLOCKS, exact=False)["word_topic"]).tobytes() == live


def test_a_small_part_of_an_update_does_not_hold_the_whole() -> None:
    whole = np.ones((1000, 8))
    (part,) = compact_delta({"w": RowDelta(slice(0, 2), whole[5:7])}).values()
    assert isinstance(part, RowDelta)
    assert part.values.base is None
    assert part.values.tobytes() == whole[5:7].tobytes()
    assert compact_delta({"w": whole})["w"] is whole
