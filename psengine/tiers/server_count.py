"""Number of ActivePSs by measured time, unless the job fixes it.

By AgileML's rule half of the transient nodes serve. With fewer servers there are fewer messages; with more, the link of
each carries less. Which is faster depends on the links, the table and the kernels. So both are tried, once the nodes
have been the same for some clocks:

| measured | then |
|---|---|
| clocks are short, or kernels take nearly all of them | half of the transient nodes serve |
| else | `WINDOW` clocks with half as many servers |
| these are shorter by `GAIN` | this number stays |
| not so | `WINDOW` clocks with twice as many, which stay if they are shorter by `GAIN` |

What was found holds until the number of transient nodes has changed by more than a quarter. The bits of the model do
not depend on it: a trial costs moves of shards.
"""

from __future__ import annotations

from collections import deque

from psengine.config import Stage
from psengine.tiers.measured_stage import LEAST_S, WINDOW, ClockTime, typical

#: Share of a clock that is not kernels, at least, if other numbers are tried; and by which they have to shorten clocks.
SHARE, GAIN = 0.1, 0.05
#: Relative change of the number of transient nodes after which other numbers are tried again.
_CHANGED = 0.25


def half_of(transient: int) -> int:
    """Return the number of servers by AgileML's rule."""
    return (transient + 1) // 2


class ServerCount:
    """The choice of one job.

    Attributes
    ----------
    count : int or None
        Number of ActivePSs; None: by AgileML's rule.
    trying : bool
        Whether a number is being tried.
    """

    def __init__(self) -> None:
        self.count: int | None = None
        self.trying = False
        self._fixed = self._settled = False
        #: Number of transient nodes, and the stage, for which it is chosen.
        self._transient = 0
        self._stage: Stage = 1
        #: Numbers that are left to try, and the best one so far with its seconds a clock.
        self._left: list[int] = []
        self._best: tuple[int | None, float] = (None, 0.0)
        self._recent: deque[ClockTime] = deque(maxlen=WINDOW)
        self._skip = 1

    def fix(self, count: int) -> None:
        """Fix the number of servers."""
        self.count, self._fixed = count, True

    def interrupt(self) -> None:
        """Note that the job has rolled back, that shards move, or the like: the clocks of now are not typical."""
        self._recent.clear()
        self._skip = 1

    def wanted(self, transient: int, n_shards: int) -> int:
        """Return the number of ActivePSs among a number of transient nodes."""
        return min(transient, n_shards, half_of(transient) if self.count is None else self.count)

    def note(self, stage: Stage, transient: int, n_shards: int, servers: int, clock: ClockTime) -> bool:
        """Note a committed clock with a number of servers; return whether another number is wanted."""
        if self._fixed:
            return False
        before = self.wanted(transient, n_shards)
        if abs(transient - self._transient) > _CHANGED * self._transient or (
            stage != self._stage and not self._settled
        ):
            self.count, self.trying, self._settled = None, False, False
            self._transient, self._stage = transient, stage
            self.interrupt()
        elif servers != before:
            self.interrupt()  # shards are still to move
        elif self._skip:
            self._skip -= 1
        elif not self._settled:
            self._recent.append(clock)
            if len(self._recent) == WINDOW:
                self._decide(before, transient, n_shards)
        return self.wanted(transient, n_shards) != before

    def _decide(self, now: int, transient: int, n_shards: int) -> None:
        clock = typical(self._recent)
        if not self.trying:
            if clock.seconds < LEAST_S or clock.seconds - clock.kernel_s < SHARE * clock.seconds:
                return
            tries = (max(1, now // 2), min(2 * now, transient, n_shards))
            self.trying, self._left, self._best = True, [n for n in tries if n != now], (None, clock.seconds)
        elif clock.seconds <= self._best[1] * (1 - GAIN):
            self._left, self._best = [], (self.count, clock.seconds)
        if self._left:
            self.count = self._left.pop(0)
        else:
            self.count, self.trying, self._settled = self._best[0], False, True
        self.interrupt()
