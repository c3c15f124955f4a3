"""Events of the job and of its tasks: start, stop, completed and failed batches, the end, the timer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.reconciler import Reconciler
from proteus_spot.psengine.controller.recovery import DAMAGED
from proteus_spot.psengine.controller.state import CannotContinue, ControllerState, Due
from proteus_spot.psengine.drivers.interface import Done
from proteus_spot.psengine.protocol import events
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.scheduling.dispatcher import BatchDispatcher
from proteus_spot.psengine.scheduling.driver_host import DriverHost
from proteus_spot.psengine.scheduling.task_table import TaskTable
from proteus_spot.psengine.tables.row_owners import refuse_shared

#: Maximum number of successive batches of a node that fail while no clock ends; the last of them are a minute apart.
MOST_FAILED = 20


class JobEvents:
    """How the controller answers these events: `handlers` by the kind of event."""

    def __init__(self, job: ControllerState, reconciler: Reconciler) -> None:
        self._job, self._reconciler = job, reconciler
        self.handlers: Mapping[type[events.Event], Callable[[Any], None]] = MappingProxyType(
            {
                events.JobStarted: self._on_job_started,
                events.JobFoundFinished: self._on_found_finished,
                events.BatchDone: self._on_batch_done,
                events.BatchFailed: self._on_batch_failed,
                events.TimerFired: self._on_tick,
                events.StopRequested: self._on_stop,
                events.HoldRequested: self._on_hold,
                events.ModelSaved: self._on_model_saved,
                events.UpdatesMissing: self._on_updates_missing,
                events.SaveFailed: self._on_save_failed,
                events.CheckpointRequested: self._on_checkpoint_requested,
                events.CheckpointSaved: self._on_checkpoint_saved,
                events.CheckpointFailed: self._on_checkpoint_failed,
                events.CheckpointDamaged: self._on_checkpoint_damaged,
                events.Evaluated: _recorded,
            }
        )

    def _on_job_started(self, event: events.JobStarted) -> None:
        if self._job.config is not None:
            return
        kept = () if event.checkpoint is None else (event.checkpoint, *event.older)
        self._adopt(event.config, kept, event.damaged)
        if event.config.passes is not None and self._job.driver is not None and self._job.driver.passes(1, 0) is None:
            raise CannotContinue(
                f"the job ends after {event.config.passes} passes, and {event.config.app} does not say what a pass is: "
                "give clocks instead, or see docs/applications.md, Passes"
            )
        self._job.asked_s = event.now_s
        self._job.reason = f"waiting for {event.config.n_reliable} reliable node(s)"
        if event.damaged:
            self._job.reason = f"{self._job.rollbacks[-1][1]}; {self._job.reason}"
        if self._job.members.quarantine_misfits(self._job.members.in_state("joining")):
            self._reconciler.continue_without_quarantined()
        self._job.mark_due(Due.NODES)

    def _on_found_finished(self, event: events.JobFoundFinished) -> None:
        if self._job.config is not None:
            return
        self._adopt(event.config)
        self._job.progress.losses = list(event.losses)
        if event.lost_micro_tasks:
            self._fail_for_missing(event.lost_micro_tasks)
        self._reconciler.end(event.result, "the model was there already")

    def _adopt(self, config: JobConfig, kept: tuple[Checkpoint, ...] = (), damaged: str = "") -> None:
        job = self._job
        job.config = config
        job.tasks = TaskTable(config.n_partitions)
        job.driver = DriverHost(partial(job.make_driver, config), job.tasks, config.seed)
        job.dispatcher = BatchDispatcher(job.tasks, job.driver)
        job.recovery.adopt(config, job.tasks, job.driver, kept, damaged)
        job.progress.clocks_are_groups = not job.driver.counts_clocks
        self._reconciler.count_clocks()
        if kept:
            job.history.go_on(kept[0].summary, kept[0].group)
        job.members.adopt(config)
        job.stopping.target = None if job.driver.counts_clocks else config.clocks
        job.stopping.until = config.stop_rule
        job.tiers.fixed_servers = config.servers

    def _on_stop(self, event: events.StopRequested) -> None:
        job = self._job
        if job.saving is not None:
            job.late_stop = event.reason
            return
        job.stopping.stop_reason = event.reason
        if job.tasks is not None:
            self._reconciler.end_at(job.tasks.last_begun)
        self._reconciler.end_without_model(event.now_s)
        job.mark_due(Due.TASKS)

    def _fail_for_missing(self, lost: int) -> NoReturn:
        self._job.lost_micro_tasks = lost
        raise CannotContinue(f"{lost} update(s) are missing from the model")

    def _on_checkpoint_saved(self, event: events.CheckpointSaved) -> None:
        job = self._job
        unplaced = job.state == "waiting" and not job.begun and not job.shards.opening
        if job.recovery.saved(event.checkpoint, event.now_s, unplaced):
            reason = f"the checkpoint of clock {event.checkpoint.clock} has replaced the one begun from"
            self._reconciler.roll_back_to_checkpoint(reason, event.now_s)

    def _on_save_failed(self, event: events.SaveFailed) -> None:
        saving = self._job.saving
        if saving is None:
            return
        if saving.without_shards and not event.fatal:
            self._reconciler.recover(saving.without_shards, event.now_s)
        elif saving.failed(event.error, event.fatal, event.now_s):
            self._job.reason = saving.reason
        else:
            raise CannotContinue(saving.reason)

    def _on_batch_done(self, event: events.BatchDone) -> None:
        job = self._job
        tasks, dispatcher, driver = job.tasks, job.dispatcher, job.driver
        if tasks is None or dispatcher is None or driver is None:
            return
        job.mark_due(Due.TASKS)
        tasks.states.drop_before(tasks.common)
        claimed: set[str] = set()
        node = job.members.process(event.node, event.address)
        if node is None:
            return
        completed = [(stats, tasks.complete(stats.partition, event.group, stats.attempt)) for stats in event.results]
        done = [(stats, running) for stats, running in completed if running is not None]
        for stats, _ in done:
            if stats.has_state:
                tasks.states.completed(stats.partition, event.group, stats.attempt, event.address)
            for table, rows in (stats.own_rows or {}).items():
                job.own_rows.setdefault(table, {})[stats.partition] = rows
                claimed.add(table)
        job.progress.add(node, event.group, [stats for stats, _ in done])
        of_node = [(stats, running.task) for stats, running in done if not running.withdrawn]
        if not node.gone:
            node.holds |= frozenset(stats.partition for stats, _ in of_node)
        for table in sorted(claimed):
            refuse_shared(table, job.own_rows[table])
        driver.completed([Done(task, stats.result, stats.examples, stats.loss_sum) for stats, task in of_node])
        if self._reconciler.advance(event.now_s):
            # The checkpoint comes first: once the next clock is dispatched, the servers fold it in.
            self._reconciler.save_checkpoint(event.now_s)
            job.mark_due(Due.SHARDS)

    def _on_batch_failed(self, event: events.BatchFailed) -> None:
        job = self._job
        if job.dispatcher is None or job.members.process(event.node, event.address) is None:
            return
        current = job.dispatcher.failed(event)
        if not current:
            return
        if event.recalled:
            job.mark_due(Due.TASKS)
            return
        if event.fatal:
            raise CannotContinue(f"partition {current[0]}, clock {event.group}, on node {event.node}: {event.error}")
        failures = job.progress.failed(event.node, event.group, event.error)
        if failures >= MOST_FAILED:
            raise CannotContinue(job.progress.trouble)
        job.dispatcher.hold_back(current, event, failures)

    def _on_tick(self, event: events.TimerFired) -> None:
        job = self._job
        tasks, config = job.tasks, job.config
        if tasks is None or config is None or job.dispatcher is None:
            return
        job.dispatcher.tick(event.now_s)
        if job.saving is not None:
            job.instructions += job.saving.due(event.now_s)
            return
        job.instructions += job.members.ask_again(event.now_s)
        self._reconciler.reopen(event.now_s)
        self._reconciler.give_up_opening(event.now_s)
        over = config.max_seconds is not None and job.progress.seconds(event.now_s) >= config.max_seconds
        if over and not job.stopping.ending:
            self._reconciler.end_at(tasks.last_begun)
        if job.maps_due:
            self._reconciler.send_maps()
        job.mark_due(Due.NODES if job.tiers.loss_burst.passes(event.now_s) or job.plan_due else Due.SHARDS)

    def _on_checkpoint_damaged(self, event: events.CheckpointDamaged) -> None:
        job = self._job
        if job.tasks is not None and job.recovery.is_damaged(event.name, event.error, job.shards.opening):
            self._reconciler.roll_back_to_checkpoint(f"{DAMAGED}: {event.error}", event.now_s)

    def _on_hold(self, event: events.HoldRequested) -> None:
        self._job.stopping.pause_at(event.clock)
        self._job.mark_due(Due.TASKS)

    def _on_model_saved(self, event: events.ModelSaved) -> None:
        self._reconciler.end(event.result, self._job.stopping.criterion or "reached its stopping criterion")

    def _on_updates_missing(self, event: events.UpdatesMissing) -> None:
        self._fail_for_missing(event.lost)

    def _on_checkpoint_requested(self, event: events.CheckpointRequested) -> None:
        self._job.checkpoints.request()
        self._reconciler.save_checkpoint(event.now_s)

    def _on_checkpoint_failed(self, event: events.CheckpointFailed) -> None:
        self._job.checkpoints.failed(event.now_s)
        self._reconciler.end_without_model(event.now_s)


def _recorded(event: events.Event) -> None:
    """Do nothing: the event is recorded in the history."""
