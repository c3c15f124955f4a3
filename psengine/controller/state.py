"""The state of one job. The collaborators of the controller change it, others read it."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Literal

from proteus_spot.psengine.config import JobConfig, Stage
from proteus_spot.psengine.controller.checkpoint_schedule import CheckpointSchedule
from proteus_spot.psengine.controller.draining import Departures
from proteus_spot.psengine.controller.history import History
from proteus_spot.psengine.controller.model_saving import Saving
from proteus_spot.psengine.controller.recovery import Recovery
from proteus_spot.psengine.drivers.interface import Driver
from proteus_spot.psengine.drivers.ssp import Ssp
from proteus_spot.psengine.membership.event_batch import JoinBatching
from proteus_spot.psengine.membership.membership import Membership
from proteus_spot.psengine.protocol.instructions import Instruction
from proteus_spot.psengine.scheduling.dispatcher import BatchDispatcher
from proteus_spot.psengine.scheduling.driver_host import DriverHost
from proteus_spot.psengine.scheduling.stopping import StoppingRule
from proteus_spot.psengine.scheduling.task_table import TaskTable
from proteus_spot.psengine.tables.row_sets import RowSet
from proteus_spot.psengine.telemetry.training_progress import TrainingProgress
from proteus_spot.psengine.tiers.scale_in import ScaleIn
from proteus_spot.psengine.tiers.shard_map import ShardMap
from proteus_spot.psengine.tiers.tier_manager import Tiers

#: How the reason of a controller begins that imports a user's module, which may take minutes.
IMPORTING = "importing"

JobState = Literal["starting", "waiting", "running", "finished", "stopped", "failed"]
ENDED: tuple[JobState, ...] = ("finished", "stopped", "failed")


def default_driver(config: JobConfig) -> Driver:
    """Return the driver of an application that makes none."""
    return Ssp(config.staleness)


class Due(IntEnum):
    """What is to be brought in line with the facts; each includes the ones before."""

    NOTHING = 0
    TASKS = 1
    SHARDS = 2
    NODES = 3


class CannotContinue(Exception):
    """The job cannot go on; the message says why."""


class ControllerState:
    """State of one job.

    Parameters
    ----------
    make_driver : callable
        Makes the driver of a job, as its application says.

    Attributes
    ----------
    result : dict or None
        Summary of the job once it is finished or stopped; its `stopped` is the reason of a stop, or None. A job that
        was stopped before its first clock has `clocks` 0, and no model was saved.
    """

    def __init__(self, make_driver: Callable[[JobConfig], Driver] = default_driver) -> None:
        self.make_driver = make_driver
        self.config: JobConfig | None = None
        self.state: JobState = "starting"
        self.reason = "waiting for a job"
        self.members = Membership()
        self.tiers = Tiers()
        self.tasks: TaskTable | None = None
        self.driver: DriverHost | None = None
        self.stopping = StoppingRule()
        #: {own table: the rows of it that each partition has}.
        self.own_rows: dict[str, dict[int, RowSet]] = {}
        self.asked_s: float | None = None
        self.progress = TrainingProgress()
        #: Records of the job; they decide nothing.
        self.history = History(self.members, self.tiers, self.stopping, self.progress)
        #: Nodes that are offered for release.
        self.scale_in = ScaleIn()
        self.lost_micro_tasks: int | None = None
        self.result: dict[str, object] | None = None
        #: Nodes with a notice or a drain request, and until when each works.
        self.departures = Departures(self.members, self.tiers, self.progress)
        self.recovery = Recovery(self.members, self.tiers, self.progress)
        self.dispatcher: BatchDispatcher | None = None
        #: Nodes that have joined, until they are planned for.
        self.joins = JoinBatching()
        self.begun = False
        #: Version of the map that every node was sent, and whether the present one is to be sent at the next tick.
        self.map_sent = 0
        self.maps_due = False
        #: Partitions without a node, as last reported to the driver.
        self.unowned: frozenset[int] = frozenset()
        #: What the events have changed, and whether the nodes are to be planned for at the next tick.
        self.due = Due.NOTHING
        self.plan_due = False
        #: Instructions that the event under way has brought, in order.
        self.instructions: list[Instruction] = []
        #: Number of successive failures to open the shards.
        self.not_opened = 0
        #: When the shards are to be opened again after a failure; None unless one is waited for.
        self.reopen_s: float | None = None
        #: Generation of the shards that are being opened, and since when.
        self.opening: tuple[int, float] | None = None
        self.saving: Saving | None = None
        #: Reason of a stop that was requested while the model was being saved; used only if saving fails.
        self.late_stop: str | None = None

    def mark_due(self, due: Due) -> None:
        """Have `Reconciler.reconcile` bring that much in line."""
        self.due = max(self.due, due)

    @property
    def shards(self) -> ShardMap:
        """The server of each shard."""
        return self.tiers.shards

    @property
    def checkpoints(self) -> CheckpointSchedule:
        """The newest checkpoint, and when the next is due."""
        return self.recovery.checkpoints

    @property
    def rollbacks(self) -> list[tuple[int, str]]:
        """(clock, reason) of every rollback."""
        return self.recovery.rollbacks

    @property
    def damage(self) -> str:
        """A line on the last checkpoint that could not be used; empty if there was none."""
        return self.recovery.damage

    @property
    def stage(self) -> Stage:
        """The stage of AgileML that the job is in."""
        return self.tiers.stage

    @property
    def have_states(self) -> bool:
        """Whether partitions have state, which moves with them."""
        return self.tasks is not None and bool(self.tasks.states)

    @property
    def gathering(self) -> bool:
        """Whether the model is being gathered and saved; the training is over unless shards are lost."""
        return self.saving is not None

    @property
    def training(self) -> bool:
        """Whether the shards are open and the job has not ended."""
        return self.begun and self.state not in ENDED
