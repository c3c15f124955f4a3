import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.apps.registry import initial_arrays, initial_shards
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.protocol.answers import Moved, Pushed, StaleEpoch, StaleRead
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.protocol.read_version import Committed
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.server.shard_store import ShardStore, StaleReadError
from proteus_spot.psengine.tables.allowed_values import WrongSum
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.sharding import Sharding
from proteus_spot.psengine.tables.tree_sum import largest_subtrees, tree_sum
from tests.support.servers import at_once

N = 20


def store(width: int = 3, n_partitions: int = N) -> ShardStore:
    return ShardStore(0, 1, {"w": np.zeros((1, width), np.float32)}, n_partitions)


def test_updates_are_summed_as_a_tree_whatever_order_and_blocks_they_came_in() -> None:
    rng = np.random.default_rng(3)
    updates = (10.0 ** rng.integers(-6, 6, (N, 1, 50)) * rng.standard_normal((N, 1, 50))).astype(np.float32)

    def tree(low: int, high: int) -> np.ndarray:
        middle = (low + high) // 2
        return updates[low] if high - low == 1 else tree(low, middle) + tree(middle, high)

    expected = np.zeros((1, 50), np.float32) + tree(0, N)
    assert sum(updates, np.zeros((1, 50), np.float32)).tobytes() != expected.tobytes()  # the order does matter
    for seed in range(6):
        nodes = np.random.default_rng(seed).integers(0, seed + 1, N)
        shard, parts = store(50), [np.flatnonzero(nodes == node).tolist() for node in range(seed + 1)]
        for mine in np.random.default_rng(seed).permutation(np.array(parts, dtype=object)) if seed else parts:
            for low, high in largest_subtrees(mine, N):
                total = tree_sum((low, high), lambda b: {"w": updates[b[0]]} if b[1] - b[0] == 1 else None)
                assert total is not None
                assert shard.push(1, low, [1] * (high - low), total) == "accepted"
        assert shard.read(1, exact=True)["w"].tobytes() == expected.tobytes()
        assert shard.folded == N


@given(st.permutations([1, 1, 2, 2, 3]))
def test_the_highest_attempt_counts_once_in_any_order(attempts: list[int]) -> None:
    shard, highest = store(1), 0
    for attempt in attempts:
        answer = shard.push(1, 0, [attempt], {"w": np.full((1, 1), 10.0**attempt, np.float32)})
        assert answer == ("accepted" if attempt > highest else "repeated" if attempt == highest else "superseded")
        highest = max(highest, attempt)
    assert shard.read(1, exact=True)["w"].item() == 1000.0
    assert shard.folded == 1
    assert shard.push(1, 0, [4], {"w": np.ones((1, 1), np.float32)}) == "repeated"  # its group is committed
    assert shard.read(1, exact=True)["w"].item() == 1000.0


def test_a_block_that_was_done_again_in_parts_counts_no_more() -> None:
    """A node sent the sum of four and was lost; two others do two each again, and what it sent comes late once more."""
    shard = store(1, n_partitions=4)

    def push(first: int, attempts: list[int], value: float) -> str:
        return shard.push(1, first, attempts, {"w": np.full((1, 1), value, np.float32)})

    assert push(0, [1, 1, 1, 1], 1000.0) == "accepted"
    assert push(0, [2, 2], 1.0) == "accepted"
    assert push(0, [1, 1, 1, 1], 1000.0) == "superseded"
    assert shard.read(0, exact=False)["w"].item() == 1.0
    assert push(2, [2, 2], 10.0) == "accepted"
    assert push(2, [2, 2], 10.0) == "repeated"
    assert shard.read(1, exact=True)["w"].item() == 11.0
    assert shard.folded == 4


def test_what_a_message_brought_is_not_written_to() -> None:
    shard = store(1, n_partitions=3)
    updates = [np.full((1, 1), value, np.float32) for value in (1.0, 10.0, 100.0)]
    for partition, update in enumerate(updates):
        update.flags.writeable = False
        shard.push(1, partition, [1], {"w": update})
    assert shard.read(0, exact=False)["w"].item() == shard.read(1, exact=True)["w"].item() == 111.0


