"""How often the model is gathered and saved before the training is given up for lost. Pure.

The shards stay where they are until the model is saved, so a bad minute of the blob store costs nothing but the minute.
"""

from __future__ import annotations

from psengine.protocol.instructions import GatherModel

#: tries in all; between them 1, 4, 16 and 64 s
TRIES = 5
#: How every reason begins.
NOT_SAVED = "the model could not be saved"


class Saving:
    """State of the end of a job: the order that is carried out, again and again until it is."""

    def __init__(self, order: GatherModel) -> None:
        self.order = order
        #: why the model is not saved yet, or never will be; empty during the first try
        self.reason = ""
        self._tries = 1
        self._again_s: float | None = None  # None while a try is under way
        #: why no other try can help: the shards are gone; empty while they are there
        self.without_shards = ""

    def failed(self, error: str, fatal: bool, now_s: float) -> bool:
        """Note that the try under way failed; return whether there will be another."""
        why = f"{NOT_SAVED}: {error}"
        if fatal or self._tries >= TRIES:
            self.reason = f"{why} (try {self._tries})"
            return False
        self.reason = f"{why} (try {self._tries}; again soon)"
        self._again_s = now_s + 4.0 ** (self._tries - 1)
        return True

    def lose_shards(self, reason: str) -> bool:
        """Note that a server of shards is gone, so that no other try can help; return whether the one under way still may.

        It may have the shards already, and what it saves counts.
        """
        self.without_shards = reason
        return self._again_s is None

    def due(self, now_s: float) -> list[GatherModel]:
        """Return the order once its time has come."""
        if self._again_s is None or now_s < self._again_s:
            return []
        self._tries, self._again_s = self._tries + 1, None
        return [self.order]
