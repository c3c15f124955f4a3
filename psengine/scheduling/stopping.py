"""How far a job goes: to its target, to where a stop or its time ends it, or for the time being to where it is held. Pure."""

from __future__ import annotations


class StoppingRule:
    """Limits of one job, in clocks; a hold may be asked for before there is a job."""

    def __init__(self) -> None:
        #: the job's own target; None when only time ends it
        self.target: int | None = None
        #: why the job was told to stop; None while it was not
        self.stop_reason: str | None = None
        self._ends_at: int | None = None
        self._held_at: int | None = None

    @property
    def ending(self) -> bool:
        """Whether the job ends before its target, because it was stopped or its time is over."""
        return self._ends_at is not None

    @property
    def last_clock(self) -> int | None:
        """The clock after which none is begun, None when only time ends the job."""
        return _earlier(self.target, self._ends_at)

    @property
    def limit(self) -> int | None:
        """The clock after which none is begun just now: the last one, or an earlier one at which the job is held."""
        return self.last_clock if self.ending else _earlier(self.last_clock, self._held_at)  # an end is not held up

    def end_at(self, clock: int) -> None:
        """Begin no clock after this one."""
        self._ends_at = clock

    def pause_at(self, clock: int | None) -> None:
        """Begin no clock after this one for the time being; None lets the job go on."""
        self._held_at = clock


def _earlier(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)
