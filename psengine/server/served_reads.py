"""Rows that tasks have read ahead of a commit, and updates that come too late for such a read.

A task that reads "rows" with `Task.after` waits for the tasks that it names. If another one of an earlier group changes
a row after it was read, the model depends on which of the two messages came first: the driver has forgotten to name it.

Source: none; in Litz (2017), 3.1, the driver dispatches a task when those that it depends on are complete.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.protocol.moved_state import ServedRead
from proteus_spot.psengine.tables.row_sets import Array, RowSet, count, cut, indices, span
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.tree_sum import Delta

_NONE = np.zeros(0, np.int64)


class LateUpdateError(Exception):
    """An update of rows that a task of a later group has read without it; the message names tasks and rows."""


class ServedReads:
    """Reads of one shard that updates of earlier groups may still come too late for.

    Attributes
    ----------
    fault : str
        What the first late update was; "" without one.
    """

    def __init__(self, reads: Sequence[ServedRead] = ()) -> None:
        self.fault = ""
        self._reads = list(reads)

    def note(self, read: ServedRead) -> None:
        """Note a read that is answered now."""
        self._reads.append(read)

    def drop(self, committed: int) -> None:
        """Drop the reads that no update can be late for once `committed` is the last committed group."""
        self._reads = [read for read in self._reads if read.group > committed + 1]

    def pending(self) -> tuple[ServedRead, ...]:
        """Return the reads that updates may be late for."""
        return tuple(self._reads)

    def check(self, group: int, writers: Collection[int], update: Delta, first_rows: Mapping[str, int]) -> None:
        """Check the first update of some partitions in a group against the reads of later groups.

        Parameters
        ----------
        first_rows : mapping
            {table: number of the shard's first row}.

        Raises
        ------
        LateUpdateError
            If it changes a row that was read.
        """
        for read in self._reads:
            for table, rows in read.rows.items() if read.group > group else ():
                changed = _changed(rows, update[table]) if table in update else _NONE
                if len(changed):
                    self.fault = (
                        f"{_task_of(read.readers)} in group {read.group} has read "
                        f"{_rows(changed + first_rows.get(table, 0))} of table {table!r} before "
                        f"{_task_of(sorted(writers))} in group {group} has changed them: the driver has to name that "
                        "partition in `after`"
                    )
                    raise LateUpdateError(self.fault)


def _task_of(partitions: Sequence[int]) -> str:
    if len(partitions) == 1:
        return f"the task of partition {partitions[0]}"
    return f"one of the tasks of partitions {', '.join(map(str, partitions))}"


def _rows(numbers: NDArray[np.int64]) -> str:
    low, high = int(numbers[0]), int(numbers[-1])
    return f"row {low}" if low == high else f"{len(numbers)} rows from {low} to {high}"


def _changed(rows: RowSet | None, delta: Array | RowDelta) -> NDArray[np.int64]:
    """Return those of the rows that an update changes; an addition of 0 is not a change."""
    written, values = (delta.rows, delta.values) if isinstance(delta, RowDelta) else (slice(0, len(delta)), delta)
    if not count(written):
        return _NONE
    low, high = span(written)
    shared = indices(written if rows is None else cut(rows, low, high)) + (0 if rows is None else low)
    if not len(shared):
        return _NONE
    if isinstance(written, slice):
        at = shared - low
    else:
        at = np.searchsorted(written, shared)
        shared, at = shared[written[at] == shared], at[written[at] == shared]
    return shared[values[at].any(axis=1)]
