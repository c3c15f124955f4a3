"""Nodes that join while a training goes on, planned for together.

Whoever buys many machines has them come one after the other, some tenths of a second apart. Planned for one at a time,
a partition would be given to a node and taken from it again with each of the next, what a node works on would come
apart in pieces, and shards would move to the first ones only to move on.

Source: Proteus (EuroSys 2017), 3.3 (machines are added in bulk).
"""

from __future__ import annotations

#: Seconds for which another one is waited for, and for which the first one waits at most.
_APART_S, _TOGETHER_S = 0.5, 3.0
#: Seconds for which shards stay where they are, as long as nodes load that will be there to serve them; after that
#: those who have loaded by then, and who do so soon after them, are the next to serve.
_LOADS_S = 20.0


class Arrivals:
    """Those who have joined, and are not planned for yet, or have been and load."""

    def __init__(self) -> None:
        self._first_s: float | None = None
        self._last_s = 0.0
        self._planned_s: float | None = None
        #: When the first and the last one had loaded of those who were not waited for.
        self._loaded_s: tuple[float, float] | None = None

    def add(self, now_s: float) -> None:
        """Take one more."""
        self._first_s = now_s if self._first_s is None else self._first_s
        self._last_s = now_s

    def due(self, now_s: float) -> bool:
        """Return whether those who have come are to be planned for now; once."""
        if self._first_s is None or now_s < min(self._last_s + _APART_S, self._first_s + _TOGETHER_S):
            return False
        self._first_s, self._planned_s = None, now_s
        return True

    def loaded(self, now_s: float) -> None:
        """Note that one of them is there."""
        if self._planned_s is not None and now_s >= self._planned_s + _LOADS_S:
            self._loaded_s = now_s if self._loaded_s is None else self._loaded_s[0], now_s

    def may_serve_soon(self, now_s: float, loading: bool) -> bool:
        """Return whether others will be there soon, so that shards stay where they are; `loading`: some nodes load."""
        if self._first_s is not None:
            return True
        if not loading:
            self._planned_s = self._loaded_s = None
        if self._planned_s is not None and now_s < self._planned_s + _LOADS_S:
            return True
        if self._loaded_s is not None and now_s >= min(self._loaded_s[1] + _TOGETHER_S, self._loaded_s[0] + _LOADS_S):
            self._loaded_s = None
        return self._loaded_s is not None
