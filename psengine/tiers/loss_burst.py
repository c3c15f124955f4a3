"""Whether the transient tier is being lost in a burst, of which more is to come.

Losses of many nodes are detected one after the other: the last messages of a machine are queued before the end of its
connection. During a burst no node of that tier is given shards to serve, since the survivors are the likeliest to be
lost next, and each lost server rolls the job back once more.

| nodes of the tier | effect |
|---|---|
| more are lost, each within `BURST_S` of the one before, than are left, and at least `LEAST` | a burst has begun |
| one more is lost | it lasts for another `BURST_S` |
| none is lost for `BURST_S` | it has passed |

Source: Proteus (EuroSys 2017), 3.3 (failures: the job continues from the replicas of the reliable tier).
Differs: the paper considers one failure at a time, and adds a new ActivePS at once.
"""

from __future__ import annotations

from proteus_spot.psengine.membership.event_batch import EventBatch

#: Maximum seconds between two losses of a burst.
BURST_S = 5.0
#: Fewer losses than these are no burst, however few nodes there were.
LEAST = 3


class LossBurst:
    """Losses of one tier of a job.

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
