"""Rows that were read from the servers, each block with the parent group of the task that it was read for.

A block serves any task whose parent group is not newer. A read of exactly one state serves only such reads of that
state.

Source: Litz (2017), 3.2 (parameter cache synchronization).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proteus_spot.psengine.tables.row_sets import RowBlock, RowSet

#: Maximum number of blocks of a table.
_MOST = 8


@dataclass(frozen=True)
class ReadTag:
    """Under which parent group rows were read, and whether as exactly one state."""

    exact: bool
    group: int

    def serves(self, parent_group: int, exact: bool) -> bool:
        """Return whether these rows serve a task with this parent group, as exactly one state or not."""
        return self.exact == exact and (self.group == parent_group or (self.group > parent_group and not exact))


class RowCache:
    """The cache of one process, shared by its tasks."""

    def __init__(self) -> None:
        #: {table: its blocks, from the one that was read first}.
        self._blocks: dict[str, list[tuple[ReadTag, RowBlock]]] = {}
        self._tags: set[ReadTag] = set()

    def find(self, table: str, rows: RowSet | None, parent_group: int, exact: bool) -> RowBlock | None:
        """Return a block that holds `rows` (None: the whole table) and every update up to `parent_group`."""
        for tag, block in reversed(self._blocks.get(table, ())):
            if tag.serves(parent_group, exact) and block.has(rows):
                return block
        return None

    def is_known(self, parent_group: int, exact: bool) -> bool:
        """Return whether something was read under this group, or a newer one that serves it."""
        return any(tag.serves(parent_group, exact) for tag in self._tags)

    def put(self, blocks: Mapping[str, RowBlock], parent_group: int, exact: bool) -> None:
        """Keep what was read for a task."""
        tag = ReadTag(exact, parent_group)
        self._tags.add(tag)
        for table, block in blocks.items():
            before = self._blocks.get(table, [])
            # A block replaces those that serve no task which it does not serve.
            left = [
                (old, older)
                for old, older in before
                if not (tag.serves(old.group, old.exact) and block.has(older.rows))
            ]
            self._blocks[table] = [*left[1 - _MOST :], (tag, block)]

    def drop_before(self, parent_group: int) -> None:
        """Drop what serves no task with this parent group or a newer one."""
        self._tags = {tag for tag in self._tags if tag.group >= parent_group}
        self._blocks = {
            table: [(tag, block) for tag, block in blocks if tag.group >= parent_group]
            for table, blocks in self._blocks.items()
        }

    def clear(self) -> None:
        """Drop everything."""
        self._blocks, self._tags = {}, set()
