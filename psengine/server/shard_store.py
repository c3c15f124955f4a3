"""The parameters of one shard: what is committed, and what came after it. Pure and single-threaded.

`committed` is the state at a common clock. Updates of later clocks wait in `pending` by clock and block of partitions until
the controller says that their clock is complete; then they are added up in the order of `sums`, so that the sum has the
same bits wherever and in whatever groups they were computed. A role can roll back by itself: it drops `pending`.

Invariants: an effect (clock, partition) is folded at most once, and it is that of the highest attempt that arrived
before its clock was committed; rows handed out are never written again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from psengine.protocol.shard_state import ShardState
from psengine.server.clock_updates import Answer, ClockUpdates
from psengine.server.next_clock import Coming, with_update
from psengine.tables.row_sets import Runs, Wanted
from psengine.tables.sharding import Arrays
from psengine.tables.tree_sum import Delta

#: marked states that are kept at most
_MARKS = 2


class StaleReadError(Exception):
    """A read of a committed clock that is no longer there: its reader was superseded."""


class ShardStore:
    """State of one shard.

    Parameters
    ----------
    arrays : mapping
        Its rows of every table at `clock`; they belong to the store from now on.
    n_partitions : int
        Of the job's input.
    clock, folded : int
        The clock that they are of, and how many effects they hold; 0 at the beginning of a job.
    """

    def __init__(
        self, shard: int, epoch: int, arrays: Arrays, n_partitions: int, clock: int = 0, folded: int = 0
    ) -> None:
        self.shard = shard
        self.epoch = epoch
        self.committed: Arrays = arrays
        self.committed_clock = clock
        #: effects of clocks above `committed_clock` only
        self.pending: dict[int, ClockUpdates] = {}
        #: distinct effects (clock, partition) in `committed`
        self.folded = folded
        self._n_partitions = n_partitions
        #: the state of each of these many clocks is marked; None: of none
        self.mark_every: int | None = None
        #: {clock: its state} of the last marked ones
        self.marks: dict[int, Arrays] = {}
        #: the tables that were read with what is pending
        self._live: Arrays = {}
        #: the attempt under which all effects of `committed_clock` came; 0 where it is not known, or they differ
        self._committed_by = 0
        #: the last clock of which something was announced
        self.announced_clock = 0
        #: of the clock after `committed_clock`
        self._coming = Coming(arrays, n_partitions)
        #: what has come since `_live` was read, and is not yet in it
        self._late: list[Delta] = []

    @classmethod
    def of(cls, shard: int, epoch: int, n_partitions: int, state: ShardState) -> ShardStore:
        """Return a store that goes on from `state`."""
        made = cls(shard, epoch, dict(state.arrays), n_partitions, state.clock, state.folded)
        for clock, first, attempts, update in state.later:
            made.push(clock, first, attempts, update)
        return made

    def state(self) -> ShardState:
        """Return all of it, as it is now."""
        later = tuple(
            (clock, low, tuple(effects.attempts[p] for p in range(low, high)), update)
            for clock, effects in sorted(self.pending.items())
            for (low, high), update in sorted(effects.by_block.items(), key=lambda item: item[0])
        )
        return ShardState(self.committed, self.committed_clock, self.folded, later)

    def copy(self, clock: int) -> ShardState:
        """Return what is committed at the common clock `clock`, and nothing of what came after it.

        Raises
        ------
        StaleReadError
            When a later clock is committed already.
        """
        return ShardState(self.read(clock, exact=True), clock, self.folded)

    def push(self, clock: int, first: int, attempts: Sequence[int], update: Delta) -> Answer:
        """Take the sum of the updates of a block of partitions; tables that it leaves out are not changed by it.

        Parameters
        ----------
        first, attempts : int and sequence of int
            The block's first partition, and the attempt of each of its partitions.

        Returns
        -------
        {"accepted", "repeated", "superseded"}
            Repeated: these very attempts came before, or their clock is committed. Superseded: a higher attempt did.
        """
        if clock <= self.committed_clock:
            return "repeated"
        effects = self.pending.setdefault(clock, ClockUpdates())
        new = not any(partition in effects.attempts for partition in range(first, first + len(attempts)))
        answer = effects.take(first, attempts, update)
        if answer == "accepted":
            if clock == self.committed_clock + 1:
                self._coming.show(first, attempts, update)
            if new:
                self._late.append(update)
            else:  # it has taken the place of something that may be in there
                self._forget_live()
        return answer

    def _forget_live(self) -> None:
        self._live, self._late = {}, []

    def attempt(self, clock: int) -> int:
        """Return the attempt under which the effects of all partitions at `clock` are here; 0 where that is not so.

        It is 0 also where their attempts differ, where they are not known, and for any but the committed clock and the
        next one.
        """
        if clock == self.committed_clock:
            return self._committed_by
        effects = self.pending.get(clock) if clock == self.committed_clock + 1 else None
        return 0 if effects is None else effects.attempt(self._n_partitions)

    def announce(
        self, clock: int, first: int, attempts: Sequence[int], update: Delta, to_come: Runs | None = None
    ) -> None:
        """Take beforehand what others read of an update that is still to be pushed; it is no effect yet (see `coming`).

        `to_come`, which may be none, are rows that will be announced with all else next. Of any but the next clock nothing
        is kept.
        """
        if clock == self.committed_clock + 1:
            self.announced_clock = clock
            self._coming.show(first, attempts, update, to_come)

    def announced(self, clock: int, first: int, attempts: Sequence[int]) -> Delta | None:
        """Return what is known of a block's update under these very attempts, if `clock` is the next one."""
        return self._coming.shown(first, attempts) if clock == self.committed_clock + 1 else None

    def attempt_ahead(self, clock: int, wanted: Wanted | None = None, announced: bool = True) -> int:
        """Return what `attempt` does, also where effects of the next clock were only `announced`, if that will do.

        It is 0 also where some of the rows that are `wanted`, None for all of every table, were told of and are to come.
        """
        if clock != self.committed_clock + 1:
            return self.attempt(clock)
        if announced:
            return self._coming.attempt(wanted)
        return self.attempt(clock) if self._coming.has(wanted) else 0

    def ahead(self, clock: int, wanted: Wanted | None = None) -> Arrays:
        """Return the tables of which rows are `wanted` as they are once `clock` is committed, if no other attempt at it comes.

        `attempt_ahead` of these rows is not 0; with what was only announced none of the tables may be of partitions' own
        rows. Other rows than these may not be right.

        Nothing is committed by it: the controller alone says when a clock is complete. What comes of the next clock is
        written early to the tables that are named.
        """
        self._coming.read_early(wanted or ())
        if clock == self.committed_clock:
            state = self.committed
        else:
            state = self._coming.tables() if wanted is None else self._coming.some(wanted)
        return {name: state[name] for name in self.committed if wanted is None or name in wanted}

    def work_out(self, clock: int) -> None:
        """Work out the tables at `clock`, if all its effects have come and it is to be committed next."""
        if clock == self.committed_clock + 1 and self.attempt(clock):
            self._coming.tables()

    def changes(self, clock: int) -> set[str]:
        """Return the tables that are to be written for `clock`: none if it is not the next one, or worked out already."""
        return self._coming.changes() if clock == self.committed_clock + 1 else set()

    def write_to(self, room: Arrays) -> None:
        """Have the tables of the next clock written to `room`, once, as far as they change."""
        self._coming.write_to(room)

    def fold(self, through: int) -> None:
        """Make every pending effect of the clocks up to `through` part of the committed state."""
        if through <= self.committed_clock:
            return
        for clock in range(self.committed_clock + 1, through + 1):
            self._committed_by = 0
            if clock in self.pending:
                effects = self.pending.pop(clock)
                after = self._coming.commit(effects)
                self.committed = {name: after[name] for name in self.committed}
                self.folded += len(effects)
                self._committed_by = effects.attempt(self._n_partitions)
            self.committed_clock = clock
            self._coming.go_on(self.committed, self.pending.get(clock + 1))
            self.mark(clock)
        self._forget_live()

    def mark(self, clock: int) -> None:
        """Keep the committed state, which is that of `clock`, if it is one to be marked; the arrays are never written again."""
        if self.mark_every is not None and clock % self.mark_every == 0:
            self.marks = dict([*self.marks.items(), (clock, self.committed)][-_MARKS:])

    def read(
        self,
        committed: int,
        exact: bool,
        tables: Collection[str] | None = None,
        until: Mapping[str, int] | None = None,
    ) -> Arrays:
        """Return the rows of `tables`, or of all; what came after `committed` is left out when `exact` (BSP), else added.

        `until` names tables of which nothing is added that came after the clock it gives. Their rows belong to one
        partition each, and who does a micro-task again must not see what an attempt before his has left there: his
        update takes the place of that one's.

        Raises
        ------
        StaleReadError
            When `exact` and a later clock is committed already.
        """
        self.fold(committed)
        names = [name for name in self.committed if tables is None or name in tables]
        if exact:
            if self.committed_clock > committed:
                raise StaleReadError(
                    f"shard {self.shard} is at clock {self.committed_clock}, asked for clock {committed}"
                )
            return {name: self.committed[name] for name in names}
        until = until or {}
        early = {name: self._at(until[name], name) for name in names if name in until}
        names = [name for name in names if name not in early]
        # Each update is added once, however many read: sixty-four readers of as many updates would be thousands of sums.
        for update in self._late if self._live else ():
            self._live = with_update(self._live, update)
        self._late = []
        missing = {name: self.committed[name] for name in names if name not in self._live}
        if missing:
            for clock in sorted(self.pending):
                missing = with_update(missing, self.pending[clock].sum(self._n_partitions, missing))
            self._live |= missing
        return early | {name: self._live[name] for name in names}

    def _at(self, clock: int, table: str) -> NDArray[np.generic]:
        """Return the rows of a table with what has come up to `clock`."""
        state = {table: self.committed[table]}
        for came in sorted(self.pending):
            if came <= clock:
                state = with_update(state, self.pending[came].sum(self._n_partitions, state))
        return state[table]
