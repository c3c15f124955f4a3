"""Autonomous scale-in: the nodes and servers that a job no longer needs, as its memory falls.

What one node can hold is what the job has held at most, divided by the largest number of nodes that it has had: they
were chosen for that. When all that the job holds fits on fewer nodes, with a reserve, for some clocks in a row, the
transient nodes that are left over are *offered* for release. An offered node works on until it is let go. Each further
fall of the memory offers more of them; an offer is withdrawn when the memory has risen above what the other nodes can
hold. More nodes than ever before start the rule over. Servers are merged by the same rule, by the memory of the tables.

Never offered: reliable nodes, and transient ones without which the job would leave its stage.

Source: Litz (2017), 4.3, which names it as future work: 80 % fewer servers, half of the workers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Share of what a node can hold that stays free after a release.
RESERVE = 0.1
#: Number of successive common clocks at which all has to fit on fewer nodes.
PATIENCE = 3


@dataclass(frozen=True)
class JobMemory:
    """What a job holds at a common clock.

    Attributes
    ----------
    n_reliable : int
        Number of reliable nodes that work or serve.
    transient : sequence of str
        Names of the transient nodes that work; those that are to be released first come first.
    n_bytes, table_bytes : int
        Memory of all these nodes, and of it that of tables.
    n_servers : int
        Number of transient nodes that serve shards; 0 in stage 1.
    least : int
        Number of transient nodes that the job keeps in any case.
    """

    n_reliable: int
    transient: Sequence[str]
    n_bytes: int
    table_bytes: int
    n_servers: int
    least: int


class HolderLimit:
    """Number of holders that some memory needs.

    Attributes
    ----------
    limit : int or None
        Maximum number of holders; None while all are needed.
    """

    def __init__(self) -> None:
        self.limit: int | None = None
        #: Largest number of holders, and the most that they have held for `PATIENCE` clocks, in bytes.
        self._most, self._peak = 0, 0
        #: Memory at the last clocks.
        self._recent: list[int] = []

    @property
    def each(self) -> float:
        """Bytes that one holder can have."""
        return self._peak / self._most if self._most else 0.0

    def look(self, n_bytes: int, present: int, least: int) -> None:
        """Note the memory of all holders, of which `present` are there and `least` have to stay."""
        if present > self._most:
            self.limit, self._most, self._peak, self._recent = None, present, 0, []
        self._recent = [*self._recent[1 - PATIENCE :], n_bytes]
        if len(self._recent) < PATIENCE:
            return
        self._peak = max(self._peak, min(self._recent))
        if not self._peak:
            return  # nothing was measured so far
        if self.limit is not None and min(self._recent) > self.each * self.limit:
            self.limit = None
        holders = self._most if self.limit is None else self.limit
        wanted = max(least, 1, math.ceil(max(self._recent) / ((1 - RESERVE) * self.each)))
        if wanted < holders:
            self.limit = wanted


class ScaleIn:
    """Offers of one job."""

    def __init__(self) -> None:
        self._nodes, self._servers = HolderLimit(), HolderLimit()
        #: Names of the nodes that are offered for release.
        self.offered: tuple[str, ...] = ()
        #: Maximum number of transient nodes that the job has a use for; None: no limit.
        self.machines: int | None = None

    @property
    def most_servers(self) -> int | None:
        """Maximum number of transient nodes that serve shards; None: no limit."""
        return self._servers.limit

    def look(self, held: JobMemory) -> None:
        """Note what the job holds at a common clock, and decide."""
        present = frozenset(held.transient)
        self._nodes.look(held.n_bytes, held.n_reliable + len(present), held.n_reliable + held.least)
        if held.n_servers:
            self._servers.look(held.table_bytes, held.n_servers, 1)
        limit = self._nodes.limit
        self.machines = None if limit is None else max(held.least, limit - held.n_reliable)
        count = 0 if self.machines is None else max(0, len(present) - self.machines)
        order = [*(name for name in self.offered if name in present), *held.transient]
        self.offered = tuple(dict.fromkeys(order))[:count]
