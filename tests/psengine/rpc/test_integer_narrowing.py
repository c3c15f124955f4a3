"""Whole numbers travel in the narrowest type that holds them, and arrive as what they were."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psengine.rpc import integer_narrowing as narrow
from psengine.rpc.integer_narrowing import LEAST, arrays_of, may_narrow, remember_wire_dtype, wire_bytes, wire_dtype
from psengine.tables.row_updates import RowDelta

N = LEAST


@pytest.mark.parametrize(
    ("dtype", "low", "high", "travels_as"),
    [
        ("int32", -128, 127, "int8"),
        ("int32", -129, 0, "int16"),
        ("int32", 0, 128, "int16"),
        ("int32", 0, 32_768, "int32"),
        ("int32", -(2**31), 2**31 - 1, "int32"),
        ("int16", -1, 2**15 - 1, "int16"),
        ("int16", 0, 127, "int8"),
        ("int64", 0, 32_768, "int32"),
        ("int64", 0, 2**31, "int64"),
        ("uint32", 0, 255, "uint8"),
        ("uint32", 0, 256, "uint16"),
        ("int8", 0, 1, "int8"),
        ("float32", 0, 1, "float32"),
        ("bool", 0, 1, "bool"),
    ],
)
def test_the_narrowest_type_that_holds_all(dtype: str, low: int, high: int, travels_as: str) -> None:
    array = np.zeros((N, 2), dtype)
    array[1], array[-1] = low, high
    assert wire_dtype(array) == np.dtype(travels_as)
    assert wire_bytes(array) == 2 * N * np.dtype(travels_as).itemsize


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(LEAST // 8 - 1, np.int64),
        np.zeros(0, np.int64),
        np.zeros((2 * N, 2), np.int64)[:, 0],
        np.zeros(N, ">i4"),
    ],
    ids=["small", "empty", "apart", "foreign"],
)
def test_what_is_left_as_it_is(array: np.ndarray) -> None:
    assert wire_dtype(array) == array.dtype
    assert wire_bytes(array) == array.nbytes


@given(st.sampled_from(["int16", "int32", "int64", "uint16", "uint64"]), st.data())
def test_nothing_is_lost(dtype: str, data: st.DataObject) -> None:
    limits = np.iinfo(dtype)
    array = np.full(LEAST, data.draw(st.integers(limits.min, limits.max)), dtype)
    array[0] = data.draw(st.integers(limits.min, limits.max))
    there = array.astype(wire_dtype(array))
    assert np.array_equal(there.astype(dtype), array)


@given(st.sampled_from(["int16", "int32", "int64", "uint32"]), st.integers(0, 2 * LEAST - 1), st.data())
def test_a_single_number_tells_wherever_it_is(dtype: str, at: int, data: st.DataObject) -> None:
    limits = np.iinfo(dtype)
    array = np.full((2 * LEAST, 1), 3, dtype)
    array[at] = data.draw(st.integers(limits.min, limits.max))
    way = wire_dtype(array)
    assert np.iinfo(way).min <= array[at] <= np.iinfo(way).max
    smaller = [f"{way.kind}{size}" for size in (1, 2, 4) if size < way.itemsize]
    assert not any(np.iinfo(size).min <= array[at] <= np.iinfo(size).max for size in smaller)


def test_what_has_travelled_is_counted_as_it_did() -> None:
    counts, others = np.full(LEAST, 300, np.int64), np.full(LEAST, 300, np.int64)
    remember_wire_dtype(counts, np.dtype(np.int8))
    assert wire_bytes(counts) == LEAST
    assert wire_bytes(others) == 2 * LEAST
    there = len(narrow._WIRE_DTYPES)
    del counts
    assert len(narrow._WIRE_DTYPES) == there - 1, "what is gone is forgotten"
    remember_wire_dtype(small := np.ones(3, np.int64), small.dtype)
    assert len(narrow._WIRE_DTYPES) == there - 1, "what need not be looked at is not noted"


def test_an_update_takes_its_values_and_the_names_of_its_rows() -> None:
    rows, values = np.arange(0, 3 * N, 3), np.ones((N, 4), np.int32)
    assert wire_bytes(RowDelta(rows, values)) == N * 2 + N * 4
    assert wire_bytes(RowDelta(slice(0, N), values)) == N * 4
    assert wire_bytes(None) == wire_bytes(slice(0, 3)) == 0


def test_what_has_to_be_looked_at_to_be_counted() -> None:
    counts = np.arange(LEAST, dtype=np.int64)
    assert may_narrow(counts)
    assert not may_narrow(counts.astype(np.float64))
    assert not may_narrow(counts[:8])
    assert not may_narrow(counts[::2])
    update = RowDelta(counts, np.ones((LEAST, 1), np.float32))
    assert [array is of for array, of in zip(arrays_of(update), (update.values, counts), strict=True)] == [True, True]
    assert arrays_of(slice(0, 5)) == arrays_of(None) == ()
    assert wire_bytes(update) == LEAST * (4 + 2)
