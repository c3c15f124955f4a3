"""Parameters of one shard: the committed state and the pending updates. Single-threaded.

`committed` is the state at a common group. Updates of later groups wait in `pending`, by group and block of partitions,
until the controller declares their group complete; then they are added in the order of `tree_sum`, so that the sum has
the same bits wherever and in whatever groups they were computed. A rollback to the committed state drops `pending`.

Invariants: an update (group, partition) is folded at most once, and it is that of the highest attempt that arrived
before its group was committed; rows handed out are never written again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from proteus_spot.psengine.config import Add, Replace
from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.server.group_updates import Answer, GroupUpdates
from proteus_spot.psengine.server.next_group import NextGroup, with_update
from proteus_spot.psengine.server.served_reads import ServedReads
from proteus_spot.psengine.tables.allowed_values import WrongSum
from proteus_spot.psengine.tables.row_sets import Array, RowSet, Wanted, count, span
from proteus_spot.psengine.tables.row_updates import RowDelta, added
from proteus_spot.psengine.tables.sharding import Arrays, Sharding
from proteus_spot.psengine.tables.sparse_rows import (
    CompactDelta,
    SparseRows,
    Tables,
    compact,
    compact_delta,
    full,
    full_bytes,
    full_update,
)
from proteus_spot.psengine.tables.tree_sum import Delta, Subtree, tree_sum
from proteus_spot.psengine.tables.update_rules import init_optimizer_state, memory_tables

#: Maximum number of marked states.
_MARKS = 2


class StaleReadError(Exception):
    """A read of a committed group that is no longer available: the reader was superseded."""


class ShardStore:
    """State of one shard.

    Parameters
    ----------
    arrays : mapping
        Its rows of every table at `group`; the store takes ownership of them.
    n_partitions : int
        Number of partitions of the job's input.
    group, folded : int
        Group of `arrays`, and the number of updates that they include; 0 at the beginning of a job.
    sharding : Sharding, optional
        The cut of the tables; without it updates are added to all.
    is_compact : bool
        Whether tables of whole numbers, and updates of them, are in the sparse form where that is smaller.
    finite : bool
        Whether all numbers have to be finite.
    """

    def __init__(
        self,
        shard: int,
        epoch: int,
        arrays: Tables,
        n_partitions: int,
        group: int = 0,
        folded: int = 0,
        sharding: Sharding | None = None,
        is_compact: bool = False,
        finite: bool = True,
    ) -> None:
        self.shard = shard
        self.epoch = epoch
        tables = () if sharding is None else sharding.tables
        #: Tables with an update rule: no pending update is visible in them.
        self._ruled = {table.name: table for table in tables if not isinstance(table.rule, Add)}
        self._is_compact = is_compact
        whole = {name: table for name, table in arrays.items() if not isinstance(table, SparseRows)}
        arrays = {**arrays, **init_optimizer_state(tuple(self._ruled.values()), whole)}
        if is_compact:
            arrays = {name: table if name in self._ruled else compact(full(table)) for name, table in arrays.items()}
        memory = {memory.name for table in self._ruled.values() for memory in memory_tables(table)}
        #: Names of the tables that tasks read; the others are the memory of update rules.
        self.readable = frozenset(arrays.keys() - memory)
        self.committed: Tables = arrays
        self.committed_group = group
        #: {group: its updates}, of groups above `committed_group` only.
        self.pending: dict[int, GroupUpdates] = {}
        #: Number of distinct updates (group, partition) in `committed`.
        self.folded = folded
        self._n_partitions = n_partitions
        #: Reads of rows ahead of the commit of the groups before.
        self.reads = ServedReads()
        self._first_rows = {table.name: sharding.rows(shard, table)[0] for table in tables} if sharding else {}
        #: {table: {block: its update}} of the last group that updated each table that keeps the sums of nodes.
        self._sums: dict[str, dict[Subtree, Array | RowDelta]] = {
            table.name: {} for table in tables if isinstance(table.rule, Replace) and table.rule.keeps_sums
        }
        #: Number of groups between two marked states; None: no state is marked.
        self.mark_every: int | None = None
        #: {group: its state} of the last marked groups.
        self.marks: dict[int, Tables] = {}
        #: Tables that were read including pending updates.
        self._live: Arrays = {}
        #: Attempt of all updates of `committed_group`; 0 if unknown, or if they differ.
        self._committed_by = 0
        #: State of the group after `committed_group`.
        self._next = NextGroup(arrays, n_partitions, self._ruled, is_compact, finite)
        #: Updates received since `_live` was read, not yet included in it.
        self._late: list[CompactDelta] = []

    @classmethod
    def of(
        cls,
        shard: int,
        epoch: int,
        n_partitions: int,
        state: ShardState,
        sharding: Sharding | None = None,
        is_compact: bool = False,
        finite: bool = True,
    ) -> ShardStore:
        """Return a store with the content of `state`."""
        content = dict(state.arrays), n_partitions, state.group, state.folded
        store = cls(shard, epoch, *content, sharding, is_compact, finite)
        for group, first, attempts, update in state.later:
            store.push(group, first, attempts, update)
        store.reads = ServedReads(state.reads)
        return store

    def state(self) -> ShardState:
        """Return the present content, including pending updates."""
        later = tuple(
            (group, low, tuple(arrived.attempts[p] for p in range(low, high)), _full_delta(update))
            for group, arrived in sorted(self.pending.items())
            for (low, high), update in sorted(arrived.by_block.items(), key=lambda item: item[0])
        )
        return ShardState(self.committed, self.committed_group, self.folded, later, self.reads.pending())

    def copy(self, group: int) -> ShardState:
        """Return the committed state at the common group `group`, without later updates.

        Raises
        ------
        StaleReadError
            If a later group is committed already.
        """
        return ShardState(self._exactly(group), group, self.folded)

    def push(self, group: int, first: int, attempts: Sequence[int], update: Delta) -> Answer:
        """Take the sum of the updates of a block of partitions; tables that are not in it do not change.

        Parameters
        ----------
        first, attempts : int and sequence of int
            The block's first partition, and the attempt of each of its partitions.

        Returns
        -------
        {"accepted", "repeated", "superseded"}
            Repeated: these attempts were received before, or their group is committed. Superseded: a higher attempt was
            received before.

        Raises
        ------
        LateUpdateError
            If a task of a later group has read rows that it changes.
        """
        if group <= self.committed_group:
            return "repeated"
        arrived = self.pending.setdefault(group, GroupUpdates())
        new = not any(partition in arrived.attempts for partition in range(first, first + len(attempts)))
        stored = compact_delta(update) if self._is_compact else update
        answer = arrived.take(first, attempts, stored)
        if answer == "accepted":
            if group == self.committed_group + 1:
                self._next.take(arrived, update, replaces=not new)
            if new:
                self.reads.check(group, range(first, first + len(attempts)), update, self._first_rows)
                self._late.append(stored)
            else:  # it replaces an update that `_live` may include
                self._forget_live()
        return answer

    def _forget_live(self) -> None:
        self._live, self._late = {}, []

    def attempt(self, group: int) -> int:
        """Return the common attempt of the updates of all partitions at `group`; 0 if one is missing.

        It is also 0 if their attempts differ or are unknown, and for any but the committed group and the next one.
        """
        if group == self.committed_group:
            return self._committed_by
        arrived = self.pending.get(group) if group == self.committed_group + 1 else None
        return 0 if arrived is None else arrived.attempt(self._n_partitions)

    def ahead(self, group: int, wanted: Wanted | None = None) -> Tables:
        """Return the `wanted` tables as they are once `group` is committed, unless another attempt at it arrives.

        `attempt` of the group must not be 0.

        Nothing is committed: the controller alone declares a group complete. Updates of the next group are added early
        to the named tables.
        """
        self._next.read_early(wanted or ())
        state = self.committed if group == self.committed_group else self._after(wanted)
        return {name: state[name] for name in self.committed if name in (self.readable if wanted is None else wanted)}

    def has(self, group: int, partition: int) -> bool:
        """Return whether the update of a partition at `group` has arrived."""
        return group <= self.committed_group or (group in self.pending and self.pending[group].has(partition))

    def before(self, group: int, wanted: Wanted) -> Arrays:
        """Return the `wanted` rows, by table, with the updates that have arrived of all groups before `group`.

        Raises
        ------
        StaleReadError
            If `group` is committed already.
        """
        if self.committed_group >= group:
            raise StaleReadError(f"shard {self.shard} is at clock {self.committed_group}, before {group} was requested")
        return {name: self._rows_before(group, name, wanted[name]) for name in self.committed if name in wanted}

    def _rows_before(self, group: int, table: str, rows: RowSet | None) -> Array:
        array = self.committed[table]
        if rows is not None and not count(rows):
            return array[:0]
        low, high = (0, len(array)) if rows is None else span(rows)
        found = array[low:high]
        for earlier in sorted(number for number in self.pending if number < group):
            total = self.pending[earlier].sum_of_rows(self._n_partitions, table, low, high)
            found = found if total is None else added(found, total)
        return found if rows is None or isinstance(rows, slice) else found[rows - low]

    def changes(self, group: int) -> set[str]:
        """Return the tables that change at `group`; empty if it is not the next one, or is computed already."""
        return self._next.changes() if group == self.committed_group + 1 else set()

    def write_to(self, room: Arrays) -> None:
        """Have the changing tables of the next group written to `room`, once."""
        self._next.write_to(room)

    def fold(self, through: int) -> None:
        """Add every pending update of the groups up to `through` to the committed state.

        Raises
        ------
        WrongSum
            If a sum does not fit the type of its table, or is not finite; the groups before are committed.
        """
        if through <= self.committed_group:
            return
        for group in range(self.committed_group + 1, through + 1):
            self._committed_by = 0
            if group in self.pending:
                after = self._after()
                arrived = self.pending.pop(group)
                self.committed = {name: after[name] for name in self.committed}
                self.folded += len(arrived)
                self._committed_by = arrived.attempt(self._n_partitions)
                for name in self._sums:
                    blocks = {block: update[name] for block, update in arrived.by_block.items() if name in update}
                    if blocks:
                        self._sums[name] = {block: full_update(update) for block, update in blocks.items()}
            self.committed_group = group
            self._next.go_on(self.committed, self.pending.get(group + 1))
            self.mark(group)
        self.reads.drop(through)
        self._forget_live()

    def _after(self, wanted: Collection[str] | None = None) -> Tables:
        """Return tables after the next group."""
        try:
            return self._next.tables(wanted)
        except WrongSum as error:
            row = error.row + self._first_rows.get(error.table.partition(":")[0], 0)
            raise WrongSum(error.table, row, error.why, self.committed_group + 1) from None

    def kept_sum(self, committed: int, table: str, partitions: Collection[int]) -> Array | None:
        """Return the sum of exactly these partitions' updates in the last group, up to `committed`, that had the table.

        None: the blocks that were received do not say it, or the table keeps no sums.

        Raises
        ------
        StaleReadError
            If a later group is committed already.
        """
        before = self.read(committed, exact=True, tables=(table,)).get(table)
        wanted = frozenset(partitions)
        parts = {
            block: {table: sums}
            for block, sums in self._sums.get(table, {}).items()
            if wanted.issuperset(range(*block))
        }
        if before is None or frozenset().union(*(range(*block) for block in parts)) != wanted:
            return None
        total = tree_sum((0, self._n_partitions), parts.get)
        return None if total is None else added(np.zeros_like(full(before)), total[table])

    def fold_bytes(self, through: int) -> int:
        """Return about how many bytes `fold` reads and writes."""
        if through <= self.committed_group:
            return 0
        later = (arrived for group, arrived in self.pending.items() if self.committed_group + 1 < group <= through)
        return self._next.work_bytes() + sum(arrived.sum_bytes(self.committed, self.committed) for arrived in later)

    def push_bytes(self, group: int, update: Delta, committed: int) -> int:
        """Return about how many bytes `push` reads and writes once `committed` is folded."""
        folded = max(self.committed_group, committed)
        early = self._next.early_bytes(update, folded > self.committed_group) if group == folded + 1 else 0
        return early + (sum(map(full_bytes, update.values())) if self._is_compact or self.reads.pending() else 0)

    def read_bytes(self, committed: int, exact: bool, wanted: Wanted | None = None) -> int:
        """Return about how many bytes it takes to `read`, and to copy the `wanted` rows."""
        n_bytes = self.fold_bytes(committed) + self._copied_bytes(wanted)
        if not exact and self.pending:
            names = [name for name in self.committed if wanted is None or name in wanted]
            missing = [name for name in names if name not in self._live]
            n_bytes += sum(arrived.sum_bytes(self.committed, missing) for arrived in self.pending.values())
            late = (name for update in self._late for name in update if name in self._live)
            n_bytes += sum(2 * self._live[name].nbytes for name in late)
        return n_bytes

    def ahead_bytes(self, group: int, wanted: Wanted | None = None) -> int:
        """Return about how many bytes it takes to read `ahead`, and to copy the `wanted` rows."""
        return self._copied_bytes(wanted) + (0 if group == self.committed_group else self._next.work_bytes(wanted))

    def before_bytes(self, group: int, wanted: Wanted) -> int:
        """Return about how many bytes `before` reads and writes."""
        n_bytes = 0
        for name in self.committed.keys() & wanted.keys():
            rows, table = wanted[name], self.committed[name]
            low, high = (0, len(table)) if rows is None else span(rows) if count(rows) else (0, 0)
            read = (high - low) * full_bytes(table) // max(1, len(table))
            earlier = (arrived for number, arrived in self.pending.items() if number < group)
            updates = [update[name] for arrived in earlier for update in arrived.by_block.values() if name in update]
            n_bytes += sum((min(read, full_bytes(update)) for update in updates), read if updates else 0)
        return n_bytes + self._copied_bytes(wanted)

    def _copied_bytes(self, wanted: Wanted | None) -> int:
        n_bytes = 0
        for name, table in self.committed.items():
            rows = None if wanted is None else wanted.get(name, slice(0, 0))
            if isinstance(table, SparseRows) or isinstance(rows, np.ndarray):  # others are views
                rows_read = len(table) if rows is None else count(rows)
                n_bytes += rows_read * full_bytes(table) // max(1, len(table))
        return n_bytes

    def kept_bytes(self, table: str) -> int:
        """Return about how many bytes `kept_sum` reads and writes."""
        return sum(2 * update.nbytes for update in self._sums.get(table, {}).values())

    def state_bytes(self) -> int:
        """Return about how many bytes `state` writes: sparse updates are full in it."""
        updates = (update for arrived in self.pending.values() for update in arrived.by_block.values())
        return sum(map(full_bytes, (u for by in updates for u in by.values()))) if self._is_compact else 0

    def mark(self, group: int) -> None:
        """Mark the committed state, which is that of `group`, if one is due; its arrays are never written again."""
        if self.mark_every is not None and group % self.mark_every == 0:
            self.marks = dict([*self.marks.items(), (group, self.committed)][-_MARKS:])

    def read(
        self,
        committed: int,
        exact: bool,
        tables: Collection[str] | None = None,
    ) -> Tables:
        """Return the rows of `tables`, or of all and the memory of their rules, folded through `committed`.

        With `exact` (BSP) they are at that group, else with all later updates; a table with an update rule is without
        them, since its rule is applied to the complete sum of a group only.

        Raises
        ------
        StaleReadError
            If `exact` and a later group is committed already.
        """
        self.fold(committed)
        names = [name for name in self.committed if tables is None or name in tables]
        if exact:
            return {name: table for name, table in self._exactly(committed).items() if name in names}
        complete: Tables = {
            name: self.committed[name] for name in names if name in self._ruled or name not in self.readable
        }
        names = [name for name in names if name not in complete]
        # Each update is added once for all readers: sixty-four readers of as many updates would be thousands of sums.
        for update in self._late if self._live else ():
            self._live = with_update(self._live, _full_delta(update))
        self._late = []
        missing = {name: full(self.committed[name]) for name in names if name not in self._live}
        if missing:
            for group in sorted(self.pending):
                missing = with_update(missing, self.pending[group].sum(self._n_partitions, missing))
            self._live |= missing
        return complete | {name: self._live[name] for name in names}

    def _exactly(self, group: int) -> Tables:
        """Return the committed tables at `group`; raises `StaleReadError`."""
        self.fold(group)
        if self.committed_group > group:
            raise StaleReadError(f"shard {self.shard} is at clock {self.committed_group}, clock {group} was requested")
        return dict(self.committed)


def _full_delta(update: CompactDelta) -> Delta:
    return {name: full_update(rows) for name, rows in update.items()}
