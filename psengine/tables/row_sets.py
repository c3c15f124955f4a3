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
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from psengine.apps.base import RowSet
from psengine.config import TableSpec

Array = NDArray[np.generic]
#: Rows of tables that are to be read, by table; None for all of a table. A table that is left out is not read.
Wanted = Mapping[str, RowSet | None]

_INDEX_BYTES = 8
#: how much longer a run may be than the rows for which it stands in a sum: what is added to it later is quick to add
_NEARLY = 1.25
#: size of what is added at one time to rows that do not lie side by side
_CACHED_BYTES = 1 << 17
#: rows that are looked at before an update is searched for empty ones
_SAMPLE = 64


@dataclass(frozen=True, eq=False)
class RowDelta:
    """An addition to some rows of a table.

    Attributes
    ----------
    rows : slice or ndarray of int64, shape (n,)
        Rows of the table, or of the part of it that lies in one shard.
    values : ndarray, shape (n, n_cols)
    """

    rows: RowSet
    values: Array

    @property
    def nbytes(self) -> int:
        """What it takes to send it, in bytes."""
        return self.values.nbytes + named_bytes(self.rows)


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
    distinct = _distinct(some)
    if (high - low) * a_row <= len(distinct) * (a_row + _INDEX_BYTES):
        return slice(low, high)
    return distinct


def _distinct(some: Sequence[RowSet]) -> NDArray[np.int64]:
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


def cut_delta(delta: RowDelta, low: int, high: int) -> RowDelta | None:
    """Return what `delta` adds to the rows of [low, high), counted from `low`; None where that is nothing."""
    rows = cut(delta.rows, low, high)
    if count(rows) == 0:
        return None
    if isinstance(delta.rows, slice) or isinstance(rows, slice):
        assert isinstance(delta.rows, slice)
        assert isinstance(rows, slice)
        at = rows.start + low - delta.rows.start
    else:
        at = int(np.searchsorted(delta.rows, low))
        first, end = span(rows)
        if end - first == len(rows):  # of rows that lie apart, a shard may have some that do not
            rows = slice(first, end)
    return RowDelta(rows, delta.values[at : at + count(rows)])


