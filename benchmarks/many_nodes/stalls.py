"""How much a change of the nodes held up those who stayed. Arithmetic only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from benchmarks.many_nodes.sleeping_app import Kernel

#: Clocks on either side of a change that say what an undisturbed one takes.
NEIGHBOURS = 3
#: The change, and the clock after it, which may have begun already.
AFFECTED = 2


def slowdown(seconds: Sequence[float], clock: int, told: int | None = None) -> float:
    """Return by how much a change in `clock` (from 1 on) made clocks longer than their neighbours, as a share; 0: not.

    What a clock takes is not the same before and after the change; the slowest of the clocks that it affects is compared
    with the median of those neighbours that take longer. If the change was prepared from the clock `told` on, the
    neighbours before are those before `told`, and the clocks from there to `clock` are compared with them alone.
    """
    affected, usual_s = seconds[clock - 1 : clock - 1 + AFFECTED], usual(seconds, clock, told)
    slower = max(affected) / usual_s - 1
    if told is not None and told < clock:
        before_s = median(seconds[max(0, told - 1 - NEIGHBOURS) : told - 1])
        slower = max(slower, max(seconds[told - 1 : clock - 1]) / before_s - 1)
    return max(0.0, slower)


def usual(seconds: Sequence[float], clock: int, told: int | None = None) -> float:
    """Return the greater of the medians of the clocks before and after a change in `clock`; see `slowdown`."""
    first, after = (told or clock) - 1, clock - 1 + AFFECTED
    sides = [seconds[max(0, first - NEIGHBOURS) : first], seconds[after : after + NEIGHBOURS]]
    return max(median(side) for side in sides if side)


def waits(kernels: Iterable[Kernel]) -> dict[int, float]:
    """Return by clock how long a node ran no kernel before its first one of that clock, in seconds.

    Of a clock that was done more than once, the longest counts.
    """
    found: dict[int, float] = {}
    before: Kernel | None = None
    for kernel in sorted(kernels, key=lambda of: of.began_s):
        if before is not None and kernel.clock != before.clock:
            found[kernel.clock] = max(found.get(kernel.clock, 0.0), kernel.began_s - before.ended_s)
        before = kernel
    return found


def stall(by_node: Iterable[dict[int, float]], clock: int, told: int | None = None) -> float:
    """Return the seconds that the node that was held up most waited longer, for a change in `clock`, than it usually does.

    `by_node` are the waits of those who stayed; what is usual are a node's waits before neighbouring clocks, as in
    `usual`.
    """
    most, first = 0.0, told or clock
    for waited in by_node:
        after = clock + AFFECTED
        sides = [_known(waited, first - NEIGHBOURS, first), _known(waited, after, after + NEIGHBOURS)]
        medians = [median(side) for side in sides if side]
        disturbed = _known(waited, first, after)
        if disturbed and medians:
            most = max(most, max(disturbed) - max(medians))
    return most


def _known(waited: dict[int, float], low: int, high: int) -> list[float]:
    return [waited[clock] for clock in range(low, high) if clock in waited]
