"""Sets of rows, updates of some rows, and that their form does not show in the sums."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.server.shard_store import ShardStore
from proteus_spot.psengine.tables import row_sets as rows
from proteus_spot.psengine.tables import row_updates
from proteus_spot.psengine.tables.row_sets import RowBlock, RowSet
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.tree_sum import Delta, largest_subtrees, tree_sum

N_ROWS = 12
runs = st.tuples(st.integers(0, N_ROWS), st.integers(0, N_ROWS)).map(lambda ends: slice(min(ends), max(ends)))
singles = st.sets(st.integers(0, N_ROWS - 1)).map(lambda some: np.array(sorted(some), np.int64))
row_sets: st.SearchStrategy[RowSet] = runs | singles


def listed(some: RowSet) -> list[int]:
    return np.arange(N_ROWS)[some].tolist()


@given(st.lists(row_sets, min_size=1, max_size=4), st.sampled_from([1, 8, 400]))
def test_a_union_holds_all_and_is_a_longer_run_only_where_that_is_less_to_send(sets: list[RowSet], a_row: int) -> None:
    union = rows.union(sets, a_row)
    wanted = sorted({row for some in sets for row in listed(some)})
    assert set(wanted) <= set(listed(union))
    size = len(listed(union)) * a_row + rows.named_bytes(union)
    assert size <= len(wanted) * (a_row + 8)
    if not isinstance(union, slice):
        assert listed(union) == wanted


def test_a_run_of_small_rows_is_read_rather_than_rows_by_name() -> None:
    scattered = [slice(0, 4), slice(8, 12)]
    assert rows.union(scattered, 2) == slice(0, 12)
    assert listed(rows.union(scattered, 400)) == [0, 1, 2, 3, 8, 9, 10, 11]


@given(st.lists(row_sets, min_size=1, max_size=4), st.integers(0, 3), st.sampled_from([1, 400]))
def test_each_gets_its_rows_of_what_was_read_for_all(sets: list[RowSet], which: int, a_row: int) -> None:
    table = np.arange(2 * N_ROWS).reshape(N_ROWS, 2)
    wanted, union = sets[which % len(sets)], rows.union(sets, a_row)
    block = RowBlock(union, table[union])
    assert block.has(wanted)
    assert np.array_equal(block.of(wanted), table[wanted])
    whole = RowBlock(None, table)
    assert whole.has(wanted)
    assert whole.has(None)
    assert np.array_equal(whole.of(wanted), table[wanted])


@given(row_sets, row_sets)
def test_a_block_knows_what_it_lacks(here: RowSet, wanted: RowSet) -> None:
    block = RowBlock(here, np.zeros((rows.count(here), 1)))
    assert block.has(wanted) == (set(listed(wanted)) <= set(listed(here)))
    assert not block.has(None)


def test_rows_that_lie_side_by_side_are_views() -> None:
    table = np.zeros((N_ROWS, 2))
    some = np.array([1, 2, 3, 7])
    assert np.shares_memory(RowBlock(None, table).of(slice(2, 5)), table)
    assert np.shares_memory(RowBlock(slice(2, 9), table[2:9]).of(slice(3, 5)), table)
    held = table[some]
    assert np.shares_memory(RowBlock(some, held).of(slice(1, 4)), held)
    assert np.shares_memory(RowBlock(some, held).of(np.array([2, 3])), held)
    assert not RowBlock(None, table).of(some).flags.writeable


@given(row_sets, st.lists(st.integers(0, N_ROWS), max_size=3))
def test_shards_cut_rows_and_updates_and_nothing_is_left_over(some: RowSet, cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), N_ROWS]
    delta = RowDelta(some, np.arange(1.0, 1 + 2 * rows.count(some)).reshape(-1, 2))
    whole, expected = np.zeros((N_ROWS, 2)), np.zeros((N_ROWS, 2))
    expected[some] = delta.values
    found = []
    for low, high in pairwise(ends):
        found += [low + row for row in listed(rows.cut(some, low, high))]
        part = row_updates.cut_delta(delta, low, high)
        assert (part is None) == (not listed(rows.cut(some, low, high)))
        if part is not None:
            row_updates.add_rows(whole[low:high], part)
    assert found == listed(some)
    assert np.array_equal(whole, expected)


TABLE = TableSpec("w", N_ROWS, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        slice(0, N_ROWS + 1),
        slice(None, 3),
        slice(0, 6, 2),
        slice(4, 3),
        np.array([1, 1]),
        np.array([2, 1]),
        np.array([-1, 1]),
        np.array([1, N_ROWS]),
        np.array([0.5]),
        np.array([[1]]),
    ],
)
def test_what_are_no_rows_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(ValueError, match="'w'"):
        rows.checked(wrong, TABLE)


def test_rows_come_in_any_whole_number() -> None:
    checked = rows.checked(np.array([0, 5], np.uint8), TABLE)  # type: ignore[arg-type]
    assert isinstance(checked, np.ndarray)
    assert checked.dtype == np.int64
    assert rows.checked(slice(N_ROWS, N_ROWS), TABLE) == slice(N_ROWS, N_ROWS)
    assert rows.count(rows.checked(np.zeros(0, np.int64), TABLE)) == 0


# -- the smaller form


def test_a_whole_update_that_is_mostly_empty_is_sent_as_rows() -> None:
    update = np.zeros((1000, 4), np.float32)
    update[[3, 700]] = 1.0
    some = row_updates.smaller(update, 1000)
    assert isinstance(some, RowDelta)
    assert listed_of(some) == [3, 700]
    update[3:700] = 1.0
    assert row_updates.smaller(update, 1000) is update
    update[:690] = 0.0
    run = row_updates.smaller(update, 1000)
    assert isinstance(run, RowDelta)
    assert run.rows == slice(690, 701)
    empty = row_updates.smaller(np.zeros((1000, 4)), 1000)
    assert isinstance(empty, RowDelta)
    assert rows.count(empty.rows) == 0


def listed_of(delta: RowDelta) -> list[int]:
    return rows.indices(delta.rows).tolist()


def test_rows_that_are_nearly_all_are_sent_whole() -> None:
    named = np.delete(np.arange(100), 50)
    small, large = (RowDelta(named, np.ones((99, n), np.int16)) for n in (1, 4000))
    whole = row_updates.smaller(small, 100)
    assert isinstance(whole, np.ndarray)
    assert whole.sum() == 99
    assert whole[50] == 0
    assert row_updates.smaller(large, 100) is large
    run = RowDelta(slice(0, 99), np.ones((99, 1), np.int16))
    assert row_updates.smaller(run, 100) is run


# -- sums

updates = st.lists(
    st.none() | row_sets | st.just("whole"),
    min_size=1,
    max_size=9,
)


def dense(update: RowDelta | np.ndarray) -> np.ndarray:
    if isinstance(update, np.ndarray):
        return update
    out = np.zeros((N_ROWS, 2), update.values.dtype)
    out[update.rows] = update.values
    return out


@given(updates, st.randoms(use_true_random=False), st.booleans(), st.integers(0, 3), st.booleans())
def test_sums_have_the_bits_of_whole_arrays_however_partitions_are_grouped(
    kinds: list[Any], chance: Any, integers: bool, nodes: int, change_form: bool
) -> None:
    n = len(kinds)
    rng = np.random.default_rng(chance.randrange(2**32))

    def values(n_rows: int) -> np.ndarray:
        if integers:
            return rng.integers(-(2**24), 2**24, (n_rows, 2)).astype(np.int32)
        made = 10.0 ** rng.integers(-6, 6, (n_rows, 2)) * rng.choice([-1.0, 0.0, -0.0, 1.0], (n_rows, 2))
        return np.asarray(made * rng.random((n_rows, 2)), np.float32)

    parts: list[Delta] = []
    for kind in kinds:
        if kind is None:
            parts.append({})
        else:
            some = values(N_ROWS) if isinstance(kind, str) else RowDelta(kind, values(rows.count(kind)))
            parts.append({"w": some})
    before = {
        name: [of.copy() if isinstance(of, np.ndarray) else of.values.copy()] for p in parts for name, of in p.items()
    }
    start = values(N_ROWS) + np.asarray(0, np.int32 if integers else np.float32)
    whole = tree_sum(
        (0, n),
        lambda b: {"w": dense(parts[b[0]].get("w", np.zeros((N_ROWS, 2), start.dtype)))} if b[1] - b[0] == 1 else None,
    )
    assert whole is not None
    assert isinstance(whole["w"], np.ndarray)
    expected = start + whole["w"]

    store = ShardStore(0, 1, {"w": start.copy()}, n)
    owners = [chance.randint(0, nodes) for _ in range(n)]
    for node in chance.sample(range(nodes + 1), nodes + 1):
        mine = [p for p in range(n) if owners[p] == node]
        for low, high in largest_subtrees(mine, n):
            total = tree_sum((low, high), lambda b: parts[b[0]] if b[1] - b[0] == 1 else None) or {}
            if change_form:
                total = {name: row_updates.smaller(of, N_ROWS) for name, of in total.items()}
            assert store.push(1, low, [1] * (high - low), total) == "accepted"
    assert store.read(0, exact=False)["w"].tobytes() == expected.tobytes()
    assert store.read(1, exact=True)["w"].tobytes() == expected.tobytes()
    after = {name: [of if isinstance(of, np.ndarray) else of.values] for p in parts for name, of in p.items()}
    for name, arrays in before.items():
        for old, new in zip(arrays, after[name], strict=True):
            assert old.tobytes() == new.tobytes(), "an update that was handed in was written to"


def test_disjoint_runs_are_put_side_by_side_as_one_run() -> None:
    parts = [{"own": RowDelta(slice(10 * p, 10 * p + 10), np.full((10, 1), p, np.int16))} for p in (2, 0, 3, 1)]
    total = tree_sum((0, 4), lambda b: parts[b[0]] if b[1] - b[0] == 1 else None)
    assert total is not None
    own = total["own"]
    assert isinstance(own, RowDelta)
    assert own.rows == slice(0, 40)
    assert own.values[:, 0].tolist() == [p for p in range(4) for _ in range(10)]


def test_a_committed_array_that_was_handed_out_stays_as_it_was() -> None:
    store = ShardStore(0, 1, {"w": np.zeros((4, 1)), "v": np.zeros((4, 1))}, 1)
    held = store.read(0, exact=True)["w"]
    for clock in (1, 2):
        store.push(clock, 0, [1], {"w": RowDelta(np.array([1, 3]), np.ones((2, 1)))})
    live = store.read(0, exact=False, tables=["w"])
    assert list(live) == ["w"]
    assert live["w"][:, 0].tolist() == [0, 2, 0, 2]
    assert store.read(0, exact=False)["v"].sum() == 0
    assert store.read(1, exact=True)["w"][:, 0].tolist() == [0, 1, 0, 1]
    assert held.sum() == 0
    assert live["w"].sum() == 4
