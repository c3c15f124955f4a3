"""Tables that are written piece by piece, as the updates of a clock come."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from proteus_spot.psengine.server.shard_store import ShardStore
from proteus_spot.psengine.tables.incremental_update import Growing, apart
from proteus_spot.psengine.tables.row_sets import RowSet, count, indices
from proteus_spot.psengine.tables.row_updates import RowDelta, add_rows, added, joined
from proteus_spot.psengine.tables.tree_sum import Delta

ROWS, PARTITIONS, CLOCKS = 12, 4, 3
F32 = NDArray[np.float32]


def table(seed: int, rows: int = ROWS) -> F32:
    return np.random.default_rng(seed).standard_normal((rows, 3)).astype(np.float32)


def run_of(low: int, high: int, seed: int = 0) -> RowDelta:
    return RowDelta(slice(low, high), table(seed, high - low))


runs = st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)).map(lambda ends: slice(min(ends), max(ends)))
named = st.sets(st.integers(0, ROWS - 1)).map(lambda rows: np.array(sorted(rows), np.int64))


@settings(max_examples=300)
@given(st.lists(st.one_of(runs, runs, named), max_size=4))
@example([slice(0, 5), slice(0, 3)])
@example([slice(2, 9), slice(4, 5)])
@example([slice(8, 12), slice(0, 4), slice(4, 8)])
@example([slice(8, 12), np.array([1, 3]), slice(4, 8), np.array([2])])
def test_it_has_the_bits_of_the_sum_where_rows_are_others(asked: list[RowSet]) -> None:
    before = table(1)
    pieces = [RowDelta(rows, table(seed, count(rows))) for seed, rows in enumerate(asked)]
    growing = Growing(before)
    for piece in pieces:
        growing.add(piece)
    found = growing.whole()
    every = np.concatenate([np.zeros(0, np.int64), *(indices(piece.rows) for piece in pieces)])
    assert (found is not None) == apart(pieces, ROWS) == (len(np.unique(every)) == len(every))
    if found is not None:
        want = before.copy()
        for piece in pieces:
            add_rows(want, piece)
        assert found.tobytes() == want.tobytes()
    assert before.tobytes() == table(1).tobytes(), "it stays as it is"


def test_an_update_of_all_rows_does_not_fit_nor_what_comes_after_it() -> None:
    growing = Growing(table(1))
    for update in (run_of(0, 1), table(2), run_of(5, 6)):
        growing.add(update)
    assert growing.whole() is None
    assert not apart([run_of(0, 1), table(2)], ROWS)


def test_what_cannot_be_added_does_not_fit() -> None:
    growing = Growing(np.zeros((ROWS, 3), np.int32))
    with pytest.raises(TypeError):
        growing.add(run_of(0, 4))
    assert growing.whole() is None, "there is nothing in these rows"


def test_it_is_written_to_the_room_that_is_given() -> None:
    room = np.empty((ROWS, 3), np.float32)
    growing = Growing(table(1), room)
    growing.add(run_of(3, 7))
    assert growing.whole() is room
    assert room.tobytes() == added(table(1), run_of(3, 7)).tobytes()


def updates(draw: st.DrawFn) -> Delta:
    found: dict[str, F32 | RowDelta] = {}
    for name in ("v", "w"):
        seed = draw(st.integers(0, 99))
        match draw(st.sampled_from(["none", "run", "rows", "whole"])):
            case "run":
                run = draw(runs)
                found[name] = run_of(run.start, run.stop, seed)
            case "rows":
                rows = np.array(sorted(draw(st.sets(st.integers(0, ROWS - 1)))), np.int64)
                found[name] = RowDelta(rows, table(seed, len(rows)))
            case "whole":
                found[name] = table(seed)
    return found


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[str, object]]:
    """Pushes of a clock, each partition at least once under an attempt that all share in the end, and reads between."""
    steps: list[tuple[str, object]] = []
    for clock in range(1, CLOCKS + 1):
        pushes = [(clock, partition, 1, updates(draw)) for partition in draw(st.permutations(range(PARTITIONS)))]
        if draw(st.booleans()):  # all of it is done again, while some of it comes late
            again = [(clock, partition, 2, updates(draw)) for partition in draw(st.permutations(range(PARTITIONS)))]
            pushes = pushes[: draw(st.integers(0, PARTITIONS))] + again
        for push in pushes:
            if draw(st.booleans()):
                steps.append(("ask", ("v",)))
            if draw(st.booleans()):
                steps.append(("ask some", draw(st.one_of(runs, named))))
            steps.append(("push", push))
            if draw(st.booleans()):
                steps.append(("ask", draw(st.sampled_from([("v",), ("w",), ("v", "w"), ()]))))
        steps.append(("fold", clock))
    return steps


@given(stories())
def test_a_store_that_writes_early_has_the_bits_of_one_that_does_not(story: list[tuple[str, object]]) -> None:
    early, late = (ShardStore(0, 1, {"v": table(1), "w": table(2)}, PARTITIONS) for _ in range(2))
    handed: list[tuple[F32, bytes]] = []
    promised: list[tuple[int, F32]] = []
    promised_rows: list[tuple[int, RowSet, F32]] = []
    for step, of in story:
        if step == "ask some":
            if attempt := early.attempt(early.committed_group + 1):
                rows = early.ahead(early.committed_group + 1, {"v": of})["v"][of]  # type: ignore[dict-item, index]
                promised_rows.append((attempt, of, rows))  # type: ignore[arg-type]
                handed.append((rows, rows.tobytes()))
        elif step == "push":
            clock, partition, attempt, update = of  # type: ignore[misc]
            answers = [store.push(clock, partition, [attempt], update) for store in (early, late)]
            assert answers[0] == answers[1]
        elif step == "ask":
            clock = early.committed_group + 1
            whole = dict.fromkeys(of)  # type: ignore[call-overload]
            if of == ("v",) and (attempt := early.attempt(clock)):
                promised.append((attempt, early.ahead(clock, whole)["v"]))
            if not early.attempt(clock):
                clock -= 1  # as who reads ahead of the clock that was just folded
            for array in early.ahead(clock, whole).values():
                handed.append((array, array.tobytes()))  # type: ignore[arg-type]
        else:
            for store in (early, late):
                store.fold(of)  # type: ignore[arg-type]
            for name in ("v", "w"):
                assert early.committed[name].tobytes() == late.committed[name].tobytes()
            for attempt, array in promised:
                if attempt == early.attempt(of):  # type: ignore[arg-type]
                    assert array.tobytes() == early.committed["v"].tobytes(), (
                        "what was read ahead is what was committed"
                    )
            for attempt, rows_of, rows in promised_rows:
                if attempt == early.attempt(of):  # type: ignore[arg-type]
                    assert rows.tobytes() == early.committed["v"][rows_of].tobytes(), "others wrote other rows"
            promised, promised_rows = [], []
    for array, bits in handed:
        assert array.tobytes() == bits, "what was handed out is never written again"


def test_it_is_begun_as_soon_as_somebody_has_asked() -> None:
    store = ShardStore(0, 1, {"v": table(1), "w": table(2)}, 2)
    store.ahead(0, {"w": None})
    store.push(1, 0, [1], {"v": run_of(0, 4), "w": run_of(0, 4)})
    assert list(store._next._growing) == ["w"], "nobody has asked for the other one"
    store.push(1, 1, [1], {"v": run_of(4, 8), "w": run_of(4, 8)})
    assert list(store.ahead(1, {"w": None})) == ["w"]
    assert list(store._next._next) == ["w"], "the other one is not written before it is wanted"
    store.fold(1)
    assert store.committed["v"].tobytes() == added(table(1), joined([run_of(0, 4), run_of(4, 8)])).tobytes()


def test_it_is_not_begun_again_where_it_was_in_vain() -> None:
    store = ShardStore(0, 1, {"w": table(1)}, 2)
    store.ahead(0, {"w": None})
    for clock, low in ((1, 2), (2, 2), (3, 4), (4, 4)):
        store.push(clock, 0, [1], {"w": run_of(0, 4)})
        assert list(store._next._growing) == (["w"] if clock in (1, 4) else []), (
            "again when they were apart the last time"
        )
        store.push(clock, 1, [1], {"w": run_of(low, low + 4)})
        for _ in range(2):  # as two nodes read
            store.ahead(clock, {"w": None})
        store.fold(clock)


def test_what_is_done_again_is_not_added_twice() -> None:
    store = ShardStore(0, 1, {"w": table(1)}, 2)
    store.ahead(0, {"w": None})
    store.push(1, 0, [1], {"w": run_of(0, 4)})
    store.push(1, 0, [2], {"w": run_of(4, 8)})
    store.push(1, 1, [2], {"w": run_of(8, 9)})
    store.fold(1)
    assert store.committed["w"].tobytes() == added(table(1), joined([run_of(4, 8), run_of(8, 9)])).tobytes()
