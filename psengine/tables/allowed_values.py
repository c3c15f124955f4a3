"""The values that a table takes, from an application and in a sum: what is cast to its type, and what is refused.

| into a table of | go | is refused |
|---|---|---|
| floats | floats of any size, whole numbers, bool as 0 and 1 | what is too large for its type |
| whole numbers | whole numbers that its type holds, bool as 0 and 1 | the rest, and updates of floats |

Initial values of a table of whole numbers may be floats that are whole, as `np.zeros` makes them.

Complex numbers, texts, objects and arrays with a mask are refused. Numbers that are not finite are, unless a job allows
them. All sums are of updates in the type of their table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.tables.row_sets import Array, RowSet, count, indices, span
from proteus_spot.psengine.tables.row_updates import RowDelta

#: Kinds of NumPy types that are numbers.
_NUMBERS = "biuf"
#: What is wanted where numbers are not finite.
WANT_FINITE = "want finite numbers, or `nan: allow` in the job"


class WrongValue(ValueError):
    """What an application has returned or added is not allowed; the message is one line that says what is.

    Attributes
    ----------
    place : str
        File and line of the function that has returned it, as ``mine.py:12``; empty where that is not known.
    """

    place = ""


class WrongSum(WrongValue):
    """A sum that a table does not hold: its table, the first row, why, and the clock if it is known."""

    def __init__(self, table: str, row: int, why: str, clock: int = 0) -> None:
        super().__init__(table, row, why, clock)
        self.table, self.row, self.why, self.clock = table, row, why, clock

    def __str__(self) -> str:
        """Return it as one line."""
        clock = f", clock {self.clock}" if self.clock else ""
        return f"table {self.table!r}, row {self.row}{clock}: {self.why}"


def as_update(table: TableSpec, update: Any, rows: RowSet | None, finite: bool = True) -> Array:
    """Return an update of some rows of a table, or of all, in the type of the table.

    Raises
    ------
    WrongValue
        If it is not an array, has another shape than the rows, or holds what the table does not take.
    """
    what = f"the update of table {table.name!r}"
    wanted = (table.n_rows if rows is None else count(rows), table.n_cols)
    if not isinstance(update, np.ndarray):
        raise WrongValue(f"{what} is a {type(update).__name__}: want a NumPy array of shape {wanted}")
    if update.shape != wanted:
        raise WrongValue(f"{what} is {update.shape}: want {wanted}")
    if np.dtype(table.dtype).kind in "iu" and update.dtype.kind == "f":
        raise WrongValue(f"{what} is of {update.dtype}: the table is of {table.dtype}; round and cast it")
    return _cast(what, "holds", table, update, rows, finite)


def as_initial(table: TableSpec, values: Any, rows: tuple[int, int], finite: bool = True) -> Array:
    """Return the initial values of a half-open range of rows, contiguous and in the type of the table.

    Raises
    ------
    WrongValue
        If they are not exactly these rows, or the table does not take them.
    """
    low, high = rows
    what, wanted = f"initial: rows {low} to {high - 1} of table {table.name!r}", (high - low, table.n_cols)
    if not isinstance(values, np.ndarray):
        try:
            values = np.asarray(values)
        except Exception:  # noqa: BLE001 - an object of the user's may raise anything
            raise WrongValue(f"{what} are a {type(values).__name__}: want an array of shape {wanted}") from None
    if values.shape != wanted:
        raise WrongValue(f"{what} are of shape {values.shape}: want {wanted}")
    return np.ascontiguousarray(_cast(what, "hold", table, values, slice(low, high), finite))


def _cast(what: str, holds: str, table: TableSpec, values: NDArray[Any], rows: RowSet | None, finite: bool) -> Array:
    dtype = np.dtype(table.dtype)
    if values.dtype.kind not in _NUMBERS:
        raise WrongValue(f"{what}: an array of {values.dtype}; the table is of {table.dtype}; want numbers")
    if isinstance(values, np.ma.MaskedArray):
        raise WrongValue(f"{what}: a masked array; want a plain one, as `filled(0)` returns it")
    values = np.asarray(values)
    if dtype.kind in "iu" and not np.can_cast(values.dtype, dtype):
        limits = np.iinfo(dtype)
        if values.dtype.kind == "f":  # the largest number may be rounded up as a float
            fits = (values >= float(limits.min)) & (values < float(limits.max) + 1.0) & (values == np.trunc(values))
        else:
            fits = (values >= limits.min) & (values <= limits.max)
        if not fits.all():
            want = f"want whole numbers from {limits.min} to {limits.max}, as {table.dtype} holds them"
            raise WrongValue(f"{what} {holds} {_first(values, ~fits, rows)}: {want}")
    if values.dtype == dtype:
        cast: Array = values
    else:
        with np.errstate(over="ignore"):
            cast = values.astype(dtype)
    if finite and dtype.kind == "f" and not (fits := np.isfinite(cast)).all():
        lost = ~fits & np.isfinite(values)
        if lost.any():
            raise WrongValue(f"{what} {holds} {_first(values, lost, rows)}: {table.dtype} does not hold that")
        raise WrongValue(f"{what} {holds} {_first(values, ~fits, rows)}: {WANT_FINITE}")
    return cast


def _first(values: NDArray[Any], wrong: NDArray[np.bool_], rows: RowSet | None) -> str:
    """Return the first wrong value, and its place in the table."""
    row, column = (int(at) for at in np.argwhere(wrong)[0])
    number = row if rows is None else int(indices(rows)[row])
    return f"{values[row, column]} in row {number}, column {column}"


def check_sum(table: str, updates: Sequence[Array | RowDelta], before: Array | None = None) -> None:
    """Check that the sum of updates of one table fits its type, if that is one of whole numbers.

    Mostly the largest numbers show that nothing overflows; else the sum is made in a wider type.

    Parameters
    ----------
    before : ndarray, optional
        The table that they are added to; without it, only the sum of the updates is looked at.

    Raises
    ------
    WrongSum
    """
    every = [update.values if isinstance(update, RowDelta) else update for update in updates]
    if not every or every[0].dtype.kind not in "iu":
        return
    dtype = every[0].dtype
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    parts = [(update.rows, update.values) if isinstance(update, RowDelta) else (None, update) for update in updates]
    if before is not None:
        parts.append((None, before))
    low = sum(min(0, int(values.min())) for _, values in parts if values.size)
    high = sum(max(0, int(values.max())) for _, values in parts if values.size)
    if limits.min <= low and high <= limits.max:
        return
    wide = np.dtype(np.int64 if dtype.itemsize < 8 else object)
    n_rows = max(len(values) if rows is None else span(rows)[1] for rows, values in parts if len(values))
    total = np.zeros((n_rows, *parts[0][1].shape[1:]), wide)
    for rows, values in parts:
        total[slice(0, len(values)) if rows is None else rows] += values.astype(wide)
    fits = (total >= limits.min) & (total <= limits.max)
    if not fits.all():
        row = int(np.argwhere(~fits)[0][0])
        why = f"the sum does not fit {dtype}: give the table a larger type, or add less"
        raise WrongSum(table, row, why)


def check_finite(table: str, values: Array) -> None:
    """Check that all numbers of a table after a clock are finite.

    Raises
    ------
    WrongSum
    """
    if values.dtype.kind == "f" and not (fits := np.isfinite(values)).all():
        row, column = (int(at) for at in np.argwhere(~fits)[0])
        raise WrongSum(table, row, f"the sum is {values[row, column]}: {WANT_FINITE}")
