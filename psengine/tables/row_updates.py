"""Updates of some rows of a table (`RowDelta`): cutting, joining, adding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from proteus_spot.psengine.tables.row_sets import (
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

#: Bytes of scattered rows that are updated at a time.
_CACHED_BYTES = 1 << 17
#: Number of rows sampled to decide whether an update is scanned for empty rows.
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
        """Size of the update in a message, in bytes."""
        return self.values.nbytes + named_bytes(self.rows)


def cut_delta(delta: RowDelta, low: int, high: int) -> RowDelta | None:
    """Return the part of `delta` for the rows [low, high), counted from `low`; None if it has none of them."""
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
        if end - first == len(rows):  # the rows of one shard may be a run
            rows = slice(first, end)
    return RowDelta(rows, delta.values[at : at + count(rows)])


def add_rows(array: Array, delta: RowDelta) -> None:
    """Add `delta` to `array`, a full table or shard, in place and in the type of `array`."""
    rows, values = delta.rows, delta.values
    if isinstance(rows, slice):
        view = array[rows]
        np.add(view, values, out=view, dtype=array.dtype, casting="same_kind")
        return
    step = max(1, _CACHED_BYTES // max(1, values[:1].nbytes))
    for low in range(0, len(rows), step):  # gathered, updated and written back while it is in the cache
        chunk = rows[low : low + step]
        array[chunk] = np.add(array[chunk], values[low : low + step], dtype=array.dtype, casting="same_kind")


def added(array: Array, update: Array | RowDelta, out: Array | None = None) -> Array:
    """Return `array` plus `update`, in the type of `array`; all updates of tables are added by this function.

    The result is a new array, or `out`, which has the shape and type of `array`.
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
    """Return the sum of two updates; a row that one of them lacks is taken from the other.

    If nearly all rows of a run are in one of them, the sum is of the full run, with 0 in the rows between.

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
        rows = _union(left.rows, right.rows)
        values = np.zeros((count(rows), *left.values.shape[1:]), dtype)
        values[_positions(left.rows, rows)] = left.values
    add_rows(values, RowDelta(_positions(right.rows, rows), right.values))
    return RowDelta(rows, values)


def _within(rows: RowSet, run: RowSet) -> bool:
    """Return whether `rows`, which are not empty, lie in a run."""
    low, high = span(rows)
    return isinstance(run, slice) and bool(run.start <= low and high <= run.stop)


def _union(left: RowSet, right: RowSet) -> RowSet:
    """Return the rows of both sets, or a run with few more."""
    (first, end), (low, high) = span(left), span(right)
    low, high = min(first, low), max(end, high)
    most = count(left) + count(right)
    if isinstance(left, slice) and isinstance(right, slice) and high - low <= most:
        return slice(low, high)
    distinct = distinct_rows((left, right))
    return slice(low, high) if high - low <= NEARLY * len(distinct) else distinct


def _positions(rows: RowSet, among: RowSet) -> RowSet:
    """Return the positions of `rows` in `among`, which holds them all."""
    if isinstance(among, slice):
        return (
            slice(rows.start - among.start, rows.stop - among.start) if isinstance(rows, slice) else rows - among.start
        )
    if isinstance(rows, slice):
        at = int(np.searchsorted(among, rows.start))
        return slice(at, at + count(rows))
    return np.searchsorted(among, rows)


def smaller(update: Array | RowDelta, n_rows: int) -> Array | RowDelta:
    """Return `update` in the smaller form: all the `n_rows` rows of its table, or only its non-empty rows.

    A full array is scanned for empty rows only if at least half of a sample of its rows are empty.
    """
    if isinstance(update, RowDelta):
        if update.nbytes < n_rows * (update.values.nbytes // max(count(update.rows), 1)):
            return update
        array = np.zeros((n_rows, *update.values.shape[1:]), update.values.dtype)
        array[update.rows] = update.values
        return array
    if len(update) == 0:
        return update
    sample = update[:: max(1, n_rows // _SAMPLE)]
    if 2 * np.count_nonzero(sample.any(axis=1)) > len(sample):
        return update
    found = np.flatnonzero(update.any(axis=1)).astype(np.int64, copy=False)
    low, high = span(found) if len(found) else (0, 0)
    rows: RowSet = slice(low, high) if high - low == len(found) else found
    if named_bytes(rows) + update[:1].nbytes * len(found) >= update.nbytes:
        return update
    return RowDelta(rows, update[rows])


def combined(first: Array | RowDelta, second: Array | RowDelta) -> Array | RowDelta:
    """Return two updates of one table as one; neither is modified."""
    if isinstance(first, RowDelta) and isinstance(second, RowDelta):
        if count(first.rows) == 0 or count(second.rows) == 0:
            return first if count(first.rows) else second
        return plus(first, second)
    if isinstance(first, RowDelta):
        first, second = second, first
    assert not isinstance(first, RowDelta)
    values = second.values if isinstance(second, RowDelta) else second
    return added(first.astype(np.result_type(first, values), copy=False), second)
