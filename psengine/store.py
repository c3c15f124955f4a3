"""The parameters of one shard: what is committed, and what came after it. Pure and single-threaded.

`committed` is the state at a common clock. Updates of later clocks wait in `pending` by clock and block of partitions until
the controller says that their clock is complete; then they are added up in the order of `sums`, so that the sum has the
same bits wherever and in whatever groups they were computed. A role can roll back by itself: it drops `pending`.

Invariants: an effect (clock, partition) is folded at most once, and it is that of the highest attempt that arrived
before its clock was committed; arrays handed out are never written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from psengine.sharding import Arrays
from psengine.sums import Block, Delta, tree_sum

Answer = Literal["accepted", "repeated", "superseded"]


@dataclass(frozen=True)
class ShardState:
    """All of a shard at one moment, as it moves to another server. What it holds is not written to.

    Attributes
    ----------
    arrays, clock, folded : its rows of every table at a common clock, and how many effects they hold.
    later : (clock, first partition, attempts, update) of each block of effects that came after it.
    """

    arrays: Arrays
    clock: int
    folded: int
    later: tuple[tuple[int, int, tuple[int, ...], Delta], ...] = ()


class StaleReadError(Exception):
    """A read of a committed clock that is no longer there: its reader was superseded."""


class _Effects:
    """The updates of one clock: those of the highest attempts that have come, by block."""

    def __init__(self) -> None:
        self.attempts: dict[int, int] = {}
        self.by_block: dict[Block, Delta] = {}

    def take(self, first: int, attempts: Sequence[int], update: Delta) -> Answer:
        known = [self.attempts.get(partition, 0) for partition in range(first, first + len(attempts))]
        if any(attempt < there for attempt, there in zip(attempts, known, strict=True)):
            return "superseded"
        if list(attempts) == known:
            return "repeated"
        end = first + len(attempts)
        # An older block that shares a partition is of no use as a whole: the rest of it is done again, too.
        self.by_block = {block: of for block, of in self.by_block.items() if block[1] <= first or end <= block[0]}
        self.by_block[first, end] = update
        self.attempts.update(zip(range(first, end), attempts, strict=True))
        return "accepted"

    def __len__(self) -> int:
        return sum(high - low for low, high in self.by_block)

    def sum(self, n_partitions: int) -> Delta:
        return tree_sum((0, n_partitions), self.by_block.get) or {}


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
        self.pending: dict[int, _Effects] = {}
        #: distinct effects (clock, partition) in `committed`
        self.folded = folded
        self._n_partitions = n_partitions
        self._live: Arrays | None = None

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
        answer = self.pending.setdefault(clock, _Effects()).take(first, attempts, update)
        if answer == "accepted":
            self._live = None
        return answer

    def fold(self, through: int) -> None:
        """Make every pending effect of the clocks up to `through` part of the committed state."""
        if through <= self.committed_clock:
            return
        for clock in range(self.committed_clock + 1, through + 1):
            effects = self.pending.pop(clock, None)
            if effects is not None:
                self.committed = _added(self.committed, effects.sum(self._n_partitions))
                self.folded += len(effects)
        self.committed_clock, self._live = through, None

    def read(self, committed: int, exact: bool) -> Arrays:
        """Return the rows; what came after `committed` is left out when `exact` (BSP) and added when not (SSP).

        Raises
        ------
        StaleReadError
            When `exact` and a later clock is committed already.
        """
        self.fold(committed)
        if exact:
            if self.committed_clock > committed:
                raise StaleReadError(
                    f"shard {self.shard} is at clock {self.committed_clock}, asked for clock {committed}"
                )
            return self.committed
        if self._live is None:
            self._live = self.committed
            for clock in sorted(self.pending):
                self._live = _added(self._live, self.pending[clock].sum(self._n_partitions))
        return self._live


def _added(state: Arrays, update: Delta) -> Arrays:
    """Return new arrays where `update` changes a table; they keep the state's type."""
    return {
        name: np.add(array, update[name], dtype=array.dtype, casting="same_kind") if name in update else array
        for name, array in state.items()
    }
