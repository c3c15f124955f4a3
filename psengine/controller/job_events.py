"""Events of the job and of its tasks: start, stop, completed and failed batches, the end, the timer."""

from __future__ import annotations

from functools import partial

from psengine.config import JobConfig
from psengine.controller.consequences import Consequences
from psengine.drivers.interface import Done
from psengine.protocol import events
from psengine.protocol.checkpoint import Checkpoint
from psengine.protocol.instructions import Instruction
from psengine.scheduling.dispatcher import BatchDispatcher
from psengine.scheduling.driver_host import DriverHost
from psengine.scheduling.micro_tasks import MicroTaskTable
from psengine.tables.row_owners import SharedRowError


class JobEvents(Consequences):
    """How the controller answers these events."""

    def _on_job_started(self, event: events.JobStarted) -> list[Instruction]:
        if self.config is not None:
            return []
        self._adopt(event.config, event.checkpoint)
        if event.config.passes is not None and self.driver is not None and self.driver.passes(1, 0) is None:
            return self._fail(
                f"the job ends after {event.config.passes} passes, and {event.config.app} does not say what a pass is: "
                "give clocks instead, or see docs/applications.md, Passes"
            )
        self.asked_s = event.now_s
        self.reason = f"waiting for {event.config.n_reliable} reliable node(s)"
        if self.members.quarantine_misfits(self.members.in_state("joining")):
            return self._continue_without_quarantined(event.now_s)
        return self.members.replan(self._begun) + self._begin(event.now_s)

    def _on_found_finished(self, event: events.JobFoundFinished) -> list[Instruction]:
        if self.config is None:
            self._adopt(event.config)
            self.progress.losses = list(event.losses)
            if event.lost_micro_tasks:
                return self._on_effects_missing(event.lost_micro_tasks)
            self._end(event.result, "the model was there already")
        return []

    def _adopt(self, config: JobConfig, checkpoint: Checkpoint | None = None) -> None:
        clock = 0 if checkpoint is None else checkpoint.clock
        self.config = config
        self.book = MicroTaskTable(config.n_partitions)
        self.driver = DriverHost(partial(self._make_driver, config), self.book, config.seed)
        self._dispatcher = BatchDispatcher(self.book, self.driver)
        self._recovery.adopt(config, self.book, self.driver, checkpoint)
        self.progress.clocks_are_groups = not self.driver.counts_clocks
        self._count_clocks()
        if checkpoint is not None:
            self.history.go_on(checkpoint.summary, clock)
        self.members.adopt(config)
        self.stopping.target = None if self.driver.counts_clocks else config.clocks
        self.stopping.until = config.stop_rule
        if config.push_tree is not None:
            self.push_choice.fix(config.push_tree)
        if config.servers is not None:
            self.tiers.servers.fix(config.servers)

    def _on_stop(self, reason: str, now_s: float) -> list[Instruction]:
        if self._saving is not None:
            self._late_stop = reason
            return []
        self.stopping.stop_reason = reason
        if self.book is not None:
            self._end_at(self.book.last_begun)
        return [] if self._end_without_model(now_s) else self._dispatch(now_s)

    def _on_effects_missing(self, lost: int) -> list[Instruction]:
        self.lost_micro_tasks = lost
        return self._fail(f"{lost} effect(s) are missing from the model")

    def _on_save_failed(self, event: events.SaveFailed) -> list[Instruction]:
        saving = self._saving
        if saving is None:
            return []
        if saving.without_shards and not event.fatal:
            return self._recover(saving.without_shards, event.now_s)
        if not saving.failed(event.error, event.fatal, event.now_s):
            return self._fail(saving.reason)
        self.reason = saving.reason
        return []

    def _on_batch_done(self, event: events.BatchDone) -> list[Instruction]:
        book, dispatcher, driver = self.book, self._dispatcher, self.driver
        if book is None or dispatcher is None or driver is None:
            return []
        if dispatcher.superseded(event):  # maybe the node that reports was given up, while the others wait for it
            self.members.settle(self._busy)
            return self._dispatch(event.now_s)
        if event.clock > book.common and not driver.counts_clocks:  # else nothing is measured, see `_advance`
            self.push_choice.pushed(event.clock, event.push_s)
        book.states.drop_before(book.common)
        ran: list[Done] = []
        claims = False
        for (name, address), results in event.by_process.items():
            node = self.members.process(name, address)
            if node is None:
                return []
            completed = [(stats, book.complete(stats.partition, event.clock, stats.attempt)) for stats in results]
            done = [(stats, running) for stats, running in completed if running is not None]
            for stats, _ in done:
                if stats.has_state:
                    book.states.completed(stats.partition, event.clock, stats.attempt, address)
                if stats.own_rows is not None:
                    self.row_claims.note(stats.partition, stats.own_rows)
                    claims = True
            self.progress.add(node, event.clock, [stats for stats, _ in done])
            of_node = [(stats, running.task) for stats, running in done if not running.withdrawn]
            if not node.gone:
                node.holds |= frozenset(stats.partition for stats, _ in of_node)
            ran += [Done(task, stats.result, stats.examples, stats.loss_sum) for stats, task in of_node]
        if claims:
            try:
                self.row_claims.check()
            except SharedRowError as error:
                return self._fail(str(error))
        driver.completed(ran)
        advanced = self._advance(event.now_s)
        self.members.settle(self._busy)
        # The checkpoint and the replicas come first: once the next clock is dispatched, the servers fold it in.
        saves = self._keep(event.now_s) + self._adapt(event.now_s) if advanced else []
        return saves + (self._answer_notices(event.now_s) or self._dispatch(event.now_s))

    def _on_batch_failed(self, event: events.BatchFailed) -> list[Instruction]:
        if self._dispatcher is None or self.members.process(event.node, event.address) is None:
            return []
        current = self._dispatcher.failed(event)
        if not current:
            return []
        if event.recalled:
            self.members.settle(self._busy)
            return self._dispatch(event.now_s)
        if event.fatal:
            return self._fail(f"partition {current[0]}, clock {event.clock}, on node {event.node}: {event.error}")
        self.progress.failed(event.node, event.clock, event.error)
        self.members.settle(self._busy)
        return []

    def _on_tick(self, event: events.TimerFired) -> list[Instruction]:
        book, config = self.book, self.config
        if book is None or config is None or self._dispatcher is None:
            return []
        self._dispatcher.tick()
        ended = self._answer_notices(event.now_s)
        for name in self.members.overdue(event.now_s):
            book.give_up(name)
        self.members.settle(self._busy)
        if self._saving is not None:
            return [*ended, *self._saving.due(event.now_s)]
        ended += [*self.members.ask_again(event.now_s), *self._reopen(event.now_s), *self._give_up_opening(event.now_s)]
        over = config.max_seconds is not None and self.progress.seconds(event.now_s) >= config.max_seconds
        if over and not self.stopping.ending:
            self._end_at(book.last_begun)
        if self._maps_due:
            ended += self._maps()
        if self.tiers.loss_burst.passes(event.now_s) or self._plan_due:
            return ended + self._go_on(event.now_s)
        return ended + self._begin(event.now_s) + self._adapt(event.now_s) + self._dispatch(event.now_s)
