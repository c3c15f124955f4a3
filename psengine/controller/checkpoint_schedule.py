"""When the committed state is kept, so that a job whose processes are gone goes on from there. Pure.

A checkpoint is asked for when a clock has become common: the servers answer with what is committed at that very clock,
while the workers are already at the next one. Nobody waits for it.

Source: Proteus (EuroSys 2017), 3.3 (checkpoints of the reliable tier).
"""

from __future__ import annotations

from psengine.protocol.checkpoint import Checkpoint

#: after a failure the next try is this many seconds away, or as many as the checkpoints are apart if that is less
AGAIN_S = 5.0


class CheckpointSchedule:
    """State of a job's checkpoints.

    Parameters
    ----------
    every_s : float or None
        Seconds between two checkpoints; None: only when asked for.
    newest : Checkpoint or None
        The one that the job goes on from; None where it begins anew.
    """

    def __init__(self, every_s: float | None, newest: Checkpoint | None) -> None:
        self._every_s = every_s
        #: the newest whole one
        self.newest = newest
        self.under_way: int | None = None
        self._due_s: float | None = None
        self._wanted = False

    @property
    def clock(self) -> int:
        """Clock of the newest whole checkpoint, 0 where there is none."""
        return 0 if self.newest is None else self.newest.clock

    @property
    def wanted(self) -> bool:
        """Whether somebody has asked for one and waits."""
        return self._wanted

    def begin(self, now_s: float) -> None:
        """Note that the training goes on from here."""
        self._put_off(now_s, self._every_s)

    def request(self) -> None:
        """Ask for one as soon as there is something new to keep."""
        self._wanted = True

    def take(self, common: int, now_s: float) -> bool:
        """Return whether the state at clock `common` is to be kept now; if so, it is under way."""
        due = self._wanted or (self._due_s is not None and now_s >= self._due_s)
        if not due or self.under_way is not None:
            return False
        if common <= self.clock:
            self._wanted = False  # the newest checkpoint has it all
            return False
        self.under_way = common
        return True

    def saved(self, checkpoint: Checkpoint, now_s: float) -> None:
        """Note that a checkpoint is whole."""
        if checkpoint.clock >= self.clock:
            self.newest = checkpoint
        self.under_way, self._wanted = None, False
        self._put_off(now_s, self._every_s)

    def failed(self, now_s: float) -> None:
        """Note that the one under way could not be kept; a request stands no longer, for its asker is told."""
        self.under_way, self._wanted = None, False
        self._put_off(now_s, None if self._every_s is None else min(AGAIN_S, self._every_s))

    def _put_off(self, now_s: float, by_s: float | None) -> None:
        self._due_s = None if by_s is None else now_s + by_s
