"""Stale synchronous parallel: one task of every partition in each group, at most `staleness` groups ahead.

Group g is dispatched when the last task of group g - s - 1 is completed; s = 0 is BSP.

Source: Litz (2017), section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proteus_spot.psengine.drivers.interface import Dispatcher, Driver, Read, Task


class Ssp(Driver):
    """The default driver. A group is what a job counts as a clock.

    Parameters
    ----------
    staleness : int
        Number of groups that a partition may be ahead of the last committed one, beyond the next. With 0 (bulk
        synchrony) a task of group g reads exactly the model of group g - 1, else whatever is completed.
    passes_after : callable, optional
        Returns the number of passes over the data that so many groups are; None: not known.
    """

    def __init__(self, staleness: int = 0, passes_after: Callable[[int], float | None] | None = None) -> None:
        self.staleness, self._passes_after = staleness, passes_after
        self._read: Read = "group" if staleness == 0 else "parent"
        self._partitions = 0
        self._last_group = 0

    def start(self, to: Dispatcher, partitions: int, seed: int) -> None:
        """Dispatch the groups that may run at the beginning; the seed is not used."""
        self.resume(to, partitions, 0)

    def resume(self, to: Dispatcher, partitions: int, group: int) -> None:
        """Dispatch the groups that may run when `group` is committed, where no snapshot exists."""
        self._partitions, self._last_group = partitions, group
        while self._last_group < group + 1 + self.staleness:
            self._dispatch_next(to)

    def committed(self, to: Dispatcher, group: int) -> None:
        """Dispatch the next group."""
        self._dispatch_next(to)

    def next_task(self, partition: int) -> Task | None:
        """Return the partition's task of the next group; under bulk synchrony only."""
        return Task(partition, self._last_group + 1) if self.staleness == 0 else None

    def passes(self, group: int, examples: int) -> float | None:
        """Return the number of passes that `group` groups are."""
        return None if self._passes_after is None else self._passes_after(group)

    def snapshot(self) -> Any:
        """Return the number of partitions and the last dispatched group."""
        return self._partitions, self._last_group

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._partitions, self._last_group = state

    def _dispatch_next(self, to: Dispatcher) -> None:
        self._last_group += 1
        for partition in range(self._partitions):
            to.dispatch(Task(partition, self._last_group, read=self._read))
        to.seal(self._last_group)
