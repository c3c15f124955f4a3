"""Whether the transient tier is being lost in a wave, of which more is to come.

Who loses much of a tier at one time hears of it in dribs: what a machine sent last stands before the end of its
connection, in every queue on the way. As long as a wave lasts nobody of that tier is given shards to serve, for whoever
is still there is the likeliest to be told of next, and every server that is lost takes all back once more.

| nodes of the tier | then |
|---|---|
| more are lost within `WAVE_S` than are left, and at least `LEAST` | a wave has begun |
| one more is lost | it lasts anew |
| none is lost for `WAVE_S` | it has passed |

Source: Proteus (EuroSys 2017), 3.3 (failures: what the reliable tier keeps is gone on from).
Differs: the paper has one failure at a time in mind, and a new ActivePS at once.
"""

from __future__ import annotations

#: Losses that are so many seconds apart belong together.
WAVE_S = 5.0
#: Fewer than these are no wave, however few nodes there were.
LEAST = 3


class Wave:
    """Losses of one tier of a job.

    Attributes
    ----------
    on : bool
        Whether a wave has begun and not passed.
    """

    def __init__(self) -> None:
        self.on = False
        #: (when, how many)
        self._losses: list[tuple[float, int]] = []

    def lose(self, lost: int, left: int, now_s: float) -> None:
        """Note that `lost` nodes that nobody had told to go are gone at one time, and `left` ones are there still."""
        if not lost:
            return
        self._losses = [*self._recent(now_s), (now_s, lost)]
        together = sum(count for _, count in self._losses)
        self.on = self.on or together >= max(LEAST, left + 1)

    def passes(self, now_s: float) -> bool:
        """Return whether the wave, if there was one, has passed by now; it has, from then on."""
        if not self.on or self._recent(now_s):
            return False
        self.on = False
        return True

    def _recent(self, now_s: float) -> list[tuple[float, int]]:
        return [(when, count) for when, count in self._losses if now_s - when < WAVE_S]
