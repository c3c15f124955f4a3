"""Events that follow each other closely, collected so that all of them are handled at once: joins, and losses.

Machines are bought and taken many at a time, but their joins, notices and losses arrive one after the other. Handled
one at a time, each would have partitions, shards or the whole job moved for a state that the next one changes.
"""

from __future__ import annotations

from math import inf

#: Seconds to wait for another node after each one, and maximum seconds that the first one waits.
_APART_S, _TOGETHER_S = 0.5, 3.0
#: Seconds for which shards stay where they are while planned nodes load. Nodes that load for longer serve together
#: with those that are ready within `_TOGETHER_S` of each other.
_LOADS_S = 20.0
#: Maximum seconds between two losses of a burst.
BURST_S = 5.0
#: Fewer losses than these are no burst, however few nodes there were.
LEAST = 3


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


class JoinBatching:
    """Nodes that have joined during the training and are not planned for yet, or that load, and when those may serve.

    Machines bought together join some tenths of a second apart. If they were planned for one at a time, partitions
    would be given to a node and taken from it again with each of the next, and shards would move several times.

    Source: Proteus (EuroSys 2017), 3.3 (machines are added in bulk).
    """

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


class LossBurst:
    """Whether one tier of a job is being lost in a burst, of which more is to come.

    Losses of many nodes are detected one after the other: the last messages of a machine are queued before the end of
    its connection. During a burst no node of the transient tier is given shards to serve, since the survivors are the
    likeliest to be lost next, and each lost server rolls the job back once more.

    | nodes of the tier | effect |
    |---|---|
    | more are lost, each within `BURST_S` of the one before, than are left, and at least `LEAST` | a burst has begun |
    | one more is lost | it lasts for another `BURST_S` |
    | none is lost for `BURST_S` | it has passed |

    Source: Proteus (EuroSys 2017), 3.3 (failures: the job continues from the replicas of the reliable tier).
    Differs: the paper considers one failure at a time, and adds a new ActivePS at once.

    Attributes
    ----------
    on : bool
        Whether a burst has begun and not passed.
    """

    def __init__(self) -> None:
        self.on = False
        self._losses = EventBatch(BURST_S)

    def lose(self, lost: int, left: int, now_s: float) -> None:
        """Note that `lost` nodes without a notice were lost at one time, and `left` ones are present still."""
        if lost:
            self._losses.take(now_s)  # those before were no part of it
            self._losses.add(now_s, lost)
            self.on = self.on or self._losses.size >= max(LEAST, left + 1)

    def passes(self, now_s: float) -> bool:
        """Return whether a burst has passed; once."""
        if not self.on or not self._losses.take(now_s):
            return False
        self.on = False
        return True
