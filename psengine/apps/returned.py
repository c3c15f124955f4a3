"""What the methods of an application may return: one description, for each method.

The engine calls a method, and takes what these functions return in place of what it returned: numbers of Python,
in the form that messages and files hold. Nothing else of an application reaches a controller, a server or a file.

| of | is |
|---|---|
| a number | a number of Python or NumPy, or what has `__float__` and no dimensions, such as a tensor of one number |
| a count | a whole number from 0, of the same kinds |
| tables, updates | see `psengine.tables.allowed_values` |
"""

from __future__ import annotations

import contextlib
import inspect
import math
import operator
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.config import Replace, TableSpec
from proteus_spot.psengine.drivers.interface import Read, Task
from proteus_spot.psengine.tables.allowed_values import WANT_FINITE, WrongValue
from proteus_spot.psengine.tables.sharding import Arrays
from proteus_spot.psengine.tables.update_rules import notes_of

#: Counts are stored and sent as integers of 64 bits.
_MOST = (1 << 63) - 1
#: Kinds of NumPy types that are numbers.
_NUMBERS = "biuf"


def place_of(method: Any) -> str:
    """Return where a method is defined, as ``mine.py:12``; "" if that is not known."""
    method = method.func if isinstance(method, partial) else method
    code = getattr(inspect.unwrap(getattr(method, "__func__", method)), "__code__", None)
    return "" if code is None else f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"


def wrong(method: Any, text: str) -> WrongValue:
    """Return the error of what a method has returned."""
    error = WrongValue(text)
    error.place = place_of(method)
    return error


def number(what: str, value: Any) -> float:
    """Return one number as a float; raises `WrongValue` if it is none."""
    if type(value) is float:
        return value
    if _is_one(value) and hasattr(type(value), "__float__"):
        with contextlib.suppress(Exception):  # a user's class may raise anything
            return float(value)
    raise WrongValue(f"{what} is {named(value)}: want one number")


def finite_number(what: str, value: Any, finite: bool) -> float:
    """Return one number as a float, which has to be finite if `finite`; raises `WrongValue`."""
    found = number(what, value)
    if finite and not math.isfinite(found):
        raise WrongValue(f"{what} is {found}: {WANT_FINITE}")
    return found


def whole(what: str, value: Any, least: int = 0) -> int:
    """Return a whole number from `least`, of 64 bits; raises `WrongValue` if it is none."""
    found: int | None = None
    if _is_one(value):
        try:
            found = operator.index(value)
        except Exception:  # noqa: BLE001 - a user's class may raise anything
            if hasattr(type(value), "__float__"):
                as_float = number(what, value)
                found = int(as_float) if as_float.is_integer() else None
    if found is None or not least <= found <= _MOST:
        raise WrongValue(f"{what} is {named(value)}: want a whole number from {least}")
    return int(found)


def _is_one(value: Any) -> bool:
    """Return whether a value has no dimensions, and is of no type of NumPy that is not of real numbers."""
    try:
        if isinstance(value, np.generic | np.ndarray) and value.dtype.kind not in _NUMBERS:
            return False
        return not isinstance(value, complex) and tuple(getattr(value, "shape", ())) == ()
    except Exception:  # noqa: BLE001 - a user's class may raise anything
        return False


def named(value: Any) -> str:
    """Return a value as an error names it: a short number or text as it is, else its type and size."""
    kind = type(value).__name__
    if value is None or type(value) in (bool, int, float, complex, str):
        text = repr(value)
        return text if len(text) <= 40 else f"a {kind} of {len(text)} characters"
    if isinstance(value, np.generic):
        return f"{value} ({kind})"
    try:
        shape = tuple(int(length) for length in value.shape)
        return f"a {kind} of {' x '.join(map(str, shape)) or 'one value'}"
    except Exception:  # noqa: BLE001 - most types have no shape, and a user's may raise anything
        return f"a {kind}"


