"""How often the model is gathered and saved before the training is given up for lost. Pure.

The shards stay where they are until the model is saved, so a bad minute of the blob store costs nothing but the minute.
"""

from __future__ import annotations

from psengine.instructions import GatherModel

#: tries in all; between them 1, 4, 16 and 64 s
TRIES = 5


class Saving:
    """State of the end of a job: the order that is carried out, again and again until it is."""

    def __init__(self, order: GatherModel) -> None:
        self.order = order
        self.tries = 1
        #: when the next try is due; None while one is under way
        self.again_s: float | None = None
        #: why another try cannot help, once a server of a shard is gone
        self.lost: str | None = None

    def failed(self, now_s: float) -> bool:
        """Note that the try under way failed; return whether there will be another."""
        if self.tries >= TRIES or self.lost is not None:
            return False
        self.again_s = now_s + 4.0 ** (self.tries - 1)
        return True

    def due(self, now_s: float) -> list[GatherModel]:
        """Return the order once its time has come."""
        if self.again_s is None or now_s < self.again_s:
            return []
        self.tries, self.again_s = self.tries + 1, None
        return [self.order]
