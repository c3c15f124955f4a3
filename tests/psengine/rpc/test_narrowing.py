"""Arrays travel in the smallest form that holds them, and arrive as what they were."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.rpc import narrowing as narrow
from proteus_spot.psengine.rpc.narrowing import (
    LEAST,
    arrays_of,
    may_narrow,
    narrowed,
    remember_wire_bytes,
    wire_bytes,
)
from proteus_spot.psengine.tables.row_updates import RowDelta

N = LEAST


def travelled(array: np.ndarray) -> np.ndarray:
    """The array as it arrives."""
    form = narrowed(array)
    return array if form is None else form.widened(array.dtype.str)


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
def test_the_narrowest_type_that_holds_most(dtype: str, low: int, high: int, travels_as: str) -> None:
    array = np.ones((N, 2), dtype)
    array[: N // 2], array[N // 2 :] = low or 1, high
    assert wire_bytes(array) <= 2 * N * np.dtype(travels_as).itemsize
    assert np.array_equal(travelled(array), array)
    few = np.full((N, 2), 3, dtype)
    few[1], few[-1] = low, high
    assert wire_bytes(few) <= 2 * N + 4 * (8 + 8) if few.dtype.kind in "iu" else few.nbytes, "four travel beside"
    assert np.array_equal(travelled(few), few)


def test_rounded_floats_travel_in_two_bytes_and_others_as_they_are() -> None:
    rng = np.random.default_rng(0)
    array = (rng.standard_normal((N, 2)) * np.exp(rng.uniform(-60, 60, (N, 2)))).astype(np.float32)
    array[:4, 0] = 0.0, -0.0, np.inf, 1e-42
    few = narrow.rounded(array)
    assert wire_bytes(few) == few.size * 2
    assert travelled(few).tobytes() == few.tobytes()
    few[N // 3, 1] = np.float32(0.1)
    assert wire_bytes(few) == few.nbytes, "one that was not rounded"
    assert travelled(few) is few
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert narrow.rounded(array).tobytes() == array.astype(ml_dtypes.bfloat16).astype(np.float32).tobytes()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 0.3, 0.5])
def test_of_what_is_mostly_0_the_rest_travels(share: float) -> None:
    rng = np.random.default_rng(2)
    counts = rng.poisson(5, (64 * N, 2)).astype(np.int32) * (rng.random((64 * N, 2)) < share)
    assert wire_bytes(counts) <= min(1.0, 3 * share + 0.001) * counts.size
    assert np.array_equal(travelled(counts), counts)


def test_a_sample_that_misleads_costs_nothing() -> None:
    """Every value that is looked at is 0, and most others are not."""
    array = np.full(1024 * 64, 1000, np.int64)
    array[::64] = 0
    assert wire_bytes(array) == array.size * 2
    assert np.array_equal(travelled(array), array)
    array[1] = 2**40
    assert wire_bytes(array) == array.nbytes
    assert np.array_equal(travelled(array), array)


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
    assert narrowed(array) is None
    assert wire_bytes(array) == array.nbytes


@given(st.sampled_from(["int16", "int32", "int64", "uint16", "uint64"]), st.data())
def test_nothing_is_lost(dtype: str, data: st.DataObject) -> None:
    limits = np.iinfo(dtype)
    usual, other = (data.draw(st.integers(limits.min, limits.max)) for _ in range(2))
    array = np.full((LEAST, 2), usual, dtype)
    places = np.random.default_rng(data.draw(st.integers(0, 99))).random((LEAST, 2))
    array[places < data.draw(st.floats(0, 1))] = other
    array[0, 0] = data.draw(st.integers(limits.min, limits.max))
    arrived = travelled(array)
    assert (arrived.dtype, arrived.shape) == (array.dtype, array.shape)
    assert np.array_equal(arrived, array)
    assert wire_bytes(array) <= array.nbytes


def test_what_has_travelled_is_counted_as_it_did() -> None:
    counts, others = np.full(LEAST, 300, np.int64), np.full(LEAST, 300, np.int64)
    remember_wire_bytes(counts, 7)
    assert wire_bytes(counts) == 7
    assert wire_bytes(others) == 2 * LEAST
    there = len(narrow._WIRE_BYTES)
    del counts
    assert len(narrow._WIRE_BYTES) == there - 1, "what is gone is forgotten"
    small = np.ones(3, np.int64)
    remember_wire_bytes(small, small.nbytes)
    assert len(narrow._WIRE_BYTES) == there - 1, "what need not be looked at is not noted"


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
    update = RowDelta(counts, np.full((LEAST, 1), 0.1, np.float32))
    assert [array is of for array, of in zip(arrays_of(update), (update.values, counts), strict=True)] == [True, True]
    assert arrays_of(slice(0, 5)) == arrays_of(None) == ()
    assert wire_bytes(update) == LEAST * (4 + 2)
