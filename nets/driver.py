"""The driver of a net with warm steps: bulk synchrony, in which the first clocks are made of several groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proteus_spot.nets.sampling import Calendar
from proteus_spot.psengine.drivers.interface import Dispatcher, Task
from proteus_spot.psengine.drivers.ssp import Ssp


class WarmSsp(Ssp):
    """Dispatches group after group, and counts the clocks that they are.

    Parameters
    ----------
    calendar : Calendar
    clocks : int or None
        The job's number of clocks; None: something else ends it.
    passes_after : callable
        Returns the number of passes over the data that so many groups are, or None.
    """

    def __init__(
        self, calendar: Calendar, clocks: int | None, passes_after: Callable[[int], float | None] | None
    ) -> None:
        super().__init__(0, passes_after)
        self.clocks, self._calendar = clocks, calendar
        self._end = None if clocks is None else calendar.groups(clocks)
        self._committed = 0

    @property
    def clock(self) -> int:
        """The number of complete clocks."""
        return self._calendar.clocks(self._committed)

    def resume(self, to: Dispatcher, partitions: int, group: int) -> None:
        """Dispatch the group after `group`."""
        self._partitions, self._last_group = partitions, group
        self.committed(to, group)

    def committed(self, to: Dispatcher, group: int) -> None:
        """Dispatch the next group, or end the job with this one."""
        self._committed = group
        if group == self._end:
            to.finish(group)
        else:
            self._dispatch_next(to)

    def next_task(self, partition: int) -> Task | None:
        """Return the partition's task of the next group, if there is one."""
        return None if self._last_group == self._end else super().next_task(partition)

    def snapshot(self) -> Any:
        """Return what the driver of bulk synchrony does, and the last committed group."""
        return super().snapshot(), self._committed

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        before, self._committed = state
        super().restore(before)
