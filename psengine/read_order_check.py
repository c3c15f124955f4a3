"""Check of `Task.after`: every task that wrote rows which a task reads with it has to be in order before that task.

A training in one process runs the tasks one after the other, so that nothing forgotten shows in its bits. Here its
reads and writes are noted, and compared with the order that holds on any number of nodes: a task comes after the
earlier tasks of its partition, after those of the partitions that it names, after what these came after, and after the
groups that were committed when it was dispatched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.drivers.interface import Task
from proteus_spot.psengine.tables.row_sets import Array, RowSet, indices
from proteus_spot.psengine.telemetry.formatting import format_ranges


@dataclass
class _Noted:
    """A task, the last group that was committed when it was dispatched, and the rows that it read and changed."""

    task: Task
    committed: int
    reads: list[tuple[str, RowSet | None]] = field(default_factory=list)
    writes: list[tuple[str, NDArray[np.int64]]] = field(default_factory=list)


class ReadOrder:
    """Reads and writes of the tasks of one training."""

    def __init__(self) -> None:
        self._noted: dict[tuple[int, int], _Noted] = {}
        #: The last committed group.
        self.committed = 0

    @property
    def has_after(self) -> bool:
        """Whether a task was dispatched with `after`."""
        return any(noted.task.after is not None for noted in self._noted.values())

    def dispatched(self, task: Task) -> None:
        """Note a task."""
        self._noted[task.group, task.partition] = _Noted(task, self.committed)

    def read(self, group: int, partition: int, table: str, rows: RowSet | None) -> None:
        """Note rows that a task has read; None: all of the table."""
        if (noted := self._noted.get((group, partition))) is not None:
            noted.reads.append((table, rows))

    def added(self, group: int, partition: int, table: str, delta: Array, rows: RowSet | None) -> None:
        """Note what a task has added to rows, or to all of a table; rows that get 0 do not change."""
        if (noted := self._noted.get((group, partition))) is not None:
            changed = np.flatnonzero(np.any(np.asarray(delta) != 0, axis=1))
            noted.writes.append((table, changed if rows is None else indices(rows)[changed]))

    def fault(self) -> tuple[str, str] | None:
        """Return (call, text) of the first task that reads rows of one which it does not come after, or None."""
        n_partitions = 1 + max((partition for _, partition in self._noted), default=-1)
        #: Of the last task of each partition: up to which group it comes after the tasks of each partition.
        latest = np.zeros((n_partitions, n_partitions), np.int64)
        for _, tasks in groupby(sorted(self._noted), key=itemgetter(0)):
            after = latest.copy()
            for group, partition in tasks:
                noted = self._noted[group, partition]
                task = noted.task
                seen = np.full(n_partitions, group - 1 if _waits_for_group(task) else noted.committed)
                for named in (partition, *(task.after or ())):
                    seen = np.maximum(seen, latest[named])
                    seen[named] = group - 1
                if task.after is not None and (text := self._unordered(noted, seen)) is not None:
                    return f"driver, group {group}", text
                after[partition] = seen
            latest = after
        return None

    def _unordered(self, noted: _Noted, seen: NDArray[np.int64]) -> str | None:
        """Return what a task reads of others whose tasks it comes after up to the groups `seen` only."""
        group, partition = noted.task.group, noted.task.partition
        others = (key for key in sorted(self._noted, reverse=True) if seen[key[1]] < key[0] < group)
        for writer_group, writer in others:
            for table, changed in self._noted[writer_group, writer].writes:
                for _, rows in (read for read in noted.reads if read[0] == table):
                    shared = changed if rows is None else np.intersect1d(changed, indices(rows))
                    if len(shared):
                        return (
                            f"the task of partition {partition} reads rows {format_ranges(shared.tolist())} of table "
                            f"{table!r}, which partition {writer} changes in group {writer_group}; name partition "
                            f"{writer} in its `after`"
                        )
        return None


def _waits_for_group(task: Task) -> bool:
    return task.read == "group" or (task.read == "rows" and task.after is None)
