"""Updates of some rows of a table: cut, joined, added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from psengine.tables.row_sets import (
    NEARLY,
    Array,
    RowSet,
    count,
    cut,
    distinct_rows,
    indices,
    named_bytes,
    same,
    span,
)

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
    distinct = distinct_rows((one, other))
    return slice(low, high) if high - low <= NEARLY * len(distinct) else distinct


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
