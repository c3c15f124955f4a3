"""Batching of nodes that join during the training, and when those that load may serve.

Machines bought together join some tenths of a second apart. If they were planned for one at a time, partitions would
be given to a node and taken from it again with each of the next, and shards would move several times.

Source: Proteus (EuroSys 2017), 3.3 (machines are added in bulk).
"""

from __future__ import annotations

from proteus_spot.psengine.membership.event_batch import EventBatch

#: Seconds to wait for another node after each one, and maximum seconds that the first one waits.
_APART_S, _TOGETHER_S = 0.5, 3.0
#: Seconds for which shards stay where they are while planned nodes load. Nodes that load for longer serve together
#: with those that are ready within `_TOGETHER_S` of each other.
_LOADS_S = 20.0


class JoinBatching:
    """Nodes that have joined and are not planned for yet, or that load."""

    def __init__(self) -> None:
        self._joined = EventBatch(_APART_S, _TOGETHER_S)
        self._late = EventBatch(_TOGETHER_S, _LOADS_S)
        self._planned_s: float | None = None

    def add(self, now_s: float) -> None:
        """Add a node."""
        self._joined.add(now_s)

    def due(self, now_s: float) -> bool:
        """Return whether the collected nodes are to be planned for now; once."""
        if not self._joined.take(now_s):
            return False
        self._planned_s = now_s
        return True

    def loaded(self, now_s: float) -> None:
        """Note that a node has loaded its partitions."""
        if self._planned_s is not None and now_s >= self._planned_s + _LOADS_S:
            self._late.add(now_s)

    def may_serve_soon(self, now_s: float, loading: bool) -> bool:
        """Return whether others will soon be able to serve, so that shards stay; `loading`: some nodes load."""
        if self._joined.size:
            return True
        if not loading:
            self._planned_s = None
            self._late.clear()
        if self._planned_s is not None and now_s < self._planned_s + _LOADS_S:
            return True
        self._late.take(now_s)
        return bool(self._late.size)
