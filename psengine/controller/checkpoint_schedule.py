"""When the committed state is saved as a checkpoint, from which a job continues if its processes are lost.

A checkpoint begins when a clock has become common: the servers send the state committed at that clock while the workers
compute the next one. The training does not wait for it.

Source: Proteus (EuroSys 2017), 3.3 (checkpoints of the reliable tier).
"""

from __future__ import annotations

from collections.abc import Sequence

from proteus_spot.psengine.protocol.checkpoint import KEPT, Checkpoint

#: Maximum seconds from a failure to the next attempt; the interval of the checkpoints if that is less.
AGAIN_S = 5.0


class CheckpointSchedule:
    """State of a job's checkpoints.

    Parameters
    ----------
    every_s : float or None
        Seconds between two checkpoints; None: only on request.
    kept : sequence of Checkpoint
        The checkpoints of a job that continues, the newest first.
    """

    def __init__(self, every_s: float | None, kept: Sequence[Checkpoint] = ()) -> None:
        self._every_s = every_s
        #: Complete checkpoints, the newest first.
        self.kept = tuple(kept)
        self.under_way: int | None = None
        self._due_s: float | None = None
        #: Whether a request is pending.
        self.wanted = False

    @property
    def newest(self) -> Checkpoint | None:
        """Newest complete checkpoint; None if there is none."""
        return self.kept[0] if self.kept else None

    @property
    def group(self) -> int:
        """Last group of the newest complete checkpoint; 0 if there is none."""
        return 0 if self.newest is None else self.newest.group

    def begin(self, now_s: float) -> None:
        """Note that the training starts or resumes now; what is due stays due, however often the job rolls back."""
        if self._due_s is None:
            self._put_off(now_s, self._every_s)

    def request(self) -> None:
        """Request a checkpoint as soon as there is a newer state to save."""
        self.wanted = True

    def take(self, common: int, now_s: float) -> bool:
        """Return whether the state at the group `common` is to be saved now; if so, mark it as under way."""
        due = self.wanted or (self._due_s is not None and now_s >= self._due_s)
        if not due or self.under_way is not None:
            return False
        if common <= self.group:
            self.wanted = False  # the newest checkpoint holds this state
            return False
        self.under_way = common
        return True

    def saved(self, checkpoint: Checkpoint, now_s: float) -> None:
        """Note that a checkpoint is complete."""
        if checkpoint.group >= self.group:
            self.kept = (checkpoint, *self.kept)[:KEPT]
        self.under_way, self.wanted = None, False
        self._put_off(now_s, self._every_s)

    def drop(self, name: str) -> None:
        """Forget a damaged checkpoint."""
        self.kept = tuple(checkpoint for checkpoint in self.kept if checkpoint.name != name)

    def failed(self, now_s: float) -> None:
        """Note that the checkpoint under way failed; a pending request is dropped, since its client gets the error."""
        self.under_way, self.wanted = None, False
        self._put_off(now_s, None if self._every_s is None else min(AGAIN_S, self._every_s))

    def _put_off(self, now_s: float, by_s: float | None) -> None:
        self._due_s = None if by_s is None else now_s + by_s
