"""What is kept of a job against losses, and how all go back to it: to the servers' copies, or to the last checkpoint. Pure.

| what is left of every shard | all go back to |
|---|---|
| a copy of the last whole round of backups | the clock of that round (`to_copies`) |
| less than that | the newest checkpoint, or the beginning where there is none (`to_checkpoint`) |

Source: Proteus (EuroSys 2017), 3.3 (failures, checkpoints of the reliable tier).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from psengine.config import JobConfig
from psengine.controller.checkpoint_schedule import CheckpointSchedule
from psengine.membership.membership import Membership
from psengine.protocol.checkpoint import Checkpoint
from psengine.protocol.instructions import Instruction, SaveCheckpoint
from psengine.scheduling.micro_tasks import MicroTaskBook
from psengine.telemetry.training_progress import TrainingProgress
from psengine.tiers.tier_manager import Tiers


def loss_of(servers: Sequence[str], why: str) -> str:
    """Return a line on the loss of `servers`; `why` is what is known of the first of them."""
    if len(servers) == 1:
        return f"node {servers[0]} is gone and with it the shards it served: {why}"
    return f"node {servers[0]} and {len(servers) - 1} more are gone and with them the shards they served: {why}"


class Recovery:
    """State of one job's ways back; it takes the book of micro-tasks and the progress back along with the shards.

    Attributes
    ----------
    restored : Checkpoint or None
        What shards that are opened anew go on from; None: from the beginning.
    rollbacks : list of (int, str)
        The clock that all went back to, and why, of every time.
    """

    def __init__(self, members: Membership, tiers: Tiers, progress: TrainingProgress) -> None:
        self._members, self._tiers, self._progress = members, tiers, progress
        self._job: tuple[JobConfig, MicroTaskBook] | None = None
        self.checkpoints = CheckpointSchedule(None, None)
        self.restored: Checkpoint | None = None
        self.rollbacks: list[tuple[int, str]] = []

    def adopt(self, config: JobConfig, book: MicroTaskBook, checkpoint: Checkpoint | None) -> None:
        """Begin with a job, or go on with it from `checkpoint`, whose figures are taken over."""
        self._job = config, book
        self.checkpoints = CheckpointSchedule(config.checkpoint_s, checkpoint)
        self.restored = checkpoint
        if checkpoint is not None:
            self._progress.go_on(checkpoint.summary)
            self.rollbacks = [(int(back["clock"]), back["reason"]) for back in checkpoint.summary.get("went_back", [])]
            book.repeated = int(checkpoint.summary["repeated_micro_tasks"])

    def keep(self, now_s: float, figures: Callable[[int], dict[str, Any]]) -> list[Instruction]:
        """Return the order of a checkpoint, if one is due; `figures` gives what the job had come to at a clock.

        Where copies of all shards are kept, it is of what is kept, and those who train know nothing of it; but who asks
        for one wants all that is common. Where a keeper is gone, or copies come to nothing, the servers have all of it.
        """
        if self._job is None:
            return []
        config, book = self._job
        backups = self._tiers.backups
        stale = backups.failing and backups.clock is not None and backups.clock <= self.checkpoints.clock
        kept_at = None if self.checkpoints.wanted or stale else backups.places()
        clock = book.common if kept_at is None or backups.clock is None else backups.clock
        if not self.checkpoints.take(clock, now_s):
            return []
        owners = self._tiers.shards.owners if kept_at is None else kept_at
        return [SaveCheckpoint(config, clock, owners, figures(clock), from_keepers=kept_at is not None)]

    def saved(self, checkpoint: Checkpoint, now_s: float, nowhere: bool) -> None:
        """Note that a checkpoint is whole.

        `nowhere`: all have gone back, and the shards are to be opened anew. If this checkpoint was being written at that
        time and is a newer one, they go on from it.
        """
        self.checkpoints.saved(checkpoint, now_s)
        if nowhere and self.rollbacks and checkpoint.clock > (0 if self.restored is None else self.restored.clock):
            self.restored = checkpoint
            _, reason = self.rollbacks.pop()
            self._roll_back(checkpoint.clock, f"{reason}; the checkpoint of clock {checkpoint.clock} was whole by then")

    def roll_back_to_replicas(self, reason: str) -> list[Instruction] | None:
        """Return the orders by which all go back to the last whole round; None, and nothing done, where one is missing."""
        config, _ = self._of_job
        rescue = self._tiers.restore_from_replicas(config, self._members)
        if rescue is None:
            return None
        clock, orders = rescue
        self._roll_back(clock, f"{reason}; all go back to clock {clock}")
        return orders

    def roll_back_to_checkpoint(self, reason: str) -> None:
        """Have all go back to the newest checkpoint, or to the beginning; the shards are nowhere until they are opened anew."""
        self.restored = self.checkpoints.newest
        clock = self.checkpoints.clock
        where = f"the checkpoint of clock {clock}" if clock else "the beginning, for there is no checkpoint"
        self._tiers.abandon(self._members)
        self._roll_back(clock, f"{reason}; all go back to {where}, once a reliable node can serve")

    @property
    def _of_job(self) -> tuple[JobConfig, MicroTaskBook]:
        assert self._job is not None, "a loss before there is a job"
        return self._job

    def _roll_back(self, clock: int, reason: str) -> None:
        _, book = self._of_job
        if clock > book.common and self.restored is not None:  # what was kept was older than the checkpoint
            self._progress.go_on(self.restored.summary)
        book.roll_back(clock)
        self._progress.roll_back(clock)
        self.rollbacks.append((clock, reason))
