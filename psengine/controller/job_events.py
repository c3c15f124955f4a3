"""Events of the job and of its tasks: start, stop, completed and failed batches, the end, the timer."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.consequences import Consequences
from proteus_spot.psengine.controller.state import CannotContinue, Due
from proteus_spot.psengine.drivers.interface import Done
from proteus_spot.psengine.protocol import events
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.scheduling.dispatcher import BatchDispatcher
from proteus_spot.psengine.scheduling.driver_host import DriverHost
from proteus_spot.psengine.scheduling.task_table import TaskTable
from proteus_spot.psengine.tables.row_owners import refuse_shared


class JobEvents(Consequences):
    """How the controller answers these events."""

    def _on_job_started(self, event: events.JobStarted) -> None:
        if self.config is not None:
            return
        kept = () if event.checkpoint is None else (event.checkpoint, *event.older)
        self._adopt(event.config, kept, event.damaged)
        if event.config.passes is not None and self.driver is not None and self.driver.passes(1, 0) is None:
            raise CannotContinue(
                f"the job ends after {event.config.passes} passes, and {event.config.app} does not say what a pass is: "
                "give clocks instead, or see docs/applications.md, Passes"
            )
        self.asked_s = event.now_s
        self.reason = f"waiting for {event.config.n_reliable} reliable node(s)"
        if event.damaged:
            self.reason = f"{self.rollbacks[-1][1]}; {self.reason}"
        if self.members.quarantine_misfits(self.members.in_state("joining")):
            self._continue_without_quarantined()
        self._mark_due(Due.NODES)

    def _on_found_finished(self, event: events.JobFoundFinished) -> None:
        if self.config is not None:
            return
        self._adopt(event.config)
        self.progress.losses = list(event.losses)
        if event.lost_micro_tasks:
            self._fail_for_missing(event.lost_micro_tasks)
        self._end(event.result, "the model was there already")

    def _adopt(self, config: JobConfig, kept: tuple[Checkpoint, ...] = (), damaged: str = "") -> None:
        self.config = config
        self.tasks = TaskTable(config.n_partitions)
        self.driver = DriverHost(partial(self._make_driver, config), self.tasks, config.seed)
        self._dispatcher = BatchDispatcher(self.tasks, self.driver)
        self._recovery.adopt(config, self.tasks, self.driver, kept, damaged)
        self.progress.clocks_are_groups = not self.driver.counts_clocks
        self._count_clocks()
        if kept:
            self.history.go_on(kept[0].summary, kept[0].group)
        self.members.adopt(config)
        self.stopping.target = None if self.driver.counts_clocks else config.clocks
        self.stopping.until = config.stop_rule
        self.tiers.fixed_servers = config.servers

    def _on_stop(self, event: events.StopRequested) -> None:
        if self._saving is not None:
            self._late_stop = event.reason
            return
        self.stopping.stop_reason = event.reason
        if self.tasks is not None:
            self._end_at(self.tasks.last_begun)
        self._end_without_model(event.now_s)
        self._mark_due(Due.TASKS)

    def _fail_for_missing(self, lost: int) -> NoReturn:
        self.lost_micro_tasks = lost
        raise CannotContinue(f"{lost} update(s) are missing from the model")

    def _on_checkpoint_saved(self, event: events.CheckpointSaved) -> None:
        unplaced = self.state == "waiting" and not self._begun and not self.shards.opening
        if self._recovery.saved(event.checkpoint, event.now_s, unplaced):
            reason = f"the checkpoint of clock {event.checkpoint.clock} has replaced the one begun from"
            self._roll_back_to_checkpoint(reason, event.now_s)

    def _on_save_failed(self, event: events.SaveFailed) -> None:
        saving = self._saving
        if saving is None:
            return
        if saving.without_shards and not event.fatal:
            self._recover(saving.without_shards, event.now_s)
        elif saving.failed(event.error, event.fatal, event.now_s):
            self.reason = saving.reason
        else:
            raise CannotContinue(saving.reason)

    def _on_batch_done(self, event: events.BatchDone) -> None:
        tasks, dispatcher, driver = self.tasks, self._dispatcher, self.driver
        if tasks is None or dispatcher is None or driver is None:
            return
        self._mark_due(Due.TASKS)
        tasks.states.drop_before(tasks.common)
        claimed: set[str] = set()
        node = self.members.process(event.node, event.address)
        if node is None:
            return
        completed = [(stats, tasks.complete(stats.partition, event.clock, stats.attempt)) for stats in event.results]
        done = [(stats, running) for stats, running in completed if running is not None]
        for stats, _ in done:
            if stats.has_state:
                tasks.states.completed(stats.partition, event.clock, stats.attempt, event.address)
            for table, rows in (stats.own_rows or {}).items():
                self.own_rows.setdefault(table, {})[stats.partition] = rows
                claimed.add(table)
        self.progress.add(node, event.clock, [stats for stats, _ in done])
        of_node = [(stats, running.task) for stats, running in done if not running.withdrawn]
        if not node.gone:
            node.holds |= frozenset(stats.partition for stats, _ in of_node)
        for table in sorted(claimed):
            refuse_shared(table, self.own_rows[table])
        driver.completed([Done(task, stats.result, stats.examples, stats.loss_sum) for stats, task in of_node])
        if self._advance(event.now_s):
            # The checkpoint comes first: once the next clock is dispatched, the servers fold it in.
            self._save_checkpoint(event.now_s)
            self._mark_due(Due.SHARDS)

    def _on_batch_failed(self, event: events.BatchFailed) -> None:
        if self._dispatcher is None or self.members.process(event.node, event.address) is None:
            return
        current = self._dispatcher.failed(event)
        if not current:
            return
        if event.recalled:
            self._mark_due(Due.TASKS)
            return
        if event.fatal:
            raise CannotContinue(f"partition {current[0]}, clock {event.clock}, on node {event.node}: {event.error}")
        self.progress.failed(event.node, event.clock, event.error)

    def _on_tick(self, event: events.TimerFired) -> None:
        tasks, config = self.tasks, self.config
        if tasks is None or config is None or self._dispatcher is None:
            return
        self._dispatcher.tick()
        if self._saving is not None:
            self._instructions += self._saving.due(event.now_s)
            return
        self._instructions += self.members.ask_again(event.now_s)
        self._reopen(event.now_s)
        self._give_up_opening(event.now_s)
        over = config.max_seconds is not None and self.progress.seconds(event.now_s) >= config.max_seconds
        if over and not self.stopping.ending:
            self._end_at(tasks.last_begun)
        if self._maps_due:
            self._send_maps()
        self._mark_due(Due.NODES if self.tiers.loss_burst.passes(event.now_s) or self._plan_due else Due.SHARDS)
