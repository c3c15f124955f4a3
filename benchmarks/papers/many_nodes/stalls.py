"""Delays of the remaining nodes by a change of the nodes. Arithmetic only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from statistics import fmean, median

from proteus_spot.benchmarks.papers.many_nodes.sleeping_app import Kernel

#: Number of clocks on either side of a change that give the duration of an undisturbed one.
NEIGHBOURS = 3
#: Number of affected clocks: that of the change and the next, which may have begun already.
AFFECTED = 2


def slowdown(seconds: Sequence[float], clock: int, announced: int | None = None) -> float:
    """Return the relative slowdown of clocks by a change in `clock` (from 1 on) against their neighbours; at least 0.

    Clocks before and after the change may differ in length; the slowest affected clock is compared with the larger of
    the medians of both sides. If the change was announced in clock `announced`, the neighbours before are those before
    that clock, and the mean of the clocks from there to `clock` is compared with that of as many before: with a clock
    of slack, long and short ones alternate.
    """
    affected, usual_s = seconds[clock - 1 : clock - 1 + AFFECTED], usual(seconds, clock, announced)
    slower = max(affected) / usual_s - 1
    if announced is not None and announced < clock:
        meanwhile = seconds[announced - 1 : clock - 1]
        before = seconds[max(0, announced - 1 - len(meanwhile)) : announced - 1]
        slower = max(slower, fmean(meanwhile) / fmean(before) - 1)
    return max(0.0, slower)


def usual(seconds: Sequence[float], clock: int, announced: int | None = None) -> float:
    """Return the greater of the medians of the clocks before and after a change in `clock`; see `slowdown`."""
    first, after = (announced or clock) - 1, clock - 1 + AFFECTED
    sides = [seconds[max(0, first - NEIGHBOURS) : first], seconds[after : after + NEIGHBOURS]]
    return max(median(side) for side in sides if side)


def waits(kernels: Iterable[Kernel], since_s: float = -inf) -> dict[int, float]:
    """Return by clock the seconds for which a node ran no kernel before those of that clock.

    A clock in several batches is waited for in several places. `since_s`: only before kernels that began after that
    moment.
    """
    found: dict[int, float] = {}
    until_s = inf
    for kernel in sorted(kernels, key=lambda k: k.began_s):
        if kernel.began_s > max(since_s, until_s):
            found[kernel.clock] = found.get(kernel.clock, 0.0) + kernel.began_s - until_s
        until_s = kernel.ended_s if until_s == inf else max(until_s, kernel.ended_s)
    return found


def stall(by_node: Iterable[dict[int, float]], clock: int, announced: int | None = None) -> float:
    """Return the largest additional wait of a node, in seconds, caused by a change in `clock`.

    `by_node` are the waits of the remaining nodes; a node's usual waits are those before neighbouring clocks, as in
    `usual`.
    """
    most, first = 0.0, announced or clock
    for waited in by_node:
        after = clock + AFFECTED
        sides = [_between(waited, first - NEIGHBOURS, first), _between(waited, after, after + NEIGHBOURS)]
        medians = [median(side) for side in sides if side]
        disturbed = _between(waited, first, after)
        if disturbed and medians:
            most = max(most, max(disturbed) - max(medians))
    return most


def _between(waited: dict[int, float], low: int, high: int) -> list[float]:
    return [waited[clock] for clock in range(low, high) if clock in waited]
