"""Which partitions write each row of a partition-local table: a row that two of them write is an error.

Updates arrive summed by block of partitions, so that a row is known to belong to one of the block's partitions. Blocks
are subtrees: two that overlap are nested, and the row belongs to the inner one; two that do not, share no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from psengine.tables.row_sets import Array, RowSet, count, distinct_rows, first_shared, indices, same, span
from psengine.tables.row_updates import RowDelta, disjoint, joined
from psengine.tables.tree_sum import Delta, Subtree


class SharedRowError(ValueError):
    """Two partitions write one row of a table that is declared partition-local."""


class RowOwners:
    """The partitions that have written each row of some partition-local tables, in one shard.

    Parameters
    ----------
    ranges : mapping
        {table: half-open row range of the shard}.
    """

    def __init__(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        self._first = {name: low for name, (low, _) in ranges.items()}
        #: The block that is known to hold the owner of each row, as first partition and end.
        self._low = {name: np.zeros(high - low, np.int32) for name, (low, high) in ranges.items()}
        most = np.iinfo(np.int32).max
        self._high = {name: np.full(high - low, most, np.int32) for name, (low, high) in ranges.items()}
        #: {(table, block): rows of its last update}; the same rows need not be looked at again.
        self._seen: dict[tuple[str, Subtree], RowSet] = {}

    def note(self, block: Subtree, update: Delta) -> None:
        """Note the rows that a block of partitions writes.

        Raises
        ------
        SharedRowError
            If partitions outside the block have written one of them; the line names rows and partitions.
        """
        for name in self._first.keys() & update.keys():
            delta = update[name]
            rows = delta.rows if isinstance(delta, RowDelta) else slice(0, len(self._low[name]))
            before = self._seen.get((name, block))
            if before is None or not same(before, rows):
                self._note(name, block, rows)
                self._seen[name, block] = rows

    def _note(self, name: str, block: Subtree, rows: RowSet) -> None:
        low, high = np.maximum(self._low[name][rows], block[0]), np.minimum(self._high[name][rows], block[1])
        shared = np.flatnonzero(low >= high)
        if len(shared):
            found = indices(rows)[shared]
            first, end = int(self._low[name][found[0]]), int(self._high[name][found[0]])
            alike = (self._low[name][found] == first) & (self._high[name][found] == end)
            raise SharedRowError(shared_line(name, found[alike] + self._first[name], (first, end), block))
        self._low[name][rows], self._high[name][rows] = low, high


def shared_line(name: str, rows: NDArray[np.int64], one: Subtree, other: Subtree) -> str:
    """Return the line for `rows` of a partition-local table, in rising order, that two blocks of partitions write."""
    low, high = int(rows[0]), int(rows[-1])
    which = f"row {low} is" if low == high else f"{len(rows)} rows from {low} to {high} are"
    first, second = sorted((one, other))
    return (
        f"table {name!r}: {which} written by {_partitions(first)} and by {_partitions(second)}; with own=True each row "
        "belongs to one partition: give each other rows, or leave out own"
    )


def _partitions(block: Subtree) -> str:
    low, high = block
    return f"partition {low}" if high - low == 1 else f"one of partitions {low} to {high - 1}"


def join_own(name: str, updates: Mapping[int, Array | RowDelta], n_rows: int) -> Array | RowDelta:
    """Return the updates of a partition-local table, by partition, as one update of exactly their rows.

    Raises
    ------
    SharedRowError
        If two of the partitions write one row.
    """
    parts = sorted(updates)
    if len(parts) == 1:
        return updates[parts[0]]
    pieces: dict[int, RowDelta] = {}
    for part in parts:
        delta = updates[part]
        pieces[part] = delta if isinstance(delta, RowDelta) else RowDelta(slice(0, n_rows), delta)
    filled = sorted((part for part in parts if count(pieces[part].rows)), key=lambda part: span(pieces[part].rows))
    in_order = [pieces[part] for part in filled]
    if not in_order:
        return pieces[parts[0]]
    if disjoint(in_order):
        return joined(in_order)
    rows = np.concatenate([indices(piece.rows) for piece in in_order])
    order = np.argsort(rows, kind="stable")
    if len(distinct_rows([piece.rows for piece in in_order])) < len(rows):
        _refuse_shared(name, filled, in_order)
    return RowDelta(rows[order], np.concatenate([piece.values for piece in in_order])[order])


def _refuse_shared(name: str, parts: Sequence[int], pieces: Sequence[RowDelta]) -> None:
    for at, (part, piece) in enumerate(zip(parts, pieces, strict=True)):
        for other, before in zip(parts[:at], pieces[:at], strict=True):
            if first_shared(piece.rows, before.rows) is not None:
                shared = np.intersect1d(indices(piece.rows), indices(before.rows), assume_unique=True)
                raise SharedRowError(shared_line(name, shared, (other, other + 1), (part, part + 1)))
