"""What the controller knows of one node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from psengine.config import Tier
from psengine.membership.placement import Capacity

#: what each means stands in `membership`
NodeState = Literal["joining", "ready", "leaving", "unfit", "draining", "drained", "lost"]


@dataclass
class NodeRecord:
    """State of one node; `gone` when its process is no more (a drained node that went stays `drained`)."""

    name: str
    address: str
    tier: Tier
    threads: int
    #: digest of the user's code that its process has; empty where it has none
    code_sha256: str = ""
    state: NodeState = "joining"
    gone: bool = False
    #: partitions it said it holds
    holds: frozenset[int] = frozenset()
    #: partitions of the latest load request, and its number
    wanted: frozenset[int] | None = None
    request: int = 0
    #: when the notice runs out
    until_s: float | None = None
    noticed: bool = False
    #: the last clock that it is to begin, once its time to end has come
    last_clock: int | None = None
    #: why it is unfit
    error: str = ""

    @property
    def loads(self) -> bool:
        """Whether there is something that it was told to load, and has not said that it holds."""
        told = self.state in ("joining", "ready", "leaving") and self.wanted is not None
        return told and not (self.wanted or frozenset()) <= self.holds

    @property
    def seat(self) -> Capacity:
        """The node as the plan sees it."""
        return Capacity(self.name, self.threads, self.holds)
