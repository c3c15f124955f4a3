"""Stopping rule: the last clock of a job, by its target, a stop, its time limit, or a hold."""

from __future__ import annotations


class StoppingRule:
    """Limits of one job, in clocks; a hold may be requested before there is a job."""

    def __init__(self) -> None:
        #: The job's number of clocks; None if only time ends it.
        self.target: int | None = None
        #: Reason of a requested stop; None without one.
        self.stop_reason: str | None = None
        self._ends_at: int | None = None
        self._held_at: int | None = None

    @property
    def ending(self) -> bool:
        """Whether the job ends before its target, because of a stop or its time limit."""
        return self._ends_at is not None

    @property
    def last_clock(self) -> int | None:
        """The clock after which none is begun; None if only time ends the job."""
        return _earlier(self.target, self._ends_at)

    @property
    def limit(self) -> int | None:
        """The clock after which none is begun at present: the last one, or an earlier one at which the job is held."""
        return self.last_clock if self.ending else _earlier(self.last_clock, self._held_at)  # a hold delays no end

    def end_at(self, clock: int) -> None:
        """Set the last clock of the job."""
        self._ends_at = clock

    def pause_at(self, clock: int | None) -> None:
        """Hold the job after `clock`; None lets it continue."""
        self._held_at = clock


def _earlier(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)
