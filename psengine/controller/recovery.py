"""Rollback of a job after a loss: to replicas of the shards, or to the last checkpoint.

| available of every shard | the job rolls back to |
|---|---|
| a replica of the last complete replication round | the clock of that round (`roll_back_to_replicas`) |
| less than that | the newest checkpoint, or the beginning if there is none (`roll_back_to_checkpoint`) |
| of a damaged checkpoint | the one before it, or the beginning (`is_damaged`) |

Source: Proteus (EuroSys 2017), 3.3 (failures, checkpoints of the reliable tier).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.checkpoint_schedule import CheckpointSchedule
from proteus_spot.psengine.membership.membership import Membership
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.protocol.instructions import Instruction, SaveCheckpoint
from proteus_spot.psengine.protocol.moved_state import StateRef
from proteus_spot.psengine.scheduling.driver_host import DriverHost
from proteus_spot.psengine.scheduling.task_table import TaskTable
from proteus_spot.psengine.telemetry.training_progress import NO_FIGURES, TrainingProgress
from proteus_spot.psengine.tiers.tier_manager import Tiers

#: How the reason of a rollback begins whose checkpoint could not be used.
DAMAGED = "a checkpoint is damaged"


def loss_of(nodes: Sequence[str], served: bool, why: str) -> str:
    """Return a line on the loss of `nodes`; `why` is the reported reason for the first of them.

    `served`: they served shards; else they had states of partitions.
    """
    if len(nodes) == 1:
        what = "the shards it served" if served else "the states of its partitions"
        return f"node {nodes[0]} was lost with {what}: {why}"
    what = "the shards they served" if served else "the states of their partitions"
    return f"node {nodes[0]} and {len(nodes) - 1} more were lost with {what}: {why}"


def states_of(checkpoint: Checkpoint) -> tuple[StateRef, ...]:
    """Return the states of partitions in a checkpoint."""
    return tuple(
        StateRef(partition, checkpoint.group, 0, checkpoint=checkpoint.name) for partition in checkpoint.partitions
    )


class Recovery:
    """Rollback of one job: it rolls back the tasks and the progress along with the shards.

    Attributes
    ----------
    restored : Checkpoint or None
        Checkpoint that reopened shards start from; None: the initial values.
    rollbacks : list of (int, str)
        Clock and reason of every rollback.
    damage : str
        A line on the last checkpoint that could not be used in this process; empty if there was none.
    """

    def __init__(self, members: Membership, tiers: Tiers, progress: TrainingProgress) -> None:
        self._members, self._tiers, self._progress = members, tiers, progress
        self._job: tuple[JobConfig, TaskTable, DriverHost] | None = None
        self.checkpoints = CheckpointSchedule(None)
        self.restored: Checkpoint | None = None
        self.rollbacks: list[tuple[int, str]] = []
        self.damage = ""
        #: (partition, earlier checkpoint) of the states that the checkpoint under way takes from an earlier one.
        self._carried: set[tuple[int, str]] = set()

    def adopt(
        self, config: JobConfig, tasks: TaskTable, driver: DriverHost, kept: Sequence[Checkpoint], damaged: str
    ) -> None:
        """Begin a job, or continue it from the first of the `kept` checkpoints, whose figures are taken over.

        `damaged`: a line on newer ones, which cannot be used.
        """
        self._job = config, tasks, driver
        self.checkpoints = CheckpointSchedule(config.checkpoint_s, kept)
        checkpoint = self.checkpoints.newest
        self.restored = checkpoint
        if checkpoint is not None:
            self._progress.go_on(checkpoint.summary, checkpoint.group)
            self.rollbacks = [(int(back["clock"]), back["reason"]) for back in checkpoint.summary.get("went_back", [])]
            tasks.states.restore(states_of(checkpoint))
            tasks.repeated = int(checkpoint.summary["repeated_micro_tasks"])
        if damaged:
            clock = 0 if checkpoint is None else checkpoint.clock
            self.damage = f"{DAMAGED}: {damaged}; the job goes on from {self._target(clock)}"
            self.rollbacks.append((clock, self.damage))
        driver.resume(checkpoint)

    def keep(self, now_s: float, figures: Callable[[int], dict[str, Any]]) -> list[Instruction]:
        """Return the instruction for a checkpoint, if one is due; `figures` returns the job's summary at a group.

        If all shards have replicas, the checkpoint is read from these, which costs the training nothing; a requested
        checkpoint is of the last common clock, and so is read from the servers. The servers are also read if a backup
        owner was lost or replication fails, and in stage 1, where replicas are older, and their owners serve, too.
        """
        if self._job is None:
            return []
        config, tasks, driver = self._job
        backups = self._tiers.backups
        stale = backups.failing and backups.group is not None and backups.group <= self.checkpoints.group
        replicas = None if self.checkpoints.wanted or stale or self._tiers.stage == 1 else backups.replica_owners()
        group = tasks.common if replicas is None or backups.group is None else backups.group
        if not self.checkpoints.take(group, now_s):
            return []
        owners = self._tiers.shards.owners if replicas is None else replicas
        states = tasks.states.at(group) if replicas is None else backups.state_replicas()
        self._carried = {(ref.partition, ref.checkpoint) for ref in states if ref.checkpoint}
        kept, n_updates = {**figures(group), **driver.record(group)}, driver.n_updates_at(group)
        return [SaveCheckpoint(config, group, owners, kept, n_updates, replicas is not None, states)]

    def saved(self, checkpoint: Checkpoint, now_s: float, unplaced: bool) -> bool:
        """Note that a checkpoint is complete; return whether the job has to roll back to it.

        That is so if partitions are to begin with states of an earlier checkpoint, which is removed now: the job has
        rolled back while this one was written.

        `unplaced`: the job has rolled back, and the shards are not opened yet. If this checkpoint was being written at
        that time and is newer than the restored one, they start from it.
        """
        self.checkpoints.saved(checkpoint, now_s)
        has_lost_states = False
        if self.checkpoints.newest is checkpoint:  # the earlier ones are removed
            has_lost_states = not self._required_job[1].states.saved(checkpoint.name, self._carried)
            self._tiers.backups.saved(checkpoint.name, self._carried)
        if unplaced and self.rollbacks and checkpoint.group > (0 if self.restored is None else self.restored.group):
            self.restored = checkpoint
            _, reason = self.rollbacks.pop()
            reason = f"{reason}; the checkpoint of clock {checkpoint.clock} was complete by then"
            self._roll_back(checkpoint.group, states_of(checkpoint), reason, checkpoint)
            has_lost_states = False
        oldest = self._tiers.backups.oldest_group
        self._progress.thin(self.checkpoints.group if oldest is None else min(oldest, self.checkpoints.group))
        return has_lost_states

    def roll_back_to_replicas(self, reason: str) -> list[Instruction] | None:
        """Roll back to the last complete round; return instructions, or None, unchanged, if a replica is missing."""
        config, *_ = self._required_job
        restored = self._tiers.restore_from_replicas(config, self._members)
        if restored is None:
            return None
        group, instructions = restored
        reason = f"{reason}; rolled back to clock {self._progress.clock_at(group)}"
        self._roll_back(group, self._tiers.backups.states(), reason)
        return instructions

    def roll_back_to_checkpoint(self, reason: str) -> None:
        """Roll back to the newest checkpoint, or to the beginning; no node has the shards until they are reopened."""
        self.restored = self.checkpoints.newest
        group = self.checkpoints.group
        clock = self._progress.clock_at(group)
        self._tiers.abandon(self._members)
        reason = f"{reason}; rolled back to {self._target(clock)}, waiting for a reliable node that can serve"
        states = () if self.restored is None else states_of(self.restored)
        self._roll_back(group, states, reason, self.restored)

    def is_damaged(self, name: str, error: str, opening: bool) -> bool:
        """Drop a checkpoint in which `error` was found; return whether the job has to roll back, since it needs it.

        `opening`: the shards are being opened. A late report is of a checkpoint that nothing is read from any more.
        """
        _, tasks, _ = self._required_job
        self.checkpoints.drop(name)
        from_it = any(ref.checkpoint == name for ref in tasks.states.at(tasks.common))
        if not (from_it or (opening and self.restored is not None and self.restored.name == name)):
            return False
        # The figures that the progress has may begin after the checkpoint before.
        newest = self.checkpoints.newest
        self._progress.go_on(NO_FIGURES if newest is None else newest.summary, self.checkpoints.group)
        target = self._target(0 if newest is None else newest.clock)
        self.damage = f"{DAMAGED}: {error}; the job goes on from {target}"
        return True

    @staticmethod
    def _target(clock: int) -> str:
        return f"the checkpoint of clock {clock}" if clock else "the beginning (there is no checkpoint)"

    @property
    def _required_job(self) -> tuple[JobConfig, TaskTable, DriverHost]:
        assert self._job is not None, "a loss before there is a job"
        return self._job

    def _roll_back(
        self, group: int, states: Sequence[StateRef], reason: str, checkpoint: Checkpoint | None = None
    ) -> None:
        _, tasks, driver = self._required_job
        if group > tasks.common and self.restored is not None:  # the replicas were older than the checkpoint
            self._progress.go_on(self.restored.summary, self.restored.group)
        if checkpoint is None:
            driver.roll_back(group)
        else:
            driver.resume(checkpoint)
        tasks.states.restore(states)
        self._progress.roll_back(group)
        self.rollbacks.append((self._progress.clock_at(group), reason))
