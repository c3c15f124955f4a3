"""What becomes of a shard's tables with the next clock: worked out as its effects come, before it is committed.

An effect of the next clock is known here from when it is announced: the tables that others read come first, and the
rows of a partition's own, which nobody waits for, when it is pushed. Before a long run of rows comes, it is told which
they are (`to_come`): who wants others need not wait for them, and reads while they are sent. Those who read ahead are
given what the announced updates make of the tables. Nothing is committed by it: what is committed are the effects that
were pushed, and if those are others than the ones that are known here, all is worked out anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from psengine.config import TableSpec
from psengine.server.clock_updates import ClockUpdates
from psengine.tables.incremental_update import Growing
from psengine.tables.row_sets import RowSet, Runs, Wanted, count, cut
from psengine.tables.row_updates import RowDelta, added
from psengine.tables.sharding import Arrays
from psengine.tables.tree_sum import Delta, Subtree
from psengine.tables.update_rules import apply_rule, memory_tables

_NO_RULES: Mapping[str, TableSpec] = MappingProxyType({})
_NOWHERE: Mapping[str, NDArray[np.generic]] = MappingProxyType({})


class Coming:
    """The tables of a shard as they become with the effects of the clock after `committed`."""

    def __init__(self, committed: Arrays, n_partitions: int, ruled: Mapping[str, TableSpec] = _NO_RULES) -> None:
        self._committed, self._n_partitions = committed, n_partitions
        #: Tables with an update rule: nothing is written to them before the sum of all updates is known.
        self._ruled = ruled
        self._memory = frozenset(memory.name for table in ruled.values() for memory in memory_tables(table))
        self._effects = ClockUpdates()
        #: what was told of updates of which all else is in `_effects`: the rows that are still to come
        self._to_come: dict[Subtree, Runs] = {}
        #: tables of `committed` as they become with the effects as they are
        self._next: dict[str, NDArray[np.generic]] = {}
        #: the tables that those who read ahead name: they are written as the effects come
        self._early: frozenset[str] = frozenset()
        #: those of which the updates had to be added up the last time: to write them early would be in vain
        self._summed: frozenset[str] = frozenset()
        self._growing: dict[str, Growing] = {}
        #: where the tables are to be written, those that change
        self._room: Arrays = {}

    def go_on(self, committed: Arrays, effects: ClockUpdates | None) -> None:
        """Begin with the clock after `committed`, of which `effects` have come."""
        self._committed = committed
        self._begin(ClockUpdates() if effects is None else effects.copy())

    def _begin(self, effects: ClockUpdates) -> None:
        self._effects, self._to_come, self._next, self._growing = effects, {}, {}, {}

    def show(self, first: int, attempts: Sequence[int], update: Delta, to_come: Runs | None = None) -> None:
        """Take the update of a block of partitions, or what others read of it; the same attempts may bring the rest.

        `to_come`, which may be none, are rows that others read, too, and that are shown with all else next time.
        """
        block = first, first + len(attempts)
        new = not any(partition in self._effects.attempts for partition in range(*block))
        if to_come is not None and not new:
            return  # it is late, or others do it again: what is known already is more
        before = self._effects.find(first, attempts)
        if before is not None:
            came = self._to_come.pop(block, None)
            more = {name: of for name, of in update.items() if before.get(name) is not of}
            if came is not None:  # what is short was told already
                more = {name: of for name, of in more.items() if name in came or name not in before}
            self._effects.by_block[block] = {**before, **more}
            if more.keys() & before.keys():  # it came twice
                self._growing, self._next = {}, {}
            for name in more:
                self._next.pop(name, None)
            self._grow(more)
        elif self._effects.take(first, attempts, update) == "accepted":
            there = self._effects.by_block.keys() - {block}
            self._to_come = {of: runs for of, runs in self._to_come.items() if of in there}
            if to_come is not None:
                self._to_come[block] = to_come
            self._next = {}
            if not new:  # it has taken the place of something that is in there
                self._growing, self._early = {}, frozenset()
            self._grow(update)

    def _grow(self, update: Delta) -> None:
        for name in self._early & update.keys():
            if name in self._growing:
                self._growing[name].add(update[name])
            elif begun := self._effects.growing(self._committed[name], name):
                self._growing[name] = begun

    def shown(self, first: int, attempts: Sequence[int]) -> Delta | None:
        """Return what is known of the update of a block under these attempts, if nothing of it is still to come."""
        to_come = (first, first + len(attempts)) in self._to_come
        return None if to_come else self._effects.find(first, attempts)

    def attempt(self, wanted: Wanted | None) -> int:
        """Return the attempt under which effects of all partitions are known; 0 where one is not, or they differ.

        It is 0 also where not all rows that are `wanted`, None for all of every table, are there (see `has`).
        """
        return self._effects.attempt(self._n_partitions) if self.has(wanted) else 0

    def has(self, wanted: Wanted | None) -> bool:
        """Return whether none of the rows that are `wanted` is to come, and the table is there without those that are.

        It is not there before somebody has read ahead (`read_early`), nor where several have written the same rows.
        """
        runs = [(name, run) for of in self._to_come.values() for name, run in of.items()]
        if wanted is None:
            return not runs
        return all(self._is_apart(name, wanted[name], run) for name, run in runs if name in wanted)

    def _is_apart(self, name: str, rows: RowSet | None, run: tuple[int, int]) -> bool:
        growing = self._growing.get(name)
        return growing is not None and growing.fits and rows is not None and not count(cut(rows, *run))

    def read_early(self, tables: Collection[str]) -> None:
        """From now on write what comes to these tables as it comes."""
        self._early |= frozenset(tables) - self._summed - self._ruled.keys()

    def commit(self, effects: ClockUpdates) -> Arrays:
        """Return all tables with these effects, which are those that count."""
        if not self._effects.same(effects):
            self._begin(effects.copy())
        return self.tables()

    def some(self, wanted: Wanted) -> Arrays:
        """Return the tables in which rows are `wanted`, with the effects that are known; these rows are right.

        That is, if they are there (`has`). Of a table of which other rows are to come, what is returned is written to
        there.
        """
        short = {name for runs in self._to_come.values() for name in runs} & wanted.keys()
        found = dict(self.tables(wanted.keys() - short))
        for name in short:
            rows = wanted[name]
            assert rows is not None
            found[name] = self._growing[name].so_far(rows)
        return found

    def tables(self, names: Collection[str] | None = None) -> Arrays:
        """Return the tables of these names, or all, with the effects that are known; without rows that are to come."""
        # What is there is not written to again: what was read of it before more came may still be on its way.
        missing = [name for name in self._committed if name not in self._next and (names is None or name in names)]
        ruled = [name for name in missing if name in self._ruled]
        missing = [name for name in missing if name not in self._ruled and name not in self._memory]
        if missing or ruled:
            room, self._room = self._room, {}
            for name in ruled:
                self._next |= self._by_rule(self._ruled[name], room.get(name))
            for name in missing:
                before = self._committed[name]
                begun = self._growing.pop(name, None) or self._effects.growing(before, name, room.get(name))
                grown = None if begun is None else begun.whole()
                if grown is not None:
                    self._next[name] = grown
                    self._summed -= {name}
            rest = {name: self._committed[name] for name in missing if name not in self._next}
            if rest:
                self._next |= with_update(rest, self._effects.sum(self._n_partitions, rest), room)
                self._early -= rest.keys()
                self._summed |= rest.keys()
        return self._next

    def _by_rule(self, table: TableSpec, room: NDArray[np.generic] | None) -> Arrays:
        """Return a table, and the memory of its rule, after the clock; as they are if no update names the table."""
        if not any(table.name in update for update in self._effects.by_block.values()):
            names = (table.name, *(memory.name for memory in memory_tables(table)))
            return {name: self._committed[name] for name in names}
        total = self._effects.sum(self._n_partitions, (table.name,)).get(table.name)
        nothing = RowDelta(slice(0, 0), self._committed[table.name][:0])
        return apply_rule(table, self._committed, nothing if total is None else total, room)

    def changes(self) -> set[str]:
        """Return the tables that change and are not worked out already."""
        changed = {name for update in self._effects.by_block.values() for name in update}
        return changed - self._next.keys() - self._growing.keys()

    def write_to(self, room: Arrays) -> None:
        """Have the tables written to `room`, once, as far as they change."""
        self._room = room


def with_update(state: Arrays, update: Delta, room: Mapping[str, NDArray[np.generic]] = _NOWHERE) -> Arrays:
    """Return new arrays, or those of `room`, where `update` changes a table; they keep the state's type."""
    return {
        name: added(array, update[name], room.get(name)) if name in update else array for name, array in state.items()
    }