def tables_of(app: Any) -> tuple[TableSpec, ...]:
    """Return the tables of an application.

    Raises
    ------
    WrongValue
        If it returns none, or what is no `TableSpec`, or two of one name.
    """
    found = app.tables()
    if isinstance(found, TableSpec) or not isinstance(found, Sequence):
        raise wrong(app.tables, f"tables: returns {named(found)}: want a tuple of TableSpec")
    for table in found:
        if not isinstance(table, TableSpec):
            raise wrong(app.tables, f"tables: holds {named(table)}: want a TableSpec for each table")
    names = [table.name for table in found]
    if not names or len(set(names)) < len(names):
        what = f"the names are {', '.join(names) or 'none'}"
        raise wrong(app.tables, f"tables: {what}; want one or more, and distinct ones")
    sizes = {table.name: (table.n_rows, table.n_cols, type(table.rule)) for table in found}
    for table in found:
        notes = notes_of(table)
        if notes and sizes.get(notes) != (table.n_rows, 2, Replace):
            text = f"tables: the notes {notes!r} of {table.name!r}: want a table of {table.n_rows} x 2 with Replace()"
            raise wrong(app.tables, text)
    return tuple(found)


def work_of(run: Callable[..., Any], work: Any, finite: bool = True) -> Work:
    """Return what `App.run` has returned; its updates are checked where they are added.

    Raises
    ------
    WrongValue
    """
    if not isinstance(work, Work):
        raise wrong(run, f"run: returns {named(work)}: want Work(updates, loss_sum, examples)")
    if not isinstance(work.updates, Mapping):
        raise wrong(run, f"run: the updates are {named(work.updates)}: want a dict of arrays by table")
    return Work(dict(work.updates), *_loss_and_count(run, work.loss_sum, work.examples, finite))


def task_of(run: Callable[..., Any], returned: Any, finite: bool = True) -> tuple[Any, float, int]:
    """Return what `Executor.run` has returned.

    Raises
    ------
    WrongValue
    """
    if not isinstance(returned, tuple) or len(returned) != 3:
        raise wrong(run, f"run: returns {named(returned)}: want a tuple (result, loss, examples)")
    result, loss, examples = returned
    if result is not None:
        try:
            _check_pickles("run: the result does", result)
        except WrongValue as error:
            raise wrong(run, str(error)) from None
    return result, *_loss_and_count(run, loss, examples, finite)


def _check_pickles(what: str, value: Any) -> None:
    try:
        pickle.loads(pickle.dumps(value))
    except Exception as error:  # noqa: BLE001 - a user's class may raise anything
        text = f"{what} not pickle: {type(error).__name__}: {error}"
        raise WrongValue(text.splitlines()[0]) from None


def _loss_and_count(run: Callable[..., Any], loss: Any, examples: Any, finite: bool) -> tuple[float, int]:
    if type(loss) is float and type(examples) is int and math.isfinite(loss) and 0 <= examples <= _MOST:
        return loss, examples
    try:
        return finite_number("run: the loss", loss, finite), whole("run: the number of examples", examples)
    except WrongValue as error:
        raise wrong(run, str(error)) from None


def state_of(snapshot: Callable[[], Any], state: Any) -> Arrays:
    """Return what `HasState.snapshot` has returned: arrays of numbers or texts, by name.

    Raises
    ------
    WrongValue
    """
    if not isinstance(state, Mapping):
        raise wrong(snapshot, f"snapshot: returns {named(state)}: want a dict of arrays by name")
    for name, array in state.items():
        if not isinstance(name, str):
            raise wrong(snapshot, f"snapshot: {named(name)} is the name of an array: want a text")
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            what = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else named(array)
            raise wrong(snapshot, f"snapshot: {name!r} is {what}: want an array of numbers or texts")
    return state  # type: ignore[return-value]  # a mapping, the same one each time: it is known by identity


def executor_of(make: Callable[..., Any], executor: Any) -> Any:
    """Return what `Application.executor` has returned; raises `WrongValue` if it runs no tasks."""
    if not callable(getattr(executor, "run", None)):
        raise wrong(make, f"executor: returns {named(executor)}: want an object with run(args, params, rng)")
    return executor


