"""Sets of rows (runs or sorted indices), their unions, and blocks of rows that were read.

A set of rows (`RowSet`) is a run, as a slice, or distinct rows in rising order. In a message a run takes no space, and
indices take eight bytes per row; if that is more than they save, a run that holds all the rows is sent instead.

A row that an update lacks does not change. In a full array that row is an addition of 0, which changes no number except
-0; no table begins with -0 (`initial_arrays`), and no sum that begins without -0 ends in it. So the bits of the model
do not depend on the form of an update.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.config import TableSpec

#: Rows of a table: a run (slice with start and stop, no step), or distinct indices in rising order (int64).
RowSet = slice | NDArray[np.int64]


Array = NDArray[np.generic]
#: Rows to read, by table; None for all of a table. A missing table is not read.
Wanted = Mapping[str, RowSet | None]

_INDEX_BYTES = 8
#: Maximum ratio of the length of a run to the number of rows it replaces in a sum; additions to a run are fast.
NEARLY = 1.25


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows of a table that were read; the full table if `rows` is None. Do not modify it."""

    rows: RowSet | None
    values: Array

    def has(self, wanted: RowSet | None) -> bool:
        """Return whether the block holds all the rows of `wanted` (None: of the table)."""
        if self.rows is None or wanted is None:
            return self.rows is None
        if count(wanted) == 0 or count(self.rows) == 0:
            return count(wanted) == 0
        low, high = span(wanted)
        first, end = span(self.rows)
        if not (first <= low and high <= end):
            return False
        if isinstance(self.rows, slice):
            return True
        positions = np.searchsorted(self.rows, indices(wanted))
        return bool(np.array_equal(self.rows[positions], indices(wanted)))

    def of(self, wanted: RowSet | None) -> Array:
        """Return the rows of `wanted`, all of which the block must hold, in order; a view if they are contiguous."""
        first = 0 if self.rows is None or not isinstance(self.rows, slice) else self.rows.start
        if wanted is None or wanted is self.rows:
            return self.values
        if count(wanted) == 0:
            return self.values[:0]
        if self.rows is None or isinstance(self.rows, slice):
            if isinstance(wanted, slice):
                return self.values[wanted.start - first : wanted.stop - first]
            return read_only(self.values[wanted - first])
        low, high = span(wanted)
        at, end = (int(position) for position in np.searchsorted(self.rows, (low, high)))
        if end - at == count(wanted):
            return self.values[at:end]
        return read_only(self.values[np.searchsorted(self.rows, indices(wanted))])


# -- sets of rows -------------------------------------------------------------------------------------------------


def count(rows: RowSet) -> int:
    """Return the number of rows."""
    return int(rows.stop - rows.start) if isinstance(rows, slice) else len(rows)


def span(rows: RowSet) -> tuple[int, int]:
    """Return the first row and the one after the last; the set must not be empty."""
    return (rows.start, rows.stop) if isinstance(rows, slice) else (int(rows[0]), int(rows[-1]) + 1)


def indices(rows: RowSet) -> NDArray[np.int64]:
    """Return the rows as an array of indices."""
    return np.arange(rows.start, rows.stop, dtype=np.int64) if isinstance(rows, slice) else rows


def same(left: RowSet, right: RowSet) -> bool:
    """Return whether both are the same rows, in the same form."""
    if isinstance(left, slice) or isinstance(right, slice):
        return (
            isinstance(left, slice)
            and isinstance(right, slice)
            and (left.start, left.stop) == (right.start, right.stop)
        )
    return left is right or bool(np.array_equal(left, right))


def named_bytes(rows: RowSet | None) -> int:
    """Return the bytes of the row indices in a message; 0 for a run, which is negligible."""
    return 0 if rows is None or isinstance(rows, slice) else _INDEX_BYTES * len(rows)


def row_bytes(table: TableSpec) -> int:
    """Return the size of one row, in bytes."""
    return table.n_cols * np.dtype(table.dtype).itemsize


def checked(rows: RowSet, table: TableSpec) -> RowSet:
    """Return `rows`, indices as int64, after checking them.

    Raises
    ------
    ValueError
        If they are not rows of `table`: a run without a step, or distinct indices in rising order.
    """
    if isinstance(rows, slice):
        low, high = rows.start, rows.stop
        if rows.step is None and low is not None and high is not None and 0 <= low <= high <= table.n_rows:
            return slice(int(low), int(high))
        raise ValueError(f"{rows} is not a run of the {table.n_rows} rows of table {table.name!r}")
    array = np.asarray(rows)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"rows of table {table.name!r}: want a slice or whole numbers in one dimension")
    array = array.astype(np.int64, copy=False)
    if len(array) and (array[0] < 0 or array[-1] >= table.n_rows or not bool((array[1:] > array[:-1]).all())):
        raise ValueError(f"rows of table {table.name!r}: want distinct ones of 0 to {table.n_rows - 1} in rising order")
    return array


def union(sets: Iterable[RowSet], a_row: int) -> RowSet:
    """Return the union of `sets`, or a run that holds it if that is smaller to send, at `a_row` bytes per row."""
    filled = [rows for rows in sets if count(rows)]
    if not filled:
        return slice(0, 0)
    spans = [span(rows) for rows in filled]
    low, high = min(first for first, _ in spans), max(end for _, end in spans)
    if len(filled) == 1 and isinstance(filled[0], slice):
        return filled[0]
    distinct = distinct_rows(filled)
    if (high - low) * a_row <= len(distinct) * (a_row + _INDEX_BYTES):
        return slice(low, high)
    return distinct


def distinct_rows(sets: Sequence[RowSet]) -> NDArray[np.int64]:
    """Return the union of the sets as distinct indices in rising order."""
    if len(sets) == 1:
        return indices(sets[0])
    every = np.concatenate([indices(rows) for rows in sets])
    every.sort(kind="stable")  # a merge of sorted runs
    fresh = np.ones(len(every), bool)
    np.not_equal(every[1:], every[:-1], out=fresh[1:])
    return every if fresh.all() else every[fresh]


def cut(rows: RowSet, low: int, high: int) -> RowSet:
    """Return the rows of [low, high), counted from `low`."""
    if isinstance(rows, slice):
        first = min(max(rows.start, low), high)
        return slice(first - low, max(first, min(rows.stop, high)) - low)
    at, end = np.searchsorted(rows, (low, high))
    return rows[at:end] - low


# -- arrays -------------------------------------------------------------------------------------------------------


def read_only(array: Array) -> Array:
    """Return a read-only view of `array`."""
    view = array.view()
    view.flags.writeable = False
    return view