def test_exact_reads_leave_later_clocks_out_and_stale_reads_take_them_in() -> None:
    shard = store(1)
    one = {"w": np.ones((1, 1), np.float32)}
    shard.push(1, 0, [1], one)
    shard.push(2, 0, [1], one)
    assert shard.read(0, exact=True)["w"].item() == 0
    assert shard.read(0, exact=False)["w"].item() == 2
    shard.push(2, 1, [1], one)
    assert shard.read(0, exact=False)["w"].item() == 3
    held = shard.read(1, exact=True)["w"]
    assert held.item() == 1
    assert shard.read(2, exact=True)["w"].item() == 3
    assert held.item() == 1, "an array that was handed out was written to"
    with pytest.raises(StaleReadError, match="clock 2, clock 1 was requested"):
        shard.read(1, exact=True)
    assert shard.folded == 3


class Zeros:
    """An application as far as a server needs one."""

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec("w", 5, 1),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((rows[1] - rows[0], table.n_cols))


def server() -> tuple[ShardServer, Sharding]:
    app, serving = Zeros(), ShardServer()
    sharding = Sharding(app.tables(), 2)
    initial = initial_shards(app, sharding, 7, [0, 1])  # type: ignore[arg-type]
    at_once(serving.open({shard: ShardState({**arrays}, 0, 0) for shard, arrays in initial.items()}, 1, 1))
    return serving, sharding


def test_a_message_is_applied_whole_or_not_at_all() -> None:
    serving, sharding = server()
    before = at_once(serving.read({0: 1, 1: 1}, Committed(0, exact=False))).shards
    updates = {s: [{"w": np.ones_like(before[s]["w"])}] for s in (0, 1)}
    push = {"group": 1, "blocks": [(0, [1])], "updates": updates}
    refused = at_once(serving.push(epochs={0: 1, 1: 2}, **push))
    assert refused == StaleEpoch("shard 1: epoch 2 requested, 1 served")
    assert at_once(serving.read({0: 1}, Committed(0, exact=False))).shards[0]["w"] is not None
    assert np.array_equal(at_once(serving.read({0: 1}, Committed(0, exact=False))).shards[0]["w"], before[0]["w"])
    for _ in range(2):
        assert at_once(serving.push(epochs={0: 1, 1: 1}, **push)) == Pushed()
    whole = sharding.join([at_once(serving.read({0: 1, 1: 1}, Committed(1, exact=True))).shards[s] for s in (0, 1)])[
        "w"
    ]
    assert np.allclose(whole, sharding.join([before[s] for s in (0, 1)])["w"] + 1)
    assert isinstance(at_once(serving.read({0: 1}, Committed(0, exact=True))), StaleRead)
    assert at_once(serving.gather({0: 1, 1: 1}, 1)).folded == {0: 1, 1: 1}


@pytest.mark.parametrize("epoch", [2, 3])
def test_a_shard_that_was_handed_over_is_dropped_with_the_map_that_names_its_new_owner(epoch: int) -> None:
    serving, _ = server()
    at_once(serving.hand_over({1: 1}, "new", "tcp://new", 2))
    serving.forget([ShardOwner(1, "old", "tcp://old", 1)], 1)
    assert sorted(serving.stores) == [0, 1], "a map of before the move"
    owner = ShardOwner(1, "new", "tcp://new", epoch)
    serving.forget([owner], 1)
    assert sorted(serving.stores) == [0]
    answer = at_once(serving.read({1: 1}, Committed(0, exact=True)))
    assert isinstance(answer, Moved)
    assert answer.owners == (owner,)


def test_initial_values_depend_on_seed_and_shard_alone() -> None:
    a, _ = server()
    b, _ = server()
    rows = [at_once(serving.read({1: 1}, Committed(0, exact=True))).shards[1]["w"] for serving in (a, b)]
    assert rows[0].tobytes() == rows[1].tobytes()
    assert not np.array_equal(rows[0][:2], at_once(a.read({0: 1}, Committed(0, exact=True))).shards[0]["w"][:2])


def test_no_table_begins_with_minus_zero() -> None:
    class MinusZeros(Zeros):
        def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
            return -np.zeros((rows[1] - rows[0], table.n_cols))

    first = initial_arrays(MinusZeros(), 0, 0, {"w": (0, 5)})["w"]  # type: ignore[arg-type]
    assert not np.signbit(first).any()


