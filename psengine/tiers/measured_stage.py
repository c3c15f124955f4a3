"""Stage 2 or stage 3 by measured time, where the ratio of the tiers alone leaves both open.

In stage 3 fewer nodes compute, and fewer nodes read from the same servers. So stage 3 is the faster one where kernels
are short beside the transfers, and stage 2 where they are long. Committed clocks are measured: the kernels of the node
that had the most are kernel time, the rest of the clock is transfer time. From the two follows what a clock takes in
the other stage, until that was measured, too, with the same nodes.

The change costs moves and loads. So the other stage must be better by `HYSTERESIS`, and clocks must last `LEAST_S`.

Source: Proteus (EuroSys 2017), 3.2, Fig. 14.
Differs: the paper uses the ratio alone. With half of the machines reliable, and kernels of less than twice the time
of a table over a link, stage 3 is the faster one, although half of the machines do not compute in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from proteus_spot.psengine.config import Stage

#: Share by which the other stage has to be faster.
HYSTERESIS = 0.1
#: Seconds of a clock below which the stage is not changed for its sake.
LEAST_S = 0.5
#: Number of clocks that are measured before the stage may change, and of which the measurement consists.
WINDOW = 6


@dataclass(frozen=True)
class Footprint:
    """Ready nodes and their threads, by tier, and the number of servers in stages 2 and 3."""

    reliable: int
    transient: int
    reliable_threads: int
    transient_threads: int
    servers: int

    def threads(self, stage: Stage) -> int:
        """Return the number of threads that compute in a stage."""
        return self.transient_threads + (self.reliable_threads if stage != 3 else 0)

    def link_tables(self, stage: Stage) -> float:
        """Return the tables that the link of a server, which works, too, carries in a clock, each way."""
        workers = self.transient + (self.reliable if stage != 3 else 0)
        return (workers - 1) / self.servers + 1 - 1 / self.servers


@dataclass(frozen=True)
class ClockTime:
    """Seconds of a clock, and of the kernels of the node that had the most."""

    seconds: float
    kernel_s: float


def predicted(now: ClockTime, stage: Stage, other: Stage, nodes: Footprint) -> float:
    """Return the seconds of a clock in the stage `other`, from a clock that was measured in `stage`."""
    kernel_s = now.kernel_s * nodes.threads(stage) / max(1, nodes.threads(other))
    transfer_s = max(0.0, now.seconds - now.kernel_s)
    load = nodes.link_tables(stage)
    return kernel_s + (transfer_s * nodes.link_tables(other) / load if load else transfer_s)


class StageTimes:
    """Committed clocks of stages 2 and 3, measured with the present nodes.

    Attributes
    ----------
    prefers_3 : bool
        Whether stage 3 holds because it is faster, where the ratio says stage 2.
    """

    def __init__(self) -> None:
        self.prefers_3 = False
        self._nodes: Footprint | None = None
        self._stage: Stage = 1
        self._recent: deque[ClockTime] = deque(maxlen=WINDOW)
        #: {stage: its clocks when it was left}
        self._measured: dict[Stage, ClockTime] = {}

    def note(self, stage: Stage, nodes: Footprint, clock: ClockTime) -> None:
        """Note a committed clock; the first one with other nodes, or in another stage, is not measured."""
        if nodes != self._nodes:
            self._measured.clear()
        elif stage == self._stage:
            self._recent.append(clock)
            return
        self._nodes, self._stage = nodes, stage
        self._recent.clear()

    def interrupt(self) -> None:
        """Note that the job has rolled back, or that shards move: what was measured of this stage is not typical."""
        self._recent.clear()

    def faster(self, nodes: Footprint) -> Stage:
        """Return stage 2 or 3, whichever is faster with `nodes`; the present one if that is not known, or hardly so."""
        stage: Stage = 3 if self.prefers_3 else 2
        if (nodes, stage) != (self._nodes, self._stage) or len(self._recent) < WINDOW:
            return stage
        now = typical(self._recent)
        other: Stage = 3 if stage == 2 else 2
        measured = self._measured.get(other)
        other_s = predicted(now, stage, other, nodes) if measured is None else measured.seconds
        return stage if now.seconds < LEAST_S or other_s >= now.seconds * (1 - HYSTERESIS) else other

    def choose(self, nodes: Footprint, by_ratio: Stage) -> Stage:
        """Return the stage for `nodes`: by the ratio of the tiers, and by measured time where that says stage 2."""
        if by_ratio != 2:
            self.prefers_3 = False
            return by_ratio
        stage: Stage = 3 if self.prefers_3 else 2
        wanted = self.faster(nodes)
        if wanted != stage:
            self._measured[stage] = typical(self._recent)
            self.prefers_3 = wanted == 3
        return wanted


def typical(clocks: Iterable[ClockTime]) -> ClockTime:
    """Return the median over pairs of successive clocks: with a clock of slack, long and short ones alternate."""
    pairs = list(pairwise(clocks))
    seconds = median((one.seconds + next_.seconds) / 2 for one, next_ in pairs)
    return ClockTime(seconds, median((one.kernel_s + next_.kernel_s) / 2 for one, next_ in pairs))
