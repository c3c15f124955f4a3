"""Clock arithmetic: how far each partition is, the latest common clock, and the SSP bound.

Time does not occur here: a clock is a worker's iteration count.
"""

from __future__ import annotations

from collections.abc import Sequence


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
