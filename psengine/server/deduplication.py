"""Which messages of one sender have come already: each counts once, however often it comes. Pure."""

from __future__ import annotations

#: Numbers above a gap that are remembered.
_WINDOW = 1024


class SequenceWindow:
    """Which message numbers of one sender were seen: all up to a floor, and some above it."""

    def __init__(self) -> None:
        self._floor = 0
        self._above: set[int] = set()

    def seen(self, sequence: int) -> bool:
        """Return whether `sequence` (1, 2, …) was noted."""
        return sequence <= self._floor or sequence in self._above

    def note(self, sequence: int) -> None:
        """Remember `sequence`. A gap of more than a thousand is given up: such a message is no longer wanted."""
        self._above.add(sequence)
        while self._floor + 1 in self._above or len(self._above) > _WINDOW:
            self._floor += 1
            self._above.discard(self._floor)
