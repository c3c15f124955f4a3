"""What the methods of an application may return: numbers of Python come out, and all else is refused by name."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.apps.returned import (
    checked_driver,
    checked_task,
    executor_of,
    figures_of,
    number,
    predictions_of,
    remarks_of,
    rows_of,
    state_of,
    tables_of,
    task_of,
    whole,
    work_of,
)
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.drivers.interface import Task
from proteus_spot.psengine.drivers.ssp import Ssp
from proteus_spot.psengine.tables.allowed_values import WrongValue
from proteus_spot.psengine.telemetry.formatting import format_error


class OneNumber:
    """As a tensor of one number."""

    def __init__(self, value: float, shape: tuple[int, ...] = ()) -> None:
        self.value, self.shape = value, shape

    def __float__(self) -> float:
        return self.value


def method() -> None:
    """Stand for a method of a user."""


PLACE = f"test_returned.py:{method.__code__.co_firstlineno}"


@pytest.mark.parametrize(
    "value", [2, 2.0, np.float32(2), np.int8(2), np.array(2.0), np.array(2), Fraction(2), OneNumber(2.0)]
)
def test_what_is_one_number_is_taken_as_one_of_python(value: Any) -> None:
    assert (type(number("x", value)), number("x", value)) == (float, 2.0)
    assert (type(whole("x", value)), whole("x", value)) == (int, 2)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "None"),
        ("2", "'2'"),
        (b"2", "a bytes"),
        (2j, "2j"),
        (np.complex64(2), "(complex64)"),
        (np.str_("2"), "2 (str_)"),
        (np.timedelta64(2), "timedelta64"),
        (np.array(2.0, object), "a ndarray of one value"),
        (np.array([2.0]), "a ndarray of 1"),
        (np.ones((3, 2)), "a ndarray of 3 x 2"),
        (OneNumber(2.0, (1,)), "a OneNumber of 1"),
        ([2], "a list"),
        ({}, "a dict"),
        (10**400, "a int of"),
    ],
)
def test_what_is_not_one_number_is_refused(value: Any, says: str) -> None:
    with pytest.raises(WrongValue, match="want one number") as refused:
        number("the loss", value)
    assert says in str(refused.value) or type(value) is int  # its digits are cut
    with pytest.raises(WrongValue, match="want a whole number from 0"):
        whole("examples", value)


@pytest.mark.parametrize("value", [-1, 4.5, math.nan, math.inf, np.int64(-4), 1 << 63])
def test_a_count_is_whole_not_negative_and_of_64_bits(value: Any) -> None:
    with pytest.raises(WrongValue, match=r"the number of examples is .*: want a whole number from 0"):
        task_of(method, (None, 1.0, value))


def test_a_wrong_value_is_one_line_after_the_place_of_its_method() -> None:
    with pytest.raises(WrongValue) as refused:
        work_of(method, Work({}, np.ones(3), 1))  # type: ignore[arg-type]
    assert format_error(refused.value, "mine:App") == f"{PLACE}: run: the loss is a ndarray of 3: want one number"


def test_work_is_taken_with_numbers_of_python() -> None:
    work = work_of(method, Work({"w": np.ones(1)}, np.float32(2), np.int64(3)))  # type: ignore[arg-type]
    assert (type(work.loss_sum), type(work.examples)) == (float, int)
    assert math.isnan(work_of(method, Work({}, math.nan, 0), finite=False).loss_sum)


Unpicklable = type("Unpicklable", (), {"__reduce__": lambda self: 1 / 0})


@pytest.mark.parametrize(
    ("take", "value", "says"),
    [
        (work_of, None, "run: returns None: want Work"),
        (work_of, Work(None, 1.0, 1), "run: the updates are None: want a dict"),  # type: ignore[arg-type]
        (work_of, Work({}, math.inf, 1), "run: the loss is inf: want finite numbers"),
        (task_of, (1.0, 2), "run: returns a tuple: want a tuple (result, loss, examples)"),
        (task_of, (Unpicklable(), 1.0, 2), "run: the result does not pickle: ZeroDivisionError"),
        (task_of, (None, None, 2), "run: the loss is None"),
        (state_of, [np.ones(1)], "snapshot: returns a list"),
        (state_of, {"a": 1}, "snapshot: 'a' is 1: want an array"),
        (state_of, {"a": np.array([None])}, "snapshot: 'a' is an array of object"),
        (state_of, {1: np.ones(1)}, "snapshot: 1 is the name of an array"),
        (rows_of, None, "method: returns None: want a dict of rows by table"),
        (executor_of, None, "executor: returns None: want an object with run"),
        (figures_of, None, "returns None: want a dict of numbers by name"),
        (figures_of, {"a": np.ones(2)}, "'a' is a ndarray of 2: want one number"),
        (figures_of, {1: 1.0}, "1 is the name of a figure"),
        (remarks_of, "all is well", "want a list of texts"),
        (remarks_of, [1], "1 is among them"),
        (checked_driver, None, "driver: returns None without start"),
        (checked_driver, SimpleNamespace(start=print), "without snapshot"),
    ],
)
def test_each_method_has_its_description(take: Any, value: Any, says: str) -> None:
    with pytest.raises(WrongValue) as refused:
        take(method, value)
    assert says in str(refused.value)
    assert refused.value.place == PLACE


def test_figures_need_not_be_finite_and_whole_ones_stay_so() -> None:
    figures = figures_of(method, {"a": np.float32(1), "b": 2, "c": math.nan})
    assert [type(value) for value in figures.values()] == [float, int, float]


def test_predictions_are_numbers_or_texts_for_each_example() -> None:
    assert predictions_of(method, [1, 2], 2).tolist() == [1, 2]
    for values in (None, [1], [[[1]], [[2]]], [None, 1], 3.0):
        with pytest.raises(WrongValue):
            predictions_of(method, values, 2)


@pytest.mark.parametrize("found", [None, [], (TableSpec("a", 1, 1), TableSpec("a", 1, 1)), TableSpec("a", 1, 1), [1]])
def test_tables_are_a_tuple_of_distinct_ones(found: Any) -> None:
    with pytest.raises(WrongValue):
        tables_of(SimpleNamespace(tables=lambda: found))


def test_a_drivers_tasks_have_numbers_of_python_and_args_that_can_be_sent() -> None:
    task = checked_task(Task(np.int64(1), np.int64(2), [1], "rows", (np.int64(3),)))  # type: ignore[arg-type]
    assert task == Task(1, 2, [1], "rows", (3,))
    assert {type(task.partition), type(task.group), type((task.after or ())[0])} == {int}
    for wrong in (None, Task("1", 1), Task(0, 1.5), Task(0, 1, Unpicklable()), Task(0, 1, None, "all")):  # type: ignore[arg-type]
        with pytest.raises(WrongValue):
            checked_task(wrong)
    assert checked_driver(method, Ssp(0)) is not None
