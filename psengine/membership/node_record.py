"""State of one node, as the controller keeps it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from proteus_spot.psengine.config import Tier
from proteus_spot.psengine.membership.placement import Capacity

#: See the table in `membership`.
NodeState = Literal["joining", "ready", "leaving", "unfit", "draining", "drained", "lost"]
#: Fields by which a node is found, or which are recorded when they change.
_WATCHED = frozenset({"state", "gone", "noticed"})


@dataclass
class NodeRecord:
    """State of one node; `gone` once its process has ended (a drained node that left stays `drained`)."""

    name: str
    address: str
    tier: Tier
    threads: int
    #: Digest of the user's code in its process; empty without such code.
    code_sha256: str = ""
    #: Why its program cannot work with this controller; empty where it can.
    misfit: str = ""
    state: NodeState = "joining"
    gone: bool = False
    #: Partitions that it has reported as loaded.
    holds: frozenset[int] = frozenset()
    #: Partitions of the latest load request, and the number of that request.
    wanted: frozenset[int] | None = None
    request: int = 0
    #: Time at which the notice or the drain deadline runs out, in the controller's seconds.
    until_s: float | None = None
    noticed: bool = False
    #: Last clock that it is to begin, set once its work is to end.
    last_clock: int | None = None
    #: Why it is quarantined.
    error: str = ""
    #: Whether it is quarantined because a read failed, so that it is requested again, at `again_s` or before.
    recovers: bool = False
    again_s: float | None = None
    #: Number of times that a read failed.
    failed_reads: int = 0
    #: Bytes that its process holds, by kind (see `memory_use`), as it reported last.
    memory: Mapping[str, int] = field(default_factory=dict)
    #: Number of nodes that had joined before it, and itself.
    number: int = 0

    def watch(self, before: Callable[[NodeRecord], None], after: Callable[[NodeRecord], None]) -> None:
        """Call `before` and `after` around each change of its state, of `gone` and of `noticed`."""
        object.__setattr__(self, "_watcher", (before, after))

    def unwatch(self) -> None:
        """Call nothing any more."""
        object.__setattr__(self, "_watcher", None)

    def __setattr__(self, name: str, value: Any) -> None:
        watcher = self.__dict__.get("_watcher") if name in _WATCHED else None
        if watcher is None or getattr(self, name) == value:
            object.__setattr__(self, name, value)
            return
        before, after = watcher
        before(self)
        object.__setattr__(self, name, value)
        after(self)

    @property
    def loads(self) -> bool:
        """Whether a requested partition has not been reported as loaded yet."""
        requested = self.state in ("joining", "ready", "leaving") and self.wanted is not None
        return requested and not (self.wanted or frozenset()) <= self.holds

    @property
    def capacity(self) -> Capacity:
        """The node's weight and loaded partitions, for `placement`."""
        return Capacity(self.name, self.threads, self.holds)


def memory_of(nodes: Iterable[NodeRecord], partitions: Mapping[str | None, Collection[int]]) -> dict[str, int]:
    """Return the memory of nodes by kind; of their input the share of the partitions that they own (`partitions`).

    Partitions that a node holds for another one, or has not dropped yet, are in memory twice or more.
    """
    total: Counter[str] = Counter()
    for node in nodes:
        total.update(node.memory)
        held, owned = len(node.holds), len(partitions.get(node.name) or ())
        total["input"] -= node.memory.get("input", 0) * max(0, held - owned) // max(1, held)
    return {kind: total[kind] for kind in ("tables", "states", "input")}
