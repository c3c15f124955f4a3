"""Whether updates are added up on a tree of nodes: by measurement, unless the job fixes it.

Without the tree each node sends its updates to every server: nodes x servers messages a clock, and the link of a server
carries the updates of all nodes. On the tree there are nodes + servers messages, each link carries a sum for every
child, and a sum has to go up level by level. Which takes longer depends on the links, the table and the kernels. So
both are tried, once the nodes and servers have been the same for some clocks:

| measured | then |
|---|---|
| pushes take less than `SHARE` of a clock, or there are few nodes and servers | no tree |
| else | `WINDOW` clocks with the tree |
| these are shorter by `GAIN` than as many before | the tree stays |
| not so | no tree |

What was found holds until the number of nodes or servers has changed by more than a quarter. All of it follows from the
events of committed clocks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

#: Share of a clock that pushes take at least if the tree is tried, and by which the tree has to shorten clocks.
SHARE, GAIN = 0.1, 0.05
#: Number of clocks that are measured with and without the tree; the first one after a change is left out.
WINDOW = 6
#: The tree is tried where direct pushes are this many times as many messages.
MESSAGES = 2.0
#: Relative change of the number of nodes or servers after which the tree is tried again.
_CHANGED = 0.25


@dataclass(frozen=True)
class Pushers:
    """Number of nodes that push, and of servers that they push to, in a stage."""

    nodes: int
    servers: int
    stage: int

    @property
    def many(self) -> bool:
        """Whether direct pushes are many more messages than those of a tree."""
        return self.nodes * self.servers >= MESSAGES * (self.nodes + self.servers)

    def like(self, other: Pushers) -> bool:
        """Return whether what was measured with `other` holds here, too."""
        pairs = ((self.nodes, other.nodes), (self.servers, other.servers))
        return self.stage == other.stage and all(abs(one - two) <= _CHANGED * two for one, two in pairs)


class PushChoice:
    """The choice of one job.

    Attributes
    ----------
    on : bool
        Whether clocks that begin now use the tree.
    """

    def __init__(self) -> None:
        self.on = False
        self._fixed = False
        self._state: Literal["direct", "trial", "settled"] = "direct"
        self._nodes: Pushers | None = None
        #: (seconds, those of the pushes) of the last clocks.
        self._recent: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._direct_s = 0.0
        self._skip = 1
        #: {clock: seconds of the pushes of its batches}, of clocks that are not committed.
        self._pushes: dict[int, list[float]] = {}

    def pushed(self, clock: int, seconds: float) -> None:
        """Note how long the updates of a batch took to the servers."""
        self._pushes.setdefault(clock, []).append(seconds)

    def fix(self, on: bool) -> None:
        """Use the tree always, or never."""
        self.on, self._fixed = on, True

    def interrupt(self) -> None:
        """Note that the job has rolled back, or that shards move: the clocks of now are not typical."""
        self._pushes.clear()
        self._begin()

    def _begin(self) -> None:
        self._recent.clear()
        self._skip = 1

    def note(self, nodes: Pushers, clock: int, seconds: float) -> bool:
        """Note a committed clock; return whether the choice has changed."""
        pushes = self._pushes.pop(clock, [])
        push_s = sum(pushes) / max(1, len(pushes))
        if self._fixed:
            return False
        before = self.on
        if self._nodes is None or not nodes.like(self._nodes):
            self._state, self._nodes, self.on = "direct", nodes, False
            self._begin()
        elif self._skip:
            self._skip -= 1
        else:
            self._recent.append((seconds, push_s))
            if len(self._recent) == WINDOW:
                self._decide(nodes)
        return self.on != before

    def _decide(self, nodes: Pushers) -> None:
        clock_s = median((one + other) / 2 for (one, _), (other, _) in pairwise(self._recent))  # long and short ones
        if self._state == "direct":
            push_s = median(push_s for _, push_s in self._recent)
            if nodes.many and push_s >= SHARE * clock_s:
                self._state, self.on, self._direct_s = "trial", True, clock_s
                self._begin()
        elif self._state == "trial":
            self._state, self.on = "settled", clock_s <= self._direct_s * (1 - GAIN)
            self._begin()
