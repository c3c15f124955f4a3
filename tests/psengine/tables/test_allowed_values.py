"""What a table takes: everyday types are cast to its own, all else is refused with the row."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.tables.allowed_values import (
    WrongSum,
    WrongValue,
    as_initial,
    as_update,
    check_finite,
    check_sum,
)
from proteus_spot.psengine.tables.row_updates import RowDelta

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def table(dtype: str, n_rows: int = 3) -> TableSpec:
    return TableSpec("w", n_rows, 1, dtype)


@pytest.mark.parametrize(
    ("given_type", "of_table"),
    [
        ("bool", "int32"),
        ("bool", "float32"),
        ("uint8", "int32"),
        ("int64", "int32"),
        ("int64", "uint32"),
        ("float16", "float32"),
        ("float64", "float32"),
        (">f4", "float32"),
        ("int64", "float32"),
    ],
)
def test_updates_are_cast_to_the_type_of_their_table(given_type: str, of_table: str) -> None:
    update = as_update(table(of_table), np.ones((3, 1), given_type), None)
    assert update.dtype == np.dtype(of_table)
    assert update.dtype.isnative
    assert (update == 1).all()


@pytest.mark.parametrize(
    ("update", "of_table", "says"),
    [
        (np.ones((3, 1), complex), "float32", "an array of complex128"),
        (np.ones((3, 1), object), "float32", "an array of object"),
        (np.full((3, 1), "1"), "float32", "an array of <U1"),
        (np.ones((3, 1)), "int32", "is of float64: the table is of int32"),
        (np.array([[0], [0], [1 << 40]]), "int32", "holds 1099511627776 in row 2, column 0"),
        (np.array([[0], [-1], [0]]), "uint8", "holds -1 in row 1, column 0"),
        (np.array([[1 << 63]] * 3, np.uint64), "int64", "holds 9223372036854775808 in row 0"),
        (np.full((3, 1), 1e200), "float32", "holds 1e+200 in row 0, column 0: float32 does not hold that"),
        (np.full((3, 1), np.nan), "float32", "holds nan in row 0, column 0: want finite numbers"),
        (np.ma.masked_array(np.ones((3, 1)), True), "float64", "a masked array"),
        (np.ones((2, 1)), "float64", r"is (2, 1): want (3, 1)"),
        ([[1.0]] * 3, "float64", "is a list: want a NumPy array"),
        (None, "float64", "is a NoneType: want a NumPy array"),
    ],
)
def test_what_a_table_does_not_take_is_refused(update: Any, of_table: str, says: str) -> None:
    with pytest.raises(WrongValue) as refused:
        as_update(table(of_table), update, None)
    assert str(refused.value).startswith("the update of table 'w'")
    assert says in str(refused.value)


def test_the_row_is_that_of_the_table_and_numbers_may_be_allowed() -> None:
    update = np.array([[0.0], [np.inf]])
    with pytest.raises(WrongValue, match="inf in row 7, column 0"):
        as_update(table("float32", 9), update, np.array([2, 7]))
    assert np.isinf(as_update(table("float32", 9), update, slice(1, 3), finite=False)[1, 0])


def test_initial_values_are_exactly_the_rows_that_were_asked_for() -> None:
    made = as_initial(table("int32", 9), np.full((2, 1), 3.0), (4, 6))
    assert (made.dtype, made.tolist()) == (np.int32, [[3], [3]])
    assert as_initial(table("float32", 9), [[1], [2]], (4, 6)).tolist() == [[1.0], [2.0]]
    for values, says in (
        (np.zeros((3, 1)), "rows 4 to 5 of table 'w' are of shape (3, 1): want (2, 1)"),
        (np.zeros(2), "are of shape (2,): want (2, 1)"),
        (0.0, "are of shape (): want (2, 1)"),
        (np.full((2, 1), 0.5), "hold 0.5 in row 4"),
        (np.full((2, 1), 2.0**31), "hold 2147483648.0 in row 4"),
        ([[1], [1, 2]], "are a list: want an array of shape (2, 1)"),
    ):
        with pytest.raises(WrongValue) as refused:
            as_initial(table("int32", 9), values, (4, 6))
        assert str(refused.value).startswith("initial: ")
        assert says in str(refused.value)
    with pytest.raises(WrongValue, match=r"hold nan in row 5, column 0"):
        as_initial(table("float64", 9), np.array([[0.0], [np.nan]]), (4, 6))


@given(st.data(), st.sampled_from(INTEGERS), st.booleans())
def test_a_sum_is_refused_exactly_if_it_does_not_fit(data: st.DataObject, dtype: str, has_table: bool) -> None:
    limits = np.iinfo(dtype)
    near = st.one_of(
        st.integers(limits.min, limits.max), st.sampled_from([limits.min, limits.max, limits.max // 2 + 1, 0, 1])
    )
    n_rows, exact = 3, [0, 0, 0]
    parts: list[Any] = []
    for _ in range(data.draw(st.integers(1, 3))):
        rows = data.draw(st.sampled_from([None, slice(1, 3), np.array([0, 2])]))
        numbers = list(range(n_rows)) if rows is None else np.arange(n_rows)[rows].tolist()
        values = data.draw(st.lists(near, min_size=len(numbers), max_size=len(numbers)))
        array = np.array(values, dtype)[:, None]
        parts.append(array if rows is None else RowDelta(rows, array))
        for row, value in zip(numbers, values, strict=True):
            exact[row] += value
    before = data.draw(st.lists(near, min_size=n_rows, max_size=n_rows)) if has_table else [0] * n_rows
    exact = [total + value for total, value in zip(exact, before, strict=True)]
    misfits = [row for row, total in enumerate(exact) if not limits.min <= total <= limits.max]
    table_before = np.array(before, dtype)[:, None] if has_table else None
    if not misfits:
        check_sum("n", parts, table_before)
        return
    with pytest.raises(WrongSum) as refused:
        check_sum("n", parts, table_before)
    assert refused.value.row == misfits[0]


def test_a_wrong_sum_names_table_row_and_clock_and_can_be_sent() -> None:
    check_sum("n", [])
    check_sum("n", [np.full((1, 1), 3e38, np.float32)] * 2)
    with pytest.raises(WrongSum, match=r"table 'n', row 1: the sum is inf: want finite numbers"):
        check_finite("n", np.array([[0.0], [np.inf]]))
    error = pickle.loads(pickle.dumps(WrongSum("n", 3, "the sum does not fit int32", 5)))
    assert str(error) == "table 'n', row 3, clock 5: the sum does not fit int32"