def checked_task(task: Any) -> Task:
    """Return what a driver dispatches, with numbers of Python; raises `WrongValue` if it is not a task."""
    if not isinstance(task, Task):
        raise WrongValue(f"dispatch: {named(task)}: want a Task")
    if type(task.partition) is type(task.group) is int and task.args is task.after is None and task.read == "group":
        return task
    if not isinstance(task.read, str) or task.read not in get_args(Read):
        raise WrongValue(f"dispatch: the read is {named(task.read)}: want one of {', '.join(get_args(Read))}")
    if task.args is not None:
        _check_pickles("dispatch: the args do", task.args)
    what = "dispatch: a number in `after`"
    after = None if task.after is None else tuple(whole(what, writer) for writer in task.after)
    numbers = whole("dispatch: the partition", task.partition), whole("dispatch: the group", task.group)
    return Task(*numbers, task.args, task.read, after)


def checked_driver(make: Callable[..., Any], driver: Any) -> Any:
    """Return what `driver` has returned; raises `WrongValue` if the engine cannot call it."""
    begins = ("resume",) if hasattr(driver, "resume") else ("start", "snapshot", "restore")
    for name in (*begins, "completed", "committed", "vanished", "returned", "next_task"):
        if not callable(getattr(driver, name, None)):
            raise wrong(make, f"driver: returns {named(driver)} without {name}: want a Driver")
    return driver


def remarks_of(remarks: Callable[..., Any], found: Any) -> tuple[str, ...]:
    """Return what `remarks` of a driver has returned: texts; raises `WrongValue` if they are none."""
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise wrong(remarks, f"remarks: returns {named(found)}: want a list of texts")
    texts = tuple(found)
    if other := [text for text in texts if not isinstance(text, str)]:
        raise wrong(remarks, f"remarks: {named(other[0])} is among them: want texts")
    return texts


def rows_of(method: Callable[..., Any], rows: Any) -> Mapping[str, Any]:
    """Return what `rows` or `reads` has returned; the rows themselves are checked against their tables.

    Raises
    ------
    WrongValue
    """
    if not isinstance(rows, Mapping):
        name = getattr(method, "__name__", "rows")
        raise wrong(method, f"{name}: returns {named(rows)}: want a dict of rows by table")
    return rows


def figures_of(evaluate: Callable[..., Any], figures: Any) -> dict[str, float]:
    """Return what `evaluate` has returned; figures need not be finite.

    Raises
    ------
    WrongValue
    """
    name = getattr(evaluate, "__name__", "evaluate")
    if not isinstance(figures, Mapping):
        raise wrong(evaluate, f"{name}: returns {named(figures)}: want a dict of numbers by name")
    for key in figures:
        if not isinstance(key, str):
            raise wrong(evaluate, f"{name}: {named(key)} is the name of a figure: want a text")
    try:
        # A whole number stays one.
        return {
            str(key): value if type(value) is int else number(f"{name}: {key!r}", value)
            for key, value in figures.items()
        }
    except WrongValue as error:
        raise wrong(evaluate, str(error)) from None


def predictions_of(predict: Callable[..., Any], values: Any, n_examples: int) -> NDArray[Any]:
    """Return what `predict` has returned: a number or a text, or a row of them, for each example.

    Raises
    ------
    WrongValue
    """
    try:
        found = np.asarray(values)
    except Exception:  # noqa: BLE001 - an object of the user's may raise anything
        raise wrong(predict, f"predict: returns {named(values)}: want a value for each example") from None
    if found.ndim not in (1, 2) or len(found) != n_examples:
        text = f"predict: returns values of shape {found.shape} for {n_examples} examples"
        raise wrong(predict, f"{text}: want one for each")
    if found.dtype.kind not in f"{_NUMBERS}U":
        raise wrong(predict, f"predict: returns values of {found.dtype}: want numbers or texts")
    return found
