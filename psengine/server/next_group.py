"""The tables of a shard after the next group: computed as its updates arrive, before it is committed.

Nodes that read ahead receive them when all updates have arrived; then they are committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.server.group_updates import GroupUpdates
from proteus_spot.psengine.tables.allowed_values import check_finite, check_sum
from proteus_spot.psengine.tables.incremental_update import Growing
from proteus_spot.psengine.tables.row_updates import RowDelta, added
from proteus_spot.psengine.tables.sharding import Arrays
from proteus_spot.psengine.tables.sparse_rows import SparseRows, Tables, compact, full, full_bytes, full_update
from proteus_spot.psengine.tables.tree_sum import Delta
from proteus_spot.psengine.tables.update_rules import Notes, apply_rule, memory_tables, notes_of

_NO_RULES: Mapping[str, TableSpec] = MappingProxyType({})
_NOWHERE: Mapping[str, NDArray[np.generic]] = MappingProxyType({})


class NextGroup:
    """The tables of a shard with the updates of the group after `committed` that have arrived."""

    def __init__(
        self,
        committed: Tables,
        n_partitions: int,
        ruled: Mapping[str, TableSpec] = _NO_RULES,
        is_compact: bool = False,
        finite: bool = True,
    ) -> None:
        #: Whether all numbers have to be finite.
        self._finite = finite
        #: Whether tables of whole numbers are in the sparse form where that is smaller.
        self._is_compact = is_compact
        self._committed, self._n_partitions = committed, n_partitions
        #: Tables with an update rule: nothing is written to them before the sum of all updates is known.
        self._ruled = ruled
        self._memory = frozenset(memory.name for table in ruled.values() for memory in memory_tables(table))
        self._arrived = GroupUpdates()
        #: Tables of `committed` with the updates that have arrived.
        self._next: Tables = {}
        #: Tables that are read ahead: they are written as the updates arrive.
        self._early: frozenset[str] = frozenset()
        #: Tables whose updates had to be summed the last time: they are not written early.
        self._summed: frozenset[str] = frozenset()
        self._growing: dict[str, Growing] = {}
        #: Memory that the changing tables are written to.
        self._room: Arrays = {}

    def go_on(self, committed: Tables, arrived: GroupUpdates | None) -> None:
        """Begin with the group after `committed`, of which `arrived` are here."""
        self._committed = committed
        self._arrived = GroupUpdates() if arrived is None else arrived
        self._next, self._growing = {}, {}

    def take(self, arrived: GroupUpdates, update: Delta, replaces: bool) -> None:
        """Note that `update` is among the updates; `replaces`: it replaces that of another attempt."""
        self._arrived, self._next = arrived, {}
        if replaces:
            self._growing, self._early = {}, frozenset()
        self._grow(update)

    def _grow(self, update: Delta) -> None:
        for name in self._early & update.keys():
            if name in self._growing:
                self._growing[name].add(update[name])
                continue
            before = self._committed[name]
            if isinstance(before, SparseRows):
                continue  # it would be full until the group is committed
            if begun := self._arrived.growing(before, name):
                self._growing[name] = begun

    def read_early(self, tables: Collection[str]) -> None:
        """Write updates of these tables as they arrive from now on."""
        self._early |= frozenset(tables) - self._summed - self._ruled.keys()

    def tables(self, names: Collection[str] | None = None) -> Tables:
        """Return the tables of these names, or all, with the updates that have arrived.

        Raises
        ------
        WrongSum
            If a sum does not fit the type of its table, or is not finite; the row is counted in the shard.
        """
        # A table in `_next` is not written to again: an answer that holds it may still be on its way.
        missing = [name for name in self._committed if name not in self._next and (names is None or name in names)]
        ruled = [name for name in missing if name in self._ruled]
        missing = [name for name in missing if name not in self._ruled and name not in self._memory]
        if missing or ruled:
            room, self._room = self._room, {}
            for name in ruled:
                after = self._by_rule(self._ruled[name], room.get(name))
                for each, table in after.items():
                    self._check_finite(each, table)
                self._next |= after
            for name in missing:
                before = full(self._committed[name])
                self._check_sum(name, before)
                begun = self._growing.pop(name, None) or self._arrived.growing(before, name, room.get(name))
                grown = None if begun is None else begun.whole()
                if grown is not None:
                    self._check_finite(name, grown)
                    self._next[name] = self._stored(name, grown)
                    self._summed -= {name}
            rest = {name: full(self._committed[name]) for name in missing if name not in self._next}
            if rest:
                summed = with_update(rest, self._arrived.sum(self._n_partitions, rest), room)
                for name, table in summed.items():
                    self._check_finite(name, table)
                self._next |= {name: self._stored(name, table) for name, table in summed.items()}
                self._early -= rest.keys()
                self._summed |= rest.keys()
        return self._next

    def _changes(self, name: str) -> bool:
        return any(name in update for update in self._arrived.by_block.values())

    def _check_sum(self, name: str, before: NDArray[np.generic]) -> None:
        if before.dtype.kind in "iu" and self._changes(name):
            updates = [full_update(update[name]) for update in self._arrived.by_block.values() if name in update]
            check_sum(name, updates, before)

    def _check_finite(self, name: str, after: NDArray[np.generic]) -> None:
        if self._finite and after is not self._committed[name]:
            check_finite(name, after)

    def _stored(self, name: str, table: NDArray[np.generic]) -> NDArray[np.generic] | SparseRows:
        """Return a table of the next group as it is kept: the committed form if nothing has changed."""
        before = self._committed[name]
        if before is table or not self._changes(name):
            return before
        return compact(table) if self._is_compact else table

    def _by_rule(self, table: TableSpec, room: NDArray[np.generic] | None) -> Arrays:
        """Return a table, and the memory of its rule, after the group; as they are if no update names the table."""
        names = (table.name, *(memory.name for memory in memory_tables(table)))
        before = {name: full(self._committed[name]) for name in names}
        if not self._changes(table.name):
            return before
        total = self._arrived.sum(self._n_partitions, (table.name,)).get(table.name)
        nothing = RowDelta(slice(0, 0), before[table.name][:0])
        return apply_rule(table, before, nothing if total is None else total, room, self._notes(notes_of(table)))

    def _notes(self, name: str) -> Notes | None:
        if not self._changes(name):
            return None
        rows = self._arrived.sum(self._n_partitions, (name,))[name]
        assert not isinstance(rows, RowDelta)
        return Notes(self._n_partitions, rows)

    def work_bytes(self, names: Collection[str] | None = None) -> int:
        """Return about how many bytes `tables` reads and writes."""
        missing = [name for name in self._committed if name not in self._next and (names is None or name in names)]
        return self._arrived.sum_bytes(self._committed, missing)

    def early_bytes(self, update: Delta, goes_on: bool) -> int:
        """Return about how many bytes `take` reads and writes; `goes_on`: once the group after this one has begun."""
        early = self._early & update.keys()
        begun = [name for name in early if goes_on or name not in self._growing]
        return sum(full_bytes(update[name]) for name in early) + sum(full_bytes(self._committed[n]) for n in begun)

    def changes(self) -> set[str]:
        """Return the tables that change and are not computed yet."""
        changed = {name for update in self._arrived.by_block.values() for name in update}
        return changed - self._next.keys() - self._growing.keys()

    def write_to(self, room: Arrays) -> None:
        """Have the tables written to `room`, once, as far as they change."""
        self._room = room


def with_update(state: Arrays, update: Delta, room: Mapping[str, NDArray[np.generic]] = _NOWHERE) -> Arrays:
    """Return new arrays, or those of `room`, where `update` changes a table; they keep the state's type."""
    return {
        name: added(array, update[name], room.get(name)) if name in update else array for name, array in state.items()
    }
