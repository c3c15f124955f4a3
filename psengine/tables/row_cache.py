"""Rows that were read from the servers, each block with the number of completed tasks whose updates it has to show.

A block serves any task that has to see no more of them. A read of exactly one state serves only such reads of that
state.

Source: Litz (2017), 3.2 (parameter cache synchronization; the number is its parent clock).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proteus_spot.psengine.tables.row_sets import RowBlock, RowSet

#: Maximum number of blocks of a table.
_MOST = 8


@dataclass(frozen=True)
class ReadTag:
    """The number of completions that rows had to show when they were read, and whether as exactly one state."""

    exact: bool
    completions: int

    def serves(self, completions: int, exact: bool) -> bool:
        """Return whether these rows serve a task that has to see these, as exactly one state or not."""
        return self.exact == exact and (
            self.completions == completions or (self.completions > completions and not exact)
        )


class RowCache:
    """The cache of one process, shared by its tasks."""

    def __init__(self) -> None:
        #: {table: its blocks, from the one that was read first}.
        self._blocks: dict[str, list[tuple[ReadTag, RowBlock]]] = {}
        self._tags: set[ReadTag] = set()

    def find(self, table: str, rows: RowSet | None, completions: int, exact: bool) -> RowBlock | None:
        """Return a block that holds `rows` (None: the whole table) and the update of each of the `completions`."""
        for tag, block in reversed(self._blocks.get(table, ())):
            if tag.serves(completions, exact) and block.has(rows):
                return block
        return None

    def is_known(self, completions: int, exact: bool) -> bool:
        """Return whether something was read that serves a task which has to see these."""
        return any(tag.serves(completions, exact) for tag in self._tags)

    def put(self, blocks: Mapping[str, RowBlock], completions: int, exact: bool) -> None:
        """Keep what was read for a task."""
        tag = ReadTag(exact, completions)
        self._tags.add(tag)
        for table, block in blocks.items():
            before = self._blocks.get(table, [])
            # A block replaces those that serve no task which it does not serve.
            left = [
                (old, older)
                for old, older in before
                if not (tag.serves(old.completions, old.exact) and block.has(older.rows))
            ]
            self._blocks[table] = [*left[1 - _MOST :], (tag, block)]

    def drop_before(self, completions: int) -> None:
        """Drop what serves no task that has to see these or more."""
        self._tags = {tag for tag in self._tags if tag.completions >= completions}
        self._blocks = {
            table: [(tag, block) for tag, block in blocks if tag.completions >= completions]
            for table, blocks in self._blocks.items()
        }

    def clear(self) -> None:
        """Drop everything."""
        self._blocks, self._tags = {}, set()
