"""Events that follow each other closely, collected so that all of them are handled at once.

Machines are bought and taken many at a time, but their joins, notices and losses arrive one after the other. Handled
one at a time, each would have partitions, shards or the whole job moved for a state that the next one changes.
"""

from __future__ import annotations

from math import inf


class EventBatch:
    """A batch of events; it is due when no further one is waited for.

    Parameters
    ----------
    apart_s : float
        Seconds to wait for another event after each one.
    together_s : float
        Maximum seconds that the first event waits.

    Attributes
    ----------
    size : int
        Number of collected events; 0 while there is no batch.
    """

    def __init__(self, apart_s: float = inf, together_s: float = inf) -> None:
        self._apart_s, self._together_s = apart_s, together_s
        self.size = 0
        self._last_s = 0.0
        self._until_s = inf

    def add(self, now_s: float, count: int = 1, wait_s: float = inf) -> None:
        """Add `count` simultaneous events that wait for others for at most `wait_s` seconds."""
        if not self.size:
            self._until_s = now_s + self._together_s
        self._until_s = min(self._until_s, now_s + wait_s)
        self._last_s = now_s
        self.size += count

    def take(self, now_s: float) -> bool:
        """Return whether the batch is due; if so, it is empty from then on."""
        if not self.size or now_s < min(self._last_s + self._apart_s, self._until_s):
            return False
        self.size = 0
        return True

    def clear(self) -> None:
        """Drop the collected events."""
        self.size = 0
