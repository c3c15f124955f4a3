"""Deduplication of messages: a sliding window of the sequence numbers received from one sender."""

from __future__ import annotations

#: Maximum number of sequence numbers remembered above a gap.
_WINDOW = 1024


class SequenceWindow:
    """Sequence numbers received from one sender: all up to a floor, and some above it."""

    def __init__(self) -> None:
        self._floor = 0
        self._above: set[int] = set()

    def seen(self, sequence: int) -> bool:
        """Return whether `sequence` (1, 2, …) was noted."""
        return sequence <= self._floor or sequence in self._above

    def note(self, sequence: int) -> None:
        """Note `sequence`. Numbers missing below over a thousand later ones count as seen: they are obsolete."""
        self._above.add(sequence)
        while self._floor + 1 in self._above or len(self._above) > _WINDOW:
            self._floor += 1
            self._above.discard(self._floor)
