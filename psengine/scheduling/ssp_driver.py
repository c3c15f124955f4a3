"""Stale synchronous parallel: every partition once a clock, none more than `staleness` clocks ahead.

A driver decides which micro-tasks may be dispatched now, and which completions they must see. Other drivers (rotation,
elastic batch gradient descent) would decide the same two.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SspDriver:
    """SSP with a staleness bound; 0 is BSP, in which a micro-task of clock c reads exactly clock c - 1."""

    staleness: int

    def ready(self, done: Sequence[int], running: Collection[int], last_clock: int | None) -> list[tuple[int, int]]:
        """Return the (partition, clock) pairs that may be dispatched, in partition order.

        Parameters
        ----------
        done : sequence of int, length n_partitions
            Last completed clock of each partition.
        running : collection of int
            Partitions with a micro-task under way.
        last_clock : int or None
            No clock after this one is begun.
        """
        common = common_clock(done)
        return [
            (partition, clock + 1)
            for partition, clock in enumerate(done)
            if partition not in running
            and may_run(clock + 1, common, self.staleness)
            and (last_clock is None or clock < last_clock)
        ]

    def parent_clock(self, done: Sequence[int], completions: int) -> int:
        """Return the number of completions whose effects a micro-task dispatched now must see.

        Notes
        -----
        Source: Litz (2017), 3.1: each dispatch carries the number of completions the driver has handled.
        Differs: under BSP the completions of the clock under way are left out, because they must *not* be seen.
        """
        return common_clock(done) * len(done) if self.staleness == 0 else completions


def common_clock(done: Sequence[int]) -> int:
    """Return the latest clock that every partition has completed (0 before the first)."""
    return min(done)


def may_run(clock: int, common: int, staleness: int) -> bool:
    """Return whether a micro-task of `clock` may be dispatched when `common` is the latest common clock.

    Notes
    -----
    Clock i is dispatched when the last micro-task of clock i - s - 1 has completed; s = 0 is BSP.

    Source: Litz (2017), section 3.1, SSP.
    """
    return clock <= common + 1 + staleness
