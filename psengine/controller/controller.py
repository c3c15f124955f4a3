"""The elasticity controller of AgileML and master of Litz: events in, instructions out.

It decides which node works on which partition, which node serves which shard, which tasks run when and under
which attempt, and when the job ends. It knows no network, no clock and no Dask; the shell carries out its instructions.

| event | what follows |
|---|---|
| JobStarted | every present node loads partitions; if the job runs already, nothing changes |
| NodeJoined | its share of partitions is loaded in the background, see `join_batching`; other code: quarantined |
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

An event changes facts; `consequences` then issues what these lack. Notices and joins that follow each other closely
are handled together. The shards of a draining node move when its last clock is common.

Invariants: a partition has an owner while a ready node exists (once training began); owners are ready nodes; one
attempt of a task is current; nothing is dispatched beyond the driver's bound.

It combines `membership` (nodes, and the owners of the partitions), `tiers` (servers and backups of the shards),
`task_table` (what is done and runs), `dispatcher`, `draining` (until when leaving nodes work), `stopping` (how far the
job goes), `training_progress`, `recovery` (rollback) and `model_saving`.

Source: Proteus (EuroSys 2017), 3.2-3.3; Litz (2017), 3.
"""

from __future__ import annotations

from proteus_spot.psengine.config import JobError
from proteus_spot.psengine.controller.job_events import JobEvents
from proteus_spot.psengine.controller.node_events import NodeEvents
from proteus_spot.psengine.controller.state import ENDED, CannotContinue, Due
from proteus_spot.psengine.membership.failure_detector import silence_timeout_s
from proteus_spot.psengine.protocol import events
from proteus_spot.psengine.protocol.instructions import Instruction
from proteus_spot.psengine.scheduling.driver_host import DriverFailed
from proteus_spot.psengine.tables.row_owners import SharedRowError
from proteus_spot.psengine.telemetry.formatting import error_text, format_error


class Controller(JobEvents, NodeEvents):
    """The controller of one job. Its state changes through `handle` only; everything else reads it."""

    def handle(self, event: events.Event) -> list[Instruction]:
        """Process one event and return the instructions, in order. Late and repeated events change nothing."""
        if isinstance(event, events.UsageMeasured):  # comes with each report
            self._on_measured(event)
            return []
        self._instructions = []
        try:
            if self.state not in ENDED or isinstance(event, events.NodeJoined | events.NodesLost):
                self._apply(event)
            self._reconcile(event.now_s)
        except DriverFailed as error:
            self.fail_by_driver(error)
        except (CannotContinue, SharedRowError, JobError) as error:
            self.fail(error_text(error))
        noted = (
            None if self.config is None or self.tasks is None or self.result is not None else (self.config, self.tasks)
        )
        return [*self._instructions, *self.history.note(event, noted, self.training, self.gathering)]

    def _apply(self, event: events.Event) -> None:
        """Change the facts by an event."""
        match event:
            case events.JobStarted():
                self._on_job_started(event)
            case events.JobFoundFinished():
                self._on_found_finished(event)
            case events.NodeJoined():
                self._on_joined(event)
            case events.NodeReady():
                self._on_ready(event)
            case events.ShardsOpened():
                self._on_shards_opened(event)
            case events.ShardsNotOpened():
                self._on_shards_not_opened(event)
            case events.CheckpointDamaged():
                self._on_checkpoint_damaged(event)
            case events.ShardsTaken():
                self._on_shards_taken(event)
            case events.ShardsNotTaken():
                self.shards.not_taken(event.shards, event.epoch)
            case events.BackedUp():
                self._on_backed_up(event)
            case events.NotBackedUp():
                self.tiers.backups.not_backed_up(event.number, event.now_s)
            case events.StatesTaken():
                self._on_states_taken(event)
            case events.BatchDone():
                self._on_batch_done(event)
            case events.BatchFailed():
                self._on_batch_failed(event)
            case events.NodeFailed():
                self._on_node_failed(event)
            case events.NodeUnfit():
                self._on_unfit(event)
            case events.NoticeReceived():
                self.departures.told(event)
            case events.DrainRequested():
                self.departures.drain(event, self.tasks)
                self._mark_due(Due.NODES)
            case events.NodesLost():
                self._on_lost(event)
            case events.TimerFired():
                self._on_tick(event)
            case events.StopRequested():
                self._on_stop(event)
            case events.HoldRequested():
                self.stopping.pause_at(event.clock)
                self._mark_due(Due.TASKS)
            case events.ModelSaved():
                self._end(event.result, self.stopping.criterion or "reached its stopping criterion")
            case events.UpdatesMissing():
                self._fail_for_missing(event.lost)
            case events.SaveFailed():
                self._on_save_failed(event)
            case events.CheckpointRequested():
                self.checkpoints.request()
                self._save_checkpoint(event.now_s)
            case events.CheckpointSaved():
                self._on_checkpoint_saved(event)
            case events.CheckpointFailed():
                self.checkpoints.failed(event.now_s)
                self._end_without_model(event.now_s)
            case events.UsageMeasured() | events.Evaluated():
                pass  # recorded in the history
            case _:
                raise TypeError(f"the controller knows no {type(event).__name__}")

    def fail_by_driver(self, error: DriverFailed) -> None:
        """End the job as failed by its driver."""
        app = "" if self.config is None else self.config.app
        line = error_text(error) if error.__cause__ is None else format_error(error.__cause__, app)
        self.fail(f"the driver failed: {line}")

    def fail(self, reason: str) -> None:
        """End the job as failed, unless it has ended: it is to continue in another process, from its checkpoint."""
        if self.state not in ENDED:
            self.state, self.reason = "failed", reason

    def silence_timeout_s(self, address: str) -> float:
        """Return the seconds that the process at `address` may be silent before it is considered lost."""
        node = self.members.at(address)
        at_work = node is not None and self.tasks is not None and self.tasks.running_on(node.name) > 0
        loads = node is not None and node.loads  # how long an application takes to prepare its data is unknown
        serves = node is not None and self.shards.serves(node.name)
        served_clock_s = self.progress.longest_recent_s if serves else 0.0
        return max(silence_timeout_s(at_work, self.progress.longest_s, served_clock_s), silence_timeout_s(loads, None))