def add_rows(array: Array, delta: RowDelta) -> None:
    """Add `delta` to `array`, the whole table or shard, in the type of `array`."""
    rows, values = delta.rows, delta.values
    if isinstance(rows, slice):
        there = array[rows]
        np.add(there, values, out=there, dtype=array.dtype, casting="same_kind")
        return
    step = max(1, _CACHED_BYTES // max(1, values[:1].nbytes))
    for low in range(0, len(rows), step):  # what is gathered, added to and put back stays in the cache
        some = rows[low : low + step]
        array[some] = np.add(array[some], values[low : low + step], dtype=array.dtype, casting="same_kind")


def added(array: Array, update: Array | RowDelta, out: Array | None = None) -> Array:
    """Return an array with `update` added to the rows it has, in the type of `array`: the one way in which tables grow.

    It is a new one, or `out`, which is like `array`.
    """
    if isinstance(update, RowDelta):
        rows = update.rows
        total = np.empty_like(array) if out is None else out
        if isinstance(rows, slice):  # each row is written once
            total[: rows.start], total[rows.stop :] = array[: rows.start], array[rows.stop :]
            np.add(array[rows], update.values, out=total[rows], dtype=array.dtype, casting="same_kind")
        else:
            total[:] = array
            add_rows(total, update)
        return total
    grown: Array = np.add(array, update, out=out, dtype=array.dtype, casting="same_kind")
    return grown


def joined(pieces: Sequence[RowDelta]) -> RowDelta:
    """Return disjoint updates, in rising order, as one."""
    if len(pieces) == 1:
        return pieces[0]
    values = np.concatenate([piece.values for piece in pieces])
    runs = [piece.rows for piece in pieces if isinstance(piece.rows, slice)]
    if len(runs) == len(pieces) and all(a.stop == b.start for a, b in pairwise(runs)):
        return RowDelta(slice(runs[0].start, runs[-1].stop), values)
    return RowDelta(np.concatenate([indices(piece.rows) for piece in pieces]), values)


def disjoint(pieces: Sequence[RowDelta]) -> bool:
    """Return whether each of `pieces` ends before the next one begins."""
    return all(span(a.rows)[1] <= span(b.rows)[0] for a, b in pairwise(pieces))


def plus(left: RowDelta, right: RowDelta, ours: bool = False) -> RowDelta:
    """Return the sum of two updates; a row that one of them lacks is that of the other.

    Where nearly all rows of a run are in one of them, it is of the whole run, 0 in the rows between.

    Parameters
    ----------
    ours : bool
        Whether the values of `left` may be written to.
    """
    dtype = np.result_type(left.values, right.values)
    if same(left.rows, right.rows):
        into = left.values if ours and left.values.dtype == dtype else None
        return RowDelta(left.rows, np.add(left.values, right.values, out=into))
    if ours and left.values.dtype == dtype and _within(right.rows, left.rows):
        rows, values = left.rows, left.values
    else:
        rows = _both(left.rows, right.rows)
        values = np.zeros((count(rows), *left.values.shape[1:]), dtype)
        values[_places(left.rows, rows)] = left.values
    add_rows(values, RowDelta(_places(right.rows, rows), right.values))
    return RowDelta(rows, values)


def _within(rows: RowSet, run: RowSet) -> bool:
    """Return whether `rows`, one at least, lie in a run."""
    low, high = span(rows)
    return isinstance(run, slice) and bool(run.start <= low and high <= run.stop)


def _both(one: RowSet, other: RowSet) -> RowSet:
    """Return the rows of either, or a run with few more."""
    (first, end), (low, high) = span(one), span(other)
    low, high = min(first, low), max(end, high)
    most = count(one) + count(other)
    if isinstance(one, slice) and isinstance(other, slice) and high - low <= most:
        return slice(low, high)
    distinct = _distinct((one, other))
    return slice(low, high) if high - low <= _NEARLY * len(distinct) else distinct


def _places(rows: RowSet, among: RowSet) -> RowSet:
    """Return where `rows` are in `among`, which holds them all."""
    if isinstance(among, slice):
        return (
            slice(rows.start - among.start, rows.stop - among.start) if isinstance(rows, slice) else rows - among.start
        )
    if isinstance(rows, slice):
        at = int(np.searchsorted(among, rows.start))
        return slice(at, at + count(rows))
    return np.searchsorted(among, rows)


def smaller(update: Array | RowDelta, n_rows: int) -> Array | RowDelta:
    """Return `update` in the form that is less to send: all the `n_rows` rows of its table, or some of them.

    A whole one is searched for empty rows only if most of a few that are looked at first are empty.
    """
    if isinstance(update, RowDelta):
        if update.nbytes < n_rows * (update.values.nbytes // max(count(update.rows), 1)):
            return update
        whole = np.zeros((n_rows, *update.values.shape[1:]), update.values.dtype)
        whole[update.rows] = update.values
        return whole
    if len(update) == 0:
        return update
    look = update[:: max(1, n_rows // _SAMPLE)]
    if 2 * np.count_nonzero(look.any(axis=1)) > len(look):
        return update
    rows = np.flatnonzero(update.any(axis=1)).astype(np.int64, copy=False)
    low, high = span(rows) if len(rows) else (0, 0)
    some: RowSet = slice(low, high) if high - low == len(rows) else rows
    if named_bytes(some) + update[:1].nbytes * len(rows) >= update.nbytes:
        return update
    return RowDelta(some, update[some])


def read_only(array: Array) -> Array:
    """Return a view of `array` that cannot be written to, not even by mistake."""
    view = array.view()
    view.flags.writeable = False
    return view
