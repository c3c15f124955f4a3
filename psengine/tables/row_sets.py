"""Some rows of tables: sets of rows, updates of some rows alone, and which form of them is the smallest. Pure.

A set of rows (`RowSet`) is a run, as a slice, or distinct rows in rising order. A run costs nothing to name; named one by
one, rows cost eight bytes each, and where that is more than what they spare, a run that holds them all travels instead.

A row that an update lacks has nothing added. In whole arrays that is the addition of 0, which leaves every number as it
is but -0; no table begins with one (`initial_arrays`), and no sum that begins without one ends in one. So the form of an
update does not show in the bits of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psengine.config import TableSpec

#: Runs of rows, by table: the first one, and the one after the last.
Runs = Mapping[str, tuple[int, int]]


#: Rows of a table: a run of them (start and stop given, no step), or distinct ones in rising order (int64).
RowSet = slice | NDArray[np.int64]


Array = NDArray[np.generic]
#: Rows of tables that are to be read, by table; None for all of a table. A table that is left out is not read.
Wanted = Mapping[str, RowSet | None]

_INDEX_BYTES = 8
#: how much longer a run may be than the rows for which it stands in a sum: what is added to it later is quick to add
NEARLY = 1.25


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some rows of a table as they were read; the whole of it where `rows` is None. Not to be written to."""

    rows: RowSet | None
    values: Array

    def has(self, wanted: RowSet | None) -> bool:
        """Return whether all the rows of `wanted` (None: of the table) are here."""
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
        there = np.searchsorted(self.rows, indices(wanted))
        return bool(np.array_equal(self.rows[there], indices(wanted)))

    def of(self, wanted: RowSet | None) -> Array:
        """Return the rows of `wanted`, all of which are here, in order; a view where they lie side by side."""
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
        at, end = (int(place) for place in np.searchsorted(self.rows, (low, high)))
        if end - at == count(wanted):
            return self.values[at:end]
        return read_only(self.values[np.searchsorted(self.rows, indices(wanted))])


# -- sets of rows -------------------------------------------------------------------------------------------------


def count(rows: RowSet) -> int:
    """Return how many rows there are."""
    return int(rows.stop - rows.start) if isinstance(rows, slice) else len(rows)


def span(rows: RowSet) -> tuple[int, int]:
    """Return the first row and the one after the last; there is one at least."""
    return (rows.start, rows.stop) if isinstance(rows, slice) else (int(rows[0]), int(rows[-1]) + 1)


def indices(rows: RowSet) -> NDArray[np.int64]:
    """Return the rows one by one."""
    return np.arange(rows.start, rows.stop, dtype=np.int64) if isinstance(rows, slice) else rows


def same(one: RowSet, other: RowSet) -> bool:
    """Return whether both are the same rows, given in the same way."""
    if isinstance(one, slice) or isinstance(other, slice):
        return (
            isinstance(one, slice) and isinstance(other, slice) and (one.start, one.stop) == (other.start, other.stop)
        )
    return one is other or bool(np.array_equal(one, other))


def named_bytes(rows: RowSet | None) -> int:
    """Return what it takes to name the rows in a message; nothing worth counting for a run."""
    return 0 if rows is None or isinstance(rows, slice) else _INDEX_BYTES * len(rows)


def row_bytes(table: TableSpec) -> int:
    """Return the size of one row."""
    return table.n_cols * np.dtype(table.dtype).itemsize


def checked(rows: RowSet, table: TableSpec) -> RowSet:
    """Return `rows` as int64 or as they are.

    Raises
    ------
    ValueError
        When they are not rows of `table`: a run without a step, or distinct ones in rising order.
    """
    if isinstance(rows, slice):
        low, high = rows.start, rows.stop
        if rows.step is None and low is not None and high is not None and 0 <= low <= high <= table.n_rows:
            return slice(int(low), int(high))
        raise ValueError(f"{rows} is no run of the {table.n_rows} rows of table {table.name!r}")
    array = np.asarray(rows)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"rows of table {table.name!r}: want a slice or whole numbers in one dimension")
    array = array.astype(np.int64, copy=False)
    if len(array) and (array[0] < 0 or array[-1] >= table.n_rows or not bool((array[1:] > array[:-1]).all())):
        raise ValueError(f"rows of table {table.name!r}: want distinct ones of 0 to {table.n_rows - 1} in rising order")
    return array


def union(sets: Iterable[RowSet], a_row: int) -> RowSet:
    """Return rows that hold all of `sets`; a run that holds more where that is less to send, at `a_row` bytes a row."""
    some = [rows for rows in sets if count(rows)]
    if not some:
        return slice(0, 0)
    spans = [span(rows) for rows in some]
    low, high = min(first for first, _ in spans), max(end for _, end in spans)
    if len(some) == 1 and isinstance(some[0], slice):
        return some[0]
    distinct = distinct_rows(some)
    if (high - low) * a_row <= len(distinct) * (a_row + _INDEX_BYTES):
        return slice(low, high)
    return distinct


def distinct_rows(some: Sequence[RowSet]) -> NDArray[np.int64]:
    """Return the rows that are in any of the sets, once each, in rising order."""
    if len(some) == 1:
        return indices(some[0])
    every = np.concatenate([indices(rows) for rows in some])
    every.sort(kind="stable")  # it merges what is in order already
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


# -- updates ------------------------------------------------------------------------------------------------------


def read_only(array: Array) -> Array:
    """Return a view of `array` that cannot be written to, not even by mistake."""
    view = array.view()
    view.flags.writeable = False
    return view