@given(st.integers(0, 40), st.integers(1, 9))
def test_shards_tile_the_rows(n_rows: int, n_shards: int) -> None:
    table = TableSpec("w", n_rows, 1)
    sharding = Sharding((table,), n_shards)
    whole = {"w": np.arange(n_rows).reshape(-1, 1)}
    parts = [sharding.cut(whole, shard) for shard in range(n_shards)]
    assert np.array_equal(sharding.join(parts)["w"], whole["w"])
    assert max(len(p["w"]) for p in parts) - min(len(p["w"]) for p in parts) <= 1


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 3), st.integers(1, 3), st.booleans()), max_size=24))
def test_stale_reads_show_the_highest_attempts_that_have_come(steps: list[tuple[int, int, int, bool]]) -> None:
    """Whether somebody reads between two pushes or not, and whether a push takes the place of an earlier one."""
    shard = ShardStore(0, 1, {"w": np.zeros((1, 1)), "v": np.zeros((1, 1))}, 4)
    highest: dict[tuple[int, int], int] = {}
    for group, partition, attempt, reads in steps:
        value = np.full((1, 1), float(10**partition * attempt * group))
        shard.push(group, partition, (attempt,), {"w": value})
        highest[group, partition] = max(attempt, highest.get((group, partition), 0))
        if reads:
            shard.read(0, exact=False, tables=["w"] if attempt == 1 else None)
    expected = sum(10**partition * attempt * group for (group, partition), attempt in highest.items())
    found = shard.read(0, exact=False)
    assert (found["w"].item(), found["v"].item()) == (expected, 0.0)


def test_rows_before_a_clock_have_the_bits_that_they_have_when_it_is_committed() -> None:
    """Also where other updates have not arrived, and whatever later groups have written."""
    rng = np.random.default_rng(8)
    begin = rng.standard_normal((12, 2)).astype(np.float32)
    shard, whole = (ShardStore(0, 1, {"w": begin.copy()}, 4) for _ in range(2))
    late = RowDelta(slice(9, 12), rng.standard_normal((3, 2)).astype(np.float32))
    for group in (1, 2, 3):
        for first, rows in ((0, slice(0, 5)), (1, np.array([2, 4, 8])), (2, None)):
            values = rng.standard_normal((12, 2)).astype(np.float32)
            update = {"w": values if rows is None else RowDelta(rows, values[rows])}
            for each in (shard, whole):
                each.push(group, first, [1], update)
        whole.push(group, 3, [1], {"w": late})
    for wanted in (None, slice(1, 9), np.array([2, 3, 8])):
        got = shard.before(3, {"w": wanted})["w"]
        until = 12 if wanted is None else None  # the rows of the late update differ
        expected = ShardStore.of(0, 1, 4, whole.state()).read(2, exact=True)["w"]
        expected = expected if wanted is None else expected[wanted]
        assert got[: until and 9].tobytes() == expected[: until and 9].tobytes()
    assert (shard.has(1, 2), shard.has(1, 3), shard.committed_group) == (True, False, 0)
    shard.fold(3)
    assert shard.has(1, 3)
    with pytest.raises(StaleReadError):
        shard.before(3, {"w": None})


@pytest.mark.parametrize("finite", [True, False])
def test_a_group_that_leaves_a_number_that_is_not_finite_is_not_committed(finite: bool) -> None:
    shard = ShardStore(0, 1, {"w": np.zeros((2, 1))}, 1, finite=finite)
    shard.push(1, 0, [1], {"w": np.array([[1.0], [np.inf]])})
    if finite:
        with pytest.raises(WrongSum):
            shard.fold(1)
        assert shard.committed_group == 0
    else:
        assert shard.read(1, exact=True)["w"].ravel().tolist() == [1.0, np.inf]


def test_a_group_without_updates_has_no_attempt() -> None:
    shard = store(1, n_partitions=1)
    shard.push(1, 0, [3], {"w": np.ones((1, 1), np.float32)})
    shard.fold(1)
    assert shard.attempt(1) == 3
    shard.fold(2)
    assert shard.attempt(2) == 0
