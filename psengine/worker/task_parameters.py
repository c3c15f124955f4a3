"""The tables as one task reads and updates them (`Parameters`), and the rows that it leaves to the next reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.tables.allowed_values import as_update, check_sum
from proteus_spot.psengine.tables.row_sets import (
    Array,
    RowBlock,
    RowSet,
    Wanted,
    checked,
    count,
    distinct_rows,
    indices,
    read_only,
    row_bytes,
    same,
    union,
)
from proteus_spot.psengine.tables.row_updates import RowDelta, added, combined
from proteus_spot.psengine.tables.tree_sum import Delta
from proteus_spot.psengine.worker.routing import SupersededError

#: Returns the sum of what some partitions have added to a table, if the servers keep it.
FetchSum = Callable[[str, tuple[int, ...]], Array | None]
#: Returns rows of a table (None: all) from the servers; blocks.
Fetch = Callable[[str, RowSet | None], RowBlock]


_NO_VALUES = np.zeros((0, 0))


class TaskParameters:
    """The tables of one task.

    Parameters
    ----------
    group : int
        Number of the task's commit group.
    tables : mapping of name to TableSpec
        The tables on the servers.
    reads : mapping
        The rows that the partition has named, checked.
    read : mapping
        Rows that were fetched before the task, among them those of `reads`.
    fetch : callable
        Fetches other rows.
    fetch_sum : callable, optional
        Fetches kept sums; without it there are none.
    read_group : int, optional
        The last group whose updates are all in what is read; default: the one before the task's.
    finite : bool
        Whether updates that are not finite are refused.
    """

    def __init__(
        self,
        group: int,
        tables: Mapping[str, TableSpec],
        reads: Mapping[str, RowSet | None],
        read: Mapping[str, RowBlock],
        fetch: Fetch,
        fetch_sum: FetchSum = lambda table, partitions: None,
        read_group: int | None = None,
        finite: bool = True,
    ) -> None:
        self.group = group
        self._finite = finite
        self.read_group = group - 1 if read_group is None else read_group
        self._fetch_sum = fetch_sum
        self._tables, self._reads, self._fetch = tables, reads, fetch
        self._read = dict(read)
        self._updates: dict[str, Array | RowDelta] = {}

    def get(self, table: str, rows: RowSet | None = None) -> Array:
        """Return rows of a table, or all of it: see `psengine.apps.base.Parameters`."""
        wanted = self._checked(table, rows)
        block = self._read.get(table)
        if block is None or not block.has(wanted):
            block = self._read[table] = self._fetch(table, wanted)
        return block.of(wanted)

    def kept_sum(self, table: str, partitions: Collection[int]) -> Array | None:
        """Return the sum of what exactly these partitions added: see `psengine.apps.base.Parameters`."""
        self._checked(table, None)
        return self._fetch_sum(table, tuple(sorted(partitions)))

    def add(self, table: str, delta: Any, rows: RowSet | None = None) -> None:
        """Add to rows of a table, or to all of it: see `psengine.apps.base.Parameters`."""
        wanted = self._checked(table, rows)
        values = as_update(self._tables[table], delta, wanted, self._finite)
        update: Array | RowDelta = values if wanted is None else RowDelta(wanted, values)
        before = self._updates.get(table)
        if before is not None:
            check_sum(table, (before, update))
        self._updates[table] = update if before is None else combined(before, update)

    def updates(self) -> Delta:
        """Return what the task has added."""
        return self._updates

    @property
    def blocks(self) -> Mapping[str, RowBlock]:
        """The rows that were read, by table."""
        return self._read

    def _checked(self, table: str, rows: RowSet | None) -> RowSet | None:
        spec = self._tables.get(table)
        if spec is None:
            raise ValueError(f"table {table!r} is not known: the tables are {', '.join(self._tables)}")
        if rows is None:
            return None
        named = self._reads.get(table)
        if named is not None and same(rows, named):
            return named
        return checked(rows, spec)


@dataclass(frozen=True, eq=False)
class WrittenRows:
    """Rows that a task has read, and what it has added to them: a task on the same node that reads them next has both.

    Attributes
    ----------
    named : the rows that its partition has named.
    read : what was read, these rows among it.
    pushed : done when its update is on the servers (True), or was given up (False).
    """

    named: Wanted
    read: Mapping[str, RowBlock]
    update: Delta
    pushed: asyncio.Future[bool]

    def holds(self, wanted: Wanted) -> bool:
        """Return whether all of these rows, of one table at least, are among them as they are after the task."""
        return bool(wanted) and all(rows is not None and self._holds(table, rows) for table, rows in wanted.items())

    def _holds(self, table: str, rows: RowSet) -> bool:
        named, update = self.named.get(table), self.update.get(table)
        if named is None or not RowBlock(named, _NO_VALUES).has(rows) or not self.read[table].has(named):
            return False
        return update is None or (isinstance(update, RowDelta) and same(update.rows, named))

    def after(self, tables: Collection[str]) -> dict[str, RowBlock]:
        """Return the named rows of tables after the task, with the bits that the servers have."""
        found: dict[str, RowBlock] = {}
        for table in tables:
            named, update = self.named[table], self.update.get(table)
            values = self.read[table].of(named)
            after = values if update is None else added(values, update.values)  # type: ignore[union-attr] # see `_holds`
            found[table] = RowBlock(named, read_only(after))
        return found


async def pushed(handed: Collection[WrittenRows]) -> None:
    """Wait until these updates have reached the servers; later updates depend on them.

    Raises
    ------
    SupersededError
        If one was given up.
    """
    pushes = {rows.pushed for rows in handed}
    if pushes:
        await asyncio.wait(pushes)  # it does not cancel them when it is cancelled
    if not all(push.result() for push in pushes):
        raise SupersededError("the batch that has written the rows before was given up")


def checked_reads(reads: Mapping[str, RowSet | None], tables: Mapping[str, TableSpec]) -> dict[str, RowSet | None]:
    """Return the rows that a partition has named, after checking them.

    Raises
    ------
    ValueError
        If they are not rows of these tables.
    """
    for name in reads:
        if name not in tables:
            raise ValueError(f"rows of table {name!r} are wanted: the tables are {', '.join(tables)}")
    return {name: None if rows is None else checked(rows, tables[name]) for name, rows in reads.items()}


def union_of(tables: Sequence[TableSpec], wanted: Sequence[Wanted]) -> dict[str, RowSet | None]:
    """Return what is to be read for a batch, by table: rows, or None for all; a table that no task names is left out.

    Parameters
    ----------
    wanted : sequence of mappings
        For each task: the rows that it reads.
    """
    needed: dict[str, RowSet | None] = {}
    for table in tables:
        named = [rows[table.name] for rows in wanted if table.name in rows]
        some = [rows for rows in named if rows is not None]
        if named:
            needed[table.name] = union(some, row_bytes(table)) if len(some) == len(named) else None
    return needed


def fewer_named(needed: Wanted, wanted: Sequence[Wanted]) -> dict[str, RowSet]:
    """Return the rows that the tasks of a batch have named, of those tables of which `union_of` returned more."""
    found: dict[str, RowSet] = {}
    for name, rows in needed.items():
        named = [some for task in wanted if (some := task.get(name)) is not None]
        if isinstance(rows, slice) and not any(same(some, rows) for some in named):
            distinct = distinct_rows(named) if named else indices(slice(0, 0))
            if len(distinct) < count(rows):
                found[name] = distinct
    return found
