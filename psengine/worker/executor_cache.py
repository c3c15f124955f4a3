"""The rows that belong to one partition each, kept by the node that works on it from clock to clock.

Rows of a table with `own` are written by one partition's micro-tasks alone, so whoever did its last one knows them:
what it read, and what it added. The servers hold them too, and are told every addition; a node that has not done the
last one reads them there. What is kept is used only if the controller says that the very attempt that left it completed
the clock before, and it was added up as the servers add. So it has the bits of what would have been read.

Source: Litz (2017), 3.1: executors with state of their own, which moves and is kept with them.
Differs: Litz's state lives in the executor alone; here the servers have it too, so that moving a partition, checkpoints
and going back after a loss need nothing of their own for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psengine.protocol.instructions import TaskKey
from psengine.tables.row_sets import Array, RowSet, same

#: rows of its own as a micro-task leaves them, by table
Left = Mapping[str, tuple[RowSet, Array]]


def unchanged(before: Mapping[str, RowSet], wanted: Mapping[str, RowSet]) -> frozenset[str]:
    """Return the tables of which a partition's next micro-task wants the very rows that its last one had."""
    return frozenset(name for name, rows in wanted.items() if name in before and same(before[name], rows))


@dataclass(frozen=True, eq=False)
class Kept:
    """Rows of one table as an attempt at a clock left them."""

    clock: int
    attempt: int
    rows: RowSet
    values: Array


class OwnRows:
    """What a node keeps, by (table, partition); what is kept is not written to."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], Kept] = {}
        #: how often everything was forgotten
        self.generation = 0

    def find(self, task: TaskKey, clock: int, wanted: Mapping[str, RowSet]) -> dict[str, Array]:
        """Return by table what a micro-task of `clock` need not read: rows as its partition's last one left them."""
        found = {}
        for table, rows in wanted.items():
            kept = self._kept.get((table, task.partition))
            if kept and (kept.clock, kept.attempt) == (clock - 1, task.after) and same(kept.rows, rows):
                found[table] = kept.values
        return found

    def keep(self, task: TaskKey, clock: int, rows: Left) -> None:
        """Keep what an attempt has left, once the servers have all of it."""
        for table, (there, values) in rows.items():
            self._kept[table, task.partition] = Kept(clock, task.attempt, there, values)

    def drop_before(self, clock: int) -> None:
        """Drop what was left before `clock`, which every partition has completed: others have gone on from it."""
        self._kept = {key: kept for key, kept in self._kept.items() if kept.clock >= clock}

    def forget(self) -> None:
        """Drop everything; what was begun before is not kept either (`generation`)."""
        self._kept.clear()
        self.generation += 1

    @property
    def nbytes(self) -> int:
        """How much is kept."""
        return sum(kept.values.nbytes for kept in self._kept.values())
