"""The parameters of one shard: what is committed, and what came after it. Pure and single-threaded.

`committed` is the state at a common clock. Updates of later clocks wait in `pending` by clock and partition until the
controller says that their clock is complete; then they are folded in partition order, so that the sum has the same bits
wherever and in whatever order they were computed. A role can roll back by itself: it drops `pending`.

Invariants: an effect (clock, partition) is folded at most once, and it is that of the highest attempt that arrived
before its clock was committed; arrays handed out are never written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from psengine.sharding import Arrays

Delta = Mapping[str, NDArray[np.generic]]
Answer = Literal["accepted", "repeated", "superseded"]


class StaleReadError(Exception):
    """A read of a committed clock that is no longer there: its reader was superseded."""


class ShardStore:
    """State of one shard.

    Parameters
    ----------
    arrays : mapping
        Its rows of every table at `clock`; they belong to the store from now on.
    clock, folded : int
        The clock that they are of, and how many effects they hold; 0 at the beginning of a job.
    """

    def __init__(self, shard: int, epoch: int, arrays: Arrays, clock: int = 0, folded: int = 0) -> None:
        self.shard = shard
        self.epoch = epoch
        self.committed: Arrays = arrays
        self.committed_clock = clock
        #: {clock: {partition: (attempt, update)}}, clocks above `committed_clock` only
        self.pending: dict[int, dict[int, tuple[int, Delta]]] = {}
        #: distinct effects (clock, partition) in `committed`
        self.folded = folded
        self._live: Arrays | None = None

    def push(self, clock: int, partition: int, attempt: int, update: Delta) -> Answer:
        """Take the update of one micro-task; tables that it leaves out are not changed by it.

        Returns
        -------
        {"accepted", "repeated", "superseded"}
            Repeated: this very attempt is there, or its clock is committed. Superseded: a higher attempt is there.
        """
        if clock <= self.committed_clock:
            return "repeated"
        there = self.pending.setdefault(clock, {}).get(partition)
        if there is not None and there[0] >= attempt:
            return "repeated" if there[0] == attempt else "superseded"
        self.pending[clock][partition] = (attempt, update)
        self._live = None
        return "accepted"

    def fold(self, through: int) -> None:
        """Make every pending effect of the clocks up to `through` part of the committed state."""
        if through <= self.committed_clock:
            return
        state = {name: array.copy() for name, array in self.committed.items()}
        for clock in range(self.committed_clock + 1, through + 1):
            effects = self.pending.pop(clock, {})
            _add(state, effects)
            self.folded += len(effects)
        self.committed, self.committed_clock, self._live = state, through, None

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
            if self.pending:
                self._live = {name: array.copy() for name, array in self.committed.items()}
                for clock in sorted(self.pending):
                    _add(self._live, self.pending[clock])
        return self._live


def _add(state: Arrays, effects: Mapping[int, tuple[int, Delta]]) -> None:
    for partition in sorted(effects):
        for name, delta in effects[partition][1].items():
            np.add(state[name], delta, out=state[name])
