"""Tables of counts with their rows in the smaller form: the entries that are not 0, or all of them.

Most counts of a row of `word_topic` are 0 once the topics of a word have settled. Only whole numbers are stored in this
form, so that rows are read with the bits of the full array. Entries are of the narrowest type that holds them all.

Source: Litz (2017), 4.3: the memory of the servers falls as the counts turn sparse. The paper gives no format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.tables.row_sets import Array, RowSet, count, cut
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.tree_sum import Delta

#: Maximum size of the sparse form, as a share of the full array: a smaller saving is not worth unpacking.
WORTH = 0.75
#: Minimum size of an array, in bytes.
_LEAST_BYTES = 4096


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of whole numbers, each in its smaller form. It is never written to.

    Attributes
    ----------
    dtype : type of the full array.
    shape : (rows, columns) of the full array.
    starts : ndarray, shape (rows + 1,)
        Entries of row r are `columns` and `values` from `starts[r]` to `starts[r + 1]`; none for a full row.
    full : ndarray of int64, shape (n,)
        Rows that are full, in rising order; `full_values` (n, columns) holds them.
    """

    dtype: np.dtype[np.generic]
    shape: tuple[int, int]
    starts: Array
    columns: Array
    values: Array
    full: NDArray[np.int64]
    full_values: Array

    @property
    def nbytes(self) -> int:
        """Size in memory, in bytes."""
        return sum(array.nbytes for array in (self.starts, self.columns, self.values, self.full, self.full_values))

    @property
    def full_bytes(self) -> int:
        """Size of the full array, in bytes."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def __getitem__(self, rows: RowSet) -> Array:
        """Return rows as a full array: a run, or some in rising order."""
        if isinstance(rows, slice):
            low, high, _ = rows.indices(len(self))
            out = np.empty((max(0, high - low), self.shape[1]), self.dtype)
            if len(out):
                self.write_to(out, low)
            return out
        out = np.zeros((len(rows), self.shape[1]), self.dtype)
        first = self.starts[rows].astype(np.int64)
        lengths = self.starts[rows + 1].astype(np.int64) - first
        ends = np.cumsum(lengths)
        entries = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - lengths), lengths)
        out[np.repeat(np.arange(len(rows)), lengths), self.columns[entries]] = self.values[entries]
        at = np.searchsorted(self.full, rows)
        found = at < len(self.full)
        found[found] = self.full[at[found]] == rows[found]
        out[found] = self.full_values[at[found]]
        return out

    def write_to(self, out: Array, low: int = 0) -> None:
        """Write the rows from `low` on to `out`, as many as it has."""
        high = low + len(out)
        out[...] = 0
        first, end = int(self.starts[low]), int(self.starts[high])
        row = np.repeat(np.arange(len(out)), self._lengths(low, high))
        out[row, self.columns[first:end]] = self.values[first:end]
        at, until = np.searchsorted(self.full, (low, high))
        out[self.full[at:until] - low] = self.full_values[at:until]

    def _lengths(self, low: int, high: int) -> NDArray[np.int64]:
        starts = self.starts[low : high + 1].astype(np.int64)
        return starts[1:] - starts[:-1]


@dataclass(frozen=True, eq=False)
class SparseUpdate:
    """An update of all rows of a table, or of `rows`, with its values in the sparse form."""

    rows: RowSet | None
    values: SparseRows

    @property
    def full(self) -> Array | RowDelta:
        """The update as it was before."""
        values = self.values[:]
        return values if self.rows is None else RowDelta(self.rows, values)

    def within(self, low: int, high: int) -> Array | RowDelta | None:
        """Return the update as it was before; of a run only the rows of [low, high); None if it has none of them."""
        if self.rows is None:
            return self.full
        if not isinstance(self.rows, slice):
            return self.full if count(cut(self.rows, low, high)) else None
        first, end = max(low, self.rows.start), min(high, self.rows.stop)
        if first >= end:
            return None
        return RowDelta(slice(first, end), self.values[first - self.rows.start : end - self.rows.start])


#: Rows of a shard, by table.
Tables = dict[str, Array | SparseRows]
#: As `Delta`.
CompactDelta = Mapping[str, Array | RowDelta | SparseUpdate]


def compact(array: Array) -> Array | SparseRows:
    """Return an array in the sparse form if that is smaller by a quarter at least, and it is of whole numbers."""
    if array.ndim != 2 or array.dtype.kind not in "iu" or array.nbytes < _LEAST_BYTES or array.shape[1] < 2:
        return array
    n_rows, n_cols = array.shape
    present = array != 0
    flat = np.flatnonzero(present)  # the only look at each entry: what follows looks at those that are not 0
    starts = np.searchsorted(flat, n_cols * np.arange(n_rows + 1))
    counts, entries = np.diff(starts), array.reshape(-1)[flat]
    low, high = (min(entries.min(), 0), max(entries.max(), 0)) if len(entries) else (0, 0)
    value_type = np.result_type(np.min_scalar_type(low), np.min_scalar_type(high))
    column_type, start_type = np.min_scalar_type(n_cols - 1), np.min_scalar_type(len(flat))
    if value_type.kind not in "iu" or value_type.itemsize > array.dtype.itemsize:
        value_type = array.dtype  # NumPy joins a signed type and uint64 to a float
    is_full = counts * (column_type.itemsize + value_type.itemsize) >= n_cols * value_type.itemsize
    n_entries, n_full = int(counts[~is_full].sum()), int(is_full.sum())
    size = n_entries * (column_type.itemsize + value_type.itemsize) + n_full * (n_cols * value_type.itemsize + 8)
    if size + (n_rows + 1) * start_type.itemsize > WORTH * array.nbytes:
        return array
    full = np.flatnonzero(is_full)
    if n_full:
        is_listed = np.repeat(~is_full, counts)
        flat, entries = flat[is_listed], entries[is_listed]
        counts[is_full] = 0
        starts = np.concatenate([[0], np.cumsum(counts)])
    return SparseRows(
        array.dtype,
        (n_rows, n_cols),
        starts.astype(start_type),
        (flat % n_cols).astype(column_type),
        entries.astype(value_type),
        full,
        array[full].astype(value_type),
    )


def compact_delta(update: Delta) -> CompactDelta:
    """Return an update with its values in the smaller form."""
    return {name: _compact_update(rows) for name, rows in update.items()}


def _compact_update(update: Array | RowDelta) -> Array | RowDelta | SparseUpdate:
    before = update.values if isinstance(update, RowDelta) else update
    values = compact(before)
    rows = update.rows if isinstance(update, RowDelta) else None
    if isinstance(values, SparseRows):
        return SparseUpdate(rows, values)
    if isinstance(before.base, np.ndarray) and before.base.nbytes > before.nbytes:
        values = before.copy()  # a view of a part would hold the update of all shards
        return values if rows is None else RowDelta(rows, values)
    return update


def full(table: Array | SparseRows) -> Array:
    """Return a table as a full array."""
    return table[:] if isinstance(table, SparseRows) else table


def full_update(update: Array | RowDelta | SparseUpdate) -> Array | RowDelta:
    """Return an update of one table with full values."""
    return update.full if isinstance(update, SparseUpdate) else update


def full_bytes(rows: Array | RowDelta | SparseRows | SparseUpdate) -> int:
    """Return the size of a table or of an update of one as full values, in bytes."""
    values = rows.values if isinstance(rows, SparseUpdate) else rows
    return values.full_bytes if isinstance(values, SparseRows) else values.nbytes
