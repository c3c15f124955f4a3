"""The elasticity controller of AgileML and master of Litz: events in, instructions out.

It decides which node works on which partition, which node serves which shard, which tasks run when and under
which attempt, and when the job ends. It knows no network, no clock and no Dask; the shell carries out its instructions.

| event | what follows |
|---|---|
| JobStarted | every present node loads partitions; if the job runs already, nothing changes |
| NodeJoined | its share of partitions is loaded in the background, see `event_batch`; other code: quarantined |
| NodeReady | it owns the loaded partitions of its share from the next dispatch on |
| ShardsOpened | when all are open: the map is sent to all nodes, and the first clock is dispatched |
| CheckpointDamaged | the one before it is used, or the job begins again |
| ShardsNotOpened | opened again from the replicas, then from the last checkpoint; after repeated failures it fails |
| ShardsTaken | the new map is sent to all nodes; the previous owner may leave |
| ShardsNotTaken | the move is repeated at the next `TimerFired` |
| BackedUp, NotBackedUp | the replication round completes, or fails: see `replication` |
| StatesTaken | the node that had them may leave |
| BatchDone | the clock may have become common: the next dispatch, or the end |
| BatchFailed | dispatched again at the next `TimerFired`; a fatal one fails the job |
| NodeFailed | the job fails: its application is wrong |
| NodeUnfit | the node is quarantined until it can read, its partitions move; the job fails when none ever can load |
| NoticeReceived | it works on while time is left, its partitions are loaded elsewhere; then as DrainRequested |
| DrainRequested | no new work; partitions and shards move away; drained when it runs, serves and stores nothing |
| NodesLost | their tasks are dispatched again; if one served, the job rolls back once: see `tier_manager` |
| TimerFired | deadlines: start, notices, `max_seconds` |
| HoldRequested | no clock beyond the named one is begun; nothing ends |
| StopRequested | no new clock; the model of the clock under way; before the first clock: an end without a model |
| UpdatesMissing | the job fails, and nothing was saved |
| SaveFailed | the shards are still there: gathered and saved again, see `model_saving` |
| CheckpointRequested | the committed state is saved now, see `checkpoint_schedule` |
| CheckpointSaved, CheckpointFailed | the next checkpoint is scheduled |
| UsageMeasured | with the next common clock nodes may be offered for release, see `scale_in` |
| Evaluated | nothing; it is recorded, see `history` |

An event changes facts; `reconciler` then issues what these lack. Notices and joins that follow each other closely
are handled together. The shards of a draining node move when its last clock is common.

Invariants: a partition has an owner while a ready node exists (once training began); owners are ready nodes; one
attempt of a task is current; nothing is dispatched beyond the driver's bound.

It combines `membership` (nodes, and the owners of the partitions), `tiers` (servers and backups of the shards),
`task_table` (what is done and runs), `dispatcher`, `draining` (until when leaving nodes work), `stopping` (how far the
job goes), `training_progress`, `recovery` (rollback) and `model_saving`.

Source: Proteus (EuroSys 2017), 3.2-3.3; Litz (2017), 3.
"""

from __future__ import annotations

from collections.abc import Callable

from proteus_spot.psengine.config import JobConfig, JobError
from proteus_spot.psengine.controller.job_events import JobEvents
from proteus_spot.psengine.controller.node_events import NodeEvents
from proteus_spot.psengine.controller.reconciler import Reconciler
from proteus_spot.psengine.controller.state import ENDED, CannotContinue, ControllerState, default_driver
from proteus_spot.psengine.drivers.interface import Driver
from proteus_spot.psengine.membership.failure_detector import silence_timeout_s
from proteus_spot.psengine.protocol import events
from proteus_spot.psengine.protocol.instructions import Instruction
from proteus_spot.psengine.scheduling.driver_host import DriverFailed
from proteus_spot.psengine.tables.row_owners import SharedRowError
from proteus_spot.psengine.telemetry.formatting import error_text, format_error


class Controller:
    """The controller of one job. `job` changes through `handle` only; everything else reads it.

    Parameters
    ----------
    make_driver : callable
        Makes the driver of a job, as its application says.

    Attributes
    ----------
    job : ControllerState
        The state of the job.
    """

    def __init__(self, make_driver: Callable[[JobConfig], Driver] = default_driver) -> None:
        self.job = ControllerState(make_driver)
        self._reconciler = Reconciler(self.job)
        answers = JobEvents(self.job, self._reconciler), NodeEvents(self.job, self._reconciler)
        self._handlers = {kind: handler for each in answers for kind, handler in each.handlers.items()}

    def handle(self, event: events.Event) -> list[Instruction]:
        """Process one event and return the instructions, in order. Late and repeated events change nothing."""
        job, handler = self.job, self._handlers[type(event)]
        if isinstance(event, events.UsageMeasured):  # comes with each report
            handler(event)
            return []
        job.instructions = []
        try:
            if job.state not in ENDED or isinstance(event, events.NodeJoined | events.NodesLost):
                handler(event)
            self._reconciler.reconcile(event.now_s)
        except DriverFailed as error:
            self.fail_by_driver(error)
        except (CannotContinue, SharedRowError, JobError) as error:
            self.fail(error_text(error))
        noted = None if job.config is None or job.tasks is None or job.result is not None else (job.config, job.tasks)
        return [*job.instructions, *job.history.note(event, noted, job.training, job.gathering)]

    def fail_by_driver(self, error: DriverFailed) -> None:
        """End the job as failed by its driver."""
        app = "" if self.job.config is None else self.job.config.app
        line = error_text(error) if error.__cause__ is None else format_error(error.__cause__, app)
        self.fail(f"the driver failed: {line}")

    def fail(self, reason: str) -> None:
        """End the job as failed, unless it has ended: it is to continue in another process, from its checkpoint."""
        if self.job.state not in ENDED:
            self.job.state, self.job.reason = "failed", reason

    def silence_timeout_s(self, address: str) -> float:
        """Return the seconds that the process at `address` may be silent before it is considered lost."""
        job = self.job
        node = job.members.at(address)
        at_work = node is not None and job.tasks is not None and job.tasks.running_on(node.name) > 0
        loads = node is not None and node.loads  # how long an application takes to prepare its data is unknown
        serves = node is not None and job.shards.serves(node.name)
        served_clock_s = job.progress.longest_recent_s if serves else 0.0
        return max(silence_timeout_s(at_work, job.progress.longest_s, served_clock_s), silence_timeout_s(loads, None))
