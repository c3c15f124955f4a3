"""Retries of gathering and saving the final model.

The shards stay where they are until the model is saved, so a short outage of the blob store only delays the end.
"""

from __future__ import annotations

from proteus_spot.psengine.protocol.instructions import GatherModel

#: Maximum number of attempts; between them 1, 4, 16 and 64 s.
TRIES = 5
#: How every reason begins.
NOT_SAVED = "the model could not be saved"


class Saving:
    """State of the end of a job: the instruction, repeated until it succeeds or `TRIES` is reached."""

    def __init__(self, instruction: GatherModel) -> None:
        self.instruction = instruction
        #: Why the model is not saved yet, or cannot be; empty during the first attempt.
        self.reason = ""
        self._tries = 1
        self._again_s: float | None = None  # None while an attempt is under way
        #: Why no further attempt can succeed: the shards were lost; empty while they are served.
        self.without_shards = ""

    def failed(self, error: str, fatal: bool, now_s: float) -> bool:
        """Note that the attempt under way failed; return whether there will be another."""
        why = f"{NOT_SAVED}: {error}"
        if fatal or self._tries >= TRIES:
            self.reason = f"{why} (try {self._tries})"
            return False
        self.reason = f"{why} (try {self._tries}; again soon)"
        self._again_s = now_s + 4.0 ** (self._tries - 1)
        return True

    def lose_shards(self, reason: str) -> bool:
        """Note that a server of shards was lost; return whether an attempt is under way.

        No further attempt can succeed, but this one may have gathered the shards already, and its model counts.
        """
        self.without_shards = reason
        return self._again_s is None

    def due(self, now_s: float) -> list[GatherModel]:
        """Return the instruction once the next attempt is due."""
        if self._again_s is None or now_s < self._again_s:
            return []
        self._tries, self._again_s = self._tries + 1, None
        return [self.instruction]
