"""The elasticity controller of AgileML and master of Litz: events in, instructions out.

It decides which node works on which partition, which node serves which shard, which micro-tasks run when and under
which attempt, and when the job ends. It knows no network, no clock and no Dask; the shell carries out its instructions.

| event | what follows |
|---|---|
| JobStarted | every present node loads partitions; if the job runs already, nothing changes |
| NodeJoined | its share of partitions is loaded in the background, see `join_batching`; other code: quarantined |
| NodeReady | it owns the loaded partitions of its share from the next dispatch on |
| ShardsOpened | when all are open: the map is sent to all nodes, and the first clock is dispatched |
| ShardsNotOpened | the job rolls back to the last checkpoint; after repeated failures it fails |
| ShardsTaken | the new map is sent to all nodes; the previous owner may leave |
| ShardsNotTaken | the move is repeated at the next `TimerFired` |
| BackedUp, NotBackedUp | the replication round completes, or fails: see `replication` |
| BatchDone | the clock may have become common: the next dispatch, or the end |
| BatchFailed | dispatched again at the next `TimerFired`; a fatal one fails the job |
| NodeFailed | the job fails: its application is wrong |
| NodeUnfit | the node is quarantined until it can read, its partitions move; the job fails when none ever can load |
| NoticeReceived | it works on while time is left, its partitions are loaded elsewhere; then as DrainRequested |
| DrainRequested | no new work; partitions and shards move away; drained when it runs, serves and stores nothing |
| NodesLost | their micro-tasks are dispatched again; if one served, the job rolls back once: see `tier_manager` |
| TimerFired | deadlines: start, notices, `max_seconds` |
| HoldRequested | no clock beyond the named one is begun; nothing ends |
| StopRequested | no new clock; the model of the clock under way; before the first clock: an end without a model |
| EffectsMissing | the job fails, and nothing was saved |
| SaveFailed | the shards are still there: gathered and saved again, see `model_saving` |
| CheckpointRequested | the committed state is saved now, see `checkpoint_schedule` |
| CheckpointSaved, CheckpointFailed | the next checkpoint is scheduled |
| BytesMoved, Evaluated | nothing; they are recorded, see `history` |

Notices and joins that follow each other closely are handled together. The shards of a draining node move when its last
clock is common.

Invariants: a partition has an owner while a ready node exists (once training began); owners are ready nodes; one
attempt of a micro-task is current; nothing is dispatched beyond the driver's bound.

It combines `membership` (nodes, and who owns which partition), `tiers` (servers and backup owners of the shards),
`micro_tasks` (what is done and runs), `dispatcher`, `draining` (until when leaving nodes work), `stopping` (how far the
job goes), `training_progress`, `recovery` (rollback) and `model_saving`.

Source: Proteus (EuroSys 2017), 3.2-3.3; Litz (2017), 3.
"""

from __future__ import annotations

from psengine.config import JobConfig
from psengine.controller import invariants
from psengine.controller.model_saving import Saving
from psengine.controller.recovery import loss_of
from psengine.controller.state import ENDED, ControllerState
from psengine.controller.status import summary
from psengine.membership.failure_detector import silence_timeout_s
from psengine.protocol import events
from psengine.protocol.checkpoint import Checkpoint
from psengine.protocol.instructions import GatherModel, Instruction
from psengine.scheduling.dispatcher import BatchDispatcher
from psengine.scheduling.micro_tasks import MicroTaskBook
from psengine.scheduling.ssp_driver import SspDriver

#: Maximum number of successive failures to open the shards; each includes a node's own read retries.
MOST_NOT_OPENED = 20


class Controller(ControllerState):
    """The controller of one job. Its state changes through `handle` only; everything else reads it."""

    # -- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: events.Event) -> list[Instruction]:
        """Process one event and return the instructions, in order. Late and repeated events change nothing."""
        if isinstance(event, events.BytesMoved):  # comes with each report
            return self.history.note(event, self)
        instructions = [*self._answer(event), *self._plan_for_arrivals(event.now_s)]
        return [*instructions, *self.history.note(event, self)]

    def _answer(self, event: events.Event) -> list[Instruction]:
        if self.state in ENDED and not isinstance(event, events.NodeJoined | events.NodesLost):
            return []
        match event:
            case events.JobStarted():
                return self._on_job_started(event)
            case events.JobFoundFinished():
                return self._on_found_finished(event)
            case events.NodeJoined():
                return self._on_joined(event)
            case events.NodeReady():
                return self._on_ready(event)
            case events.ShardsOpened():
                return self._on_shards_opened(event)
            case events.ShardsNotOpened():
                return self._on_shards_not_opened(event)
            case events.ShardsTaken():
                return self._on_shards_taken(event)
            case events.ShardsNotTaken():
                self.shards.not_taken(event.shards, event.epoch)
                return []
            case events.BackedUp():
                return self._on_backed_up(event)
            case events.NotBackedUp():
                self.tiers.backups.not_backed_up(event.number, event.now_s)
                return []
            case events.BatchDone():
                return self._on_batch_done(event)
            case events.BatchFailed():
                return self._on_batch_failed(event)
            case events.NodeFailed():
                return self._on_node_failed(event)
            case events.NodeUnfit():
                return self._on_unfit(event)
            case events.NoticeReceived():
                return self._on_notice(event)
            case events.DrainRequested():
                return self._drain(event.nodes, event.deadline_s, event.now_s)
            case events.NodesLost():
                return self._on_lost(event)
            case events.TimerFired():
                return self._on_tick(event)
            case events.StopRequested():
                return self._on_stop(event.reason, event.now_s)
            case events.HoldRequested():
                self.stopping.pause_at(event.clock)
                return self._dispatch(event.now_s)
            case events.ModelSaved():
                self._end(event.result)
                return []
            case events.EffectsMissing():
                return self._on_effects_missing(event.lost)
            case events.SaveFailed():
                return self._on_save_failed(event)
            case events.CheckpointRequested():
                self.checkpoints.request()
                return self._keep(event.now_s)
            case events.CheckpointSaved():
                unplaced = self.state == "waiting" and not self._begun and not self.shards.opening
                self._recovery.saved(event.checkpoint, event.now_s, unplaced)
                return []
            case events.CheckpointFailed():
                self.checkpoints.failed(event.now_s)
                self._end_without_model(event.now_s)
                return []
            case events.BytesMoved() | events.Evaluated():
                return []  # recorded in the history
        raise TypeError(f"the controller knows no {type(event).__name__}")

    def fail(self, reason: str) -> None:
        """End the job as failed, unless it has ended: it is to continue in another process, from its checkpoint."""
        if self.state not in ENDED:
            self._fail(reason)

    def silence_timeout_s(self, address: str) -> float:
        """Return the seconds that the process at `address` may be silent before it is considered lost."""
        node = self.members.at(address)
        at_work = node is not None and self.book is not None and self.book.running_on(node.name) > 0
        loads = node is not None and node.loads  # how long an application takes to prepare its data is unknown
        serves = node is not None and self.shards.serves(node.name)
        served_clock_s = self.progress.longest_recent_s if serves else 0.0
        return max(silence_timeout_s(at_work, self.progress.longest_s, served_clock_s), silence_timeout_s(loads, None))

    def validate(self) -> None:
        """Raise AssertionError when an invariant of the module docstring does not hold."""
        invariants.check(self)

    # -- the job --------------------------------------------------------------------------------------------------

    def _on_job_started(self, event: events.JobStarted) -> list[Instruction]:
        if self.config is not None:
            return []
        self._adopt(event.config, event.checkpoint)
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
        self.book = MicroTaskBook(config.n_partitions, clock)
        self._recovery.adopt(config, self.book, checkpoint)
        if checkpoint is not None:
            self.history.go_on(checkpoint.summary, clock)
        self.members.adopt(config)
        self.stopping.target = config.clocks
        self._dispatcher = BatchDispatcher(self.book, SspDriver(config.staleness))

    def _begin(self, now_s: float) -> list[Instruction]:
        """Open the shards when enough nodes are present; wait for nodes that still load, up to `start_patience_s`.

        After a loss the complete reliable tier is not waited for.
        """
        if self.config is None or self.asked_s is None or self._begun or self.shards.opening:
            return []
        again = self.progress.started_s is not None
        if self.stopping.ending and self._recovery.restored is None and self.checkpoints.under_way is not None:
            return []  # that checkpoint is about to become the model to save
        if self.members.cannot_serve and not again:
            return self._fail(f"too few nodes can serve: {self.members.quarantined}")
        patient = now_s - self.asked_s < self.config.start_patience_s
        servers = self.members.servers(patient, few=again and not patient)
        if not servers:
            return []
        self.reason = "opening the shards"
        return self.tiers.open(self.config, servers, self._recovery.restored)

    def _on_shards_opened(self, event: events.ShardsOpened) -> list[Instruction]:
        if self.members.process(event.node, event.address) is None:
            return []
        if not self.shards.opened(event.node, event.shards, event.epoch):
            return []
        self._not_opened = 0
        if self._begun:  # after a rollback nothing runs
            self.members.reassign_unloaded()
        self._begun = True
        self.progress.begin(event.now_s)
        self.checkpoints.begin(event.now_s)
        return self._maps() + self._go_on(event.now_s)

    def _on_shards_not_opened(self, event: events.ShardsNotOpened) -> list[Instruction]:
        if event.epoch != self.shards.generation or not self.shards.opening:
            return []
        self._not_opened += 1
        if self._not_opened >= MOST_NOT_OPENED:
            return self._fail(f"shards {event.shards} could not be opened {self._not_opened} times: {event.error}")
        return self._roll_back_to_checkpoint(f"shards {event.shards} could not be opened: {event.error}", event.now_s)

    def _on_shards_taken(self, event: events.ShardsTaken) -> list[Instruction]:
        if self.members.process(event.node, event.address) is None or not self.shards.taken(event.shards, event.epoch):
            return []
        self.members.settle(self._busy)
        return self._maps() + self._adapt(event.now_s) + self._dispatch(event.now_s)

    def _on_backed_up(self, event: events.BackedUp) -> list[Instruction]:
        if not self.tiers.backups.backed_up(event.address, event.number, event.shards, event.now_s):
            return []
        self.members.settle(self._busy)
        return self._keep(event.now_s) + self._adapt(event.now_s)

    def _maps(self) -> list[Instruction]:
        return [self.shards.update_for(node) for node in self.members.nodes.values() if not node.gone]

    def _on_stop(self, reason: str, now_s: float) -> list[Instruction]:
        if self._saving is not None:
            self._late_stop = reason
            return []
        self.stopping.stop_reason = reason
        if self.book is not None:
            self._end_at(self.book.last_begun)
        return [] if self._end_without_model(now_s) else self._dispatch(now_s)

    def _end_at(self, clock: int) -> None:
        """Begin no clock after `clock`; the first clock is always completed, since without one there is no model."""
        self.stopping.end_at(max(1, clock))

    def _end_without_model(self, now_s: float) -> bool:
        """End a job whose stop was requested if there is nothing to save; return whether that is so."""
        left = self._begun or self._recovery.restored is not None or self.checkpoints.under_way is not None
        if left or self.stopping.stop_reason is None:
            return False
        self._end(summary(self, now_s) | {"lost_micro_tasks": 0})
        return True

    def _fail(self, reason: str) -> list[Instruction]:
        self.state, self.reason = "failed", reason
        return []

    def _end(self, result: dict[str, object], reason: str = "reached its stopping criterion") -> None:
        """End with `result`; its `stopped`, which the manifest also holds, decides between stopped and finished."""
        stopped = result.get("stopped")
        self.result, self.lost_micro_tasks = result, 0
        self.members.settle(lambda name: False)  # nothing is served from now on
        self.state, self.reason = ("finished", reason) if stopped is None else ("stopped", str(stopped))

    # -- saving ---------------------------------------------------------------------------------------------------

    def _gather(self, now_s: float) -> list[Instruction]:
        assert self.book is not None
        assert self.config is not None
        self.state, self.reason = "running", "saving the model"
        self._saving = Saving(GatherModel(self.config, self.book.common, self.shards.owners, summary(self, now_s)))
        return [self._saving.instruction]

    def _keep(self, now_s: float) -> list[Instruction]:
        """Return the instruction for a checkpoint, if one is due."""
        if not self.training or self.shards.opening or self._saving is not None:
            return []
        return self._recovery.keep(now_s, lambda clock: summary(self, now_s, clock))

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

    # -- nodes join and leave -------------------------------------------------------------------------------------

    def _on_joined(self, event: events.NodeJoined) -> list[Instruction]:
        if self.members.process(event.node, event.address) is not None:
            return []
        instructions: list[Instruction] = []
        previous = self.members.nodes.get(event.node)
        if previous is not None and not previous.gone:  # its process was replaced before the loss was seen
            instructions += self._on_lost(events.NodesLost({previous.address: "its process was replaced"}, event.now_s))
        node = self.members.join(event.node, event.address, event.tier, event.threads, event.code_sha256, event.misfit)
        if self.state in ENDED:
            return instructions
        if self._begun:
            instructions.append(self.shards.update_for(node))
        if self.members.quarantine_misfits([node]):
            return instructions + self._continue_without_quarantined(event.now_s)
        if self._begun and self.members.in_state("ready"):
            self._arrivals.add(event.now_s)
            return instructions
        return instructions + self.members.replan(self._begun)  # no node works yet

    def _plan_for_arrivals(self, now_s: float) -> list[Instruction]:
        """Return the loads of all nodes that have joined, together, when no more are waited for."""
        return self._replan() if self.state not in ENDED and self._arrivals.due(now_s) else []

    def _on_ready(self, event: events.NodeReady) -> list[Instruction]:
        node = self.members.process(event.node, event.address)
        if node is None:
            return []
        self.members.loaded(node, event.request, event.partitions)
        if node.state == "joining":
            node.state = "ready"
            self._arrivals.loaded(event.now_s)
        self.members.recover(node, event.request)
        return self._go_on(event.now_s)

    def _on_unfit(self, event: events.NodeUnfit) -> list[Instruction]:
        node = self.members.process(event.node, event.address)
        asked_again = node is not None and node.state == "unfit" and node.recovers
        if node is None or not (asked_again or node.state in ("joining", "ready", "leaving")):
            return []
        self.members.quarantine(node, event.error, event.again, event.now_s)
        self.leaving.note_last(self.book)
        return self._continue_without_quarantined(event.now_s)

    def _continue_without_quarantined(self, now_s: float) -> list[Instruction]:
        """Continue without the quarantined nodes; fail when there are no others and none is awaited."""
        if self.members.cannot_load:
            return self._fail(f"no node can load: {self.members.quarantined}")
        if not self._begun and not self.members.in_state("joining", "ready"):
            self.reason = f"waiting for a node that can load ({self.members.quarantined})"
        return self._go_on(now_s)

    def _on_notice(self, event: events.NoticeReceived) -> list[Instruction]:
        if not self.leaving.told(event):
            return []
        self.members.settle(self._busy)
        return self._answer_notices(event.now_s)

    def _drain(self, names: tuple[str, ...], seconds: float, now_s: float) -> list[Instruction]:
        self.leaving.drain(names, now_s + seconds, now_s, self.book)
        self.members.settle(self._busy)
        return self._go_on(now_s)

    def _answer_notices(self, now_s: float) -> list[Instruction]:
        """Return what follows from the notices received, all of them together, when no more are waited for."""
        complete = self.leaving.notices.done(now_s)
        plan = self._place() if complete else []  # before any of them ends, so that its partitions go to their heirs
        return plan + self._go_on(now_s) if self._end_work(now_s) or complete else []

    def _end_work(self, now_s: float) -> bool:
        """End the work of leaving nodes whose time has come; return whether there are any."""
        if self.book is None or not self.leaving.end_work(self.book, now_s):
            return False
        if self._begun:
            self.members.take_over()
        self.members.settle(self._busy)
        return True

    def _adapt(self, now_s: float) -> list[Instruction]:
        """Move shards and replicas to where they should be; not while the model is gathered."""
        if not self._begun or self._saving is not None or self.config is None or self.book is None:
            return []
        last = self.stopping.last_clock
        over = last is not None and self.book.common >= last  # gathered from leaving nodes, the model might be lost
        stay = self.leaving.notices.under_way and not over  # the next notice may be for a node that shards would go to
        if not self.members.in_state("leaving", "draining"):
            stay = self._arrivals.may_serve_soon(now_s, bool(self.members.in_state("joining")))
        serving_on = frozenset() if over else self.leaving.serving_on(self.book, now_s)
        return self.tiers.adapt(self.config, self.members, self.book.common, now_s, serving_on, stay)

    def _busy(self, name: str) -> bool:
        return self.tiers.holds(name) or (self.book is not None and self.book.running_on(name) > 0)

    def _on_lost(self, event: events.NodesLost) -> list[Instruction]:
        lost = [node for address in event.reasons if (node := self.members.at(address)) is not None]
        stayed = self.members.stays("transient")
        for node in lost:
            self.members.lose(node)
        remaining = self.members.stays("transient")
        self.tiers.wave.lose(stayed - remaining, remaining, event.now_s)
        if not lost or self.state in ENDED or self.book is None:
            return []
        for node in lost:
            self.book.give_up(node.name)
        served = [node for node in lost if self.tiers.lose(node)]
        if not served:
            return self._go_on(event.now_s)
        reason = loss_of([node.name for node in served], event.reasons[served[0].address])
        if self._saving is not None and self._saving.lose_shards(reason):
            return self._replan()  # the attempt under way may have them already
        return self._recover(reason, event.now_s)

    def _go_on(self, now_s: float) -> list[Instruction]:
        """Return what follows from a change of the nodes."""
        if self._begun and self.leaving.notices.under_way:  # nodes that get a notice next must not start to load
            self.members.switch()
            plan: list[Instruction] = []
        else:
            plan = self._place()
        return plan + self._begin(now_s) + self._adapt(now_s) + self._dispatch(now_s)

    def _place(self) -> list[Instruction]:
        """Choose the stage for the present nodes, and which node works on what in it."""
        if self.config is not None and self._begun:
            self.tiers.choose_stage(self.config, self.members)
        return self._replan()

    def _replan(self) -> list[Instruction]:
        """Bring the placement in line with the nodes; during a rollback no node is instructed to load.

        More nodes may be lost along with the first: loads planned for one loss at a time are wasted after the next.
        """
        if self._begun and self.shards.opening:
            self.members.take_over()
            return []
        return self.members.replan(self._begun)

    # -- rollback -------------------------------------------------------------------------------------------------

    def _recover(self, reason: str, now_s: float) -> list[Instruction]:
        """Roll back to the last common clock of which every shard is available."""
        assert self.config is not None
        if self.progress.started_s is None:  # nothing was done yet
            self.tiers.abandon(self.members)
            return self._go_on(now_s)
        self.tiers.choose_stage(self.config, self.members)
        instructions = self._recovery.roll_back_to_replicas(reason) if self._begun else None
        if instructions is None:
            return self._roll_back_to_checkpoint(reason, now_s)
        self._after_rollback()
        return instructions + self._replan()

    def _roll_back_to_checkpoint(self, reason: str, now_s: float) -> list[Instruction]:
        """Roll back to the last checkpoint, or to the beginning, as soon as a node can serve."""
        self._recovery.roll_back_to_checkpoint(reason)
        self._begun, self.asked_s = False, now_s
        self._after_rollback()
        self.state = "waiting"
        return [] if self._end_without_model(now_s) else self._go_on(now_s)

    def _after_rollback(self) -> None:
        if self._late_stop is not None and self.book is not None:
            self.stopping.stop_reason = self._late_stop
            self._end_at(self.book.common)
        if self.stopping.ending and self.book is not None:
            self._end_at(self.book.common)  # a job that is to end does not repeat the lost clocks
        self._saving, self.reason = None, self.rollbacks[-1][1]
        self.members.settle(self._busy)

    # -- work -----------------------------------------------------------------------------------------------------

    def _dispatch(self, now_s: float) -> list[Instruction]:
        """Dispatch the micro-tasks that may run. At the end: gather the model."""
        book, dispatcher, limits = self.book, self._dispatcher, self.stopping
        if not self._begun or book is None or dispatcher is None or self._saving is not None or self.shards.opening:
            return []
        ready = {node.name: node for node in self.leaving.may_begin(now_s)}
        working = bool(ready) or bool(book.running)
        if limits.ending and not working:  # no node is left to complete the clock under way
            if not book.common and limits.stop_reason is not None:
                self._end(summary(self, now_s) | {"lost_micro_tasks": 0})
                return []
            self._end_at(book.common)
        if limits.last_clock is not None and book.common >= limits.last_clock:
            instructions = self._adapt(now_s)  # move the shards of leaving nodes
            return instructions if self.shards.moving else instructions + self._gather(now_s)
        self.state = "running" if working else "waiting"
        quarantined = self.members.quarantined
        self.reason = (
            self.progress.trouble
            if working
            else f"no node is left to work{quarantined and f' ({quarantined})'}; training continues when one joins"
        )
        return [
            *dispatcher.orders(self.members.placement, ready, limits.limit, self.shards.version, self.shards.generation)
        ]

    def _on_batch_done(self, event: events.BatchDone) -> list[Instruction]:
        book, node = self.book, self.members.process(event.node, event.address)
        if book is None or node is None:
            return []
        before = book.common
        done = [stats for stats in event.results if book.complete(stats.partition, event.clock, stats.attempt)]
        self.progress.add(node, event.clock, done)
        if not node.gone:
            node.holds |= frozenset(stats.partition for stats in done)
        self.progress.close(range(before + 1, book.common + 1), event.now_s, self.stage)
        self.members.settle(self._busy)
        # The checkpoint and the replicas come first: once the next clock is dispatched, the servers fold it in.
        saves = self._keep(event.now_s) + self._adapt(event.now_s) if book.common > before else []
        return saves + (self._answer_notices(event.now_s) or self._dispatch(event.now_s))

    def _on_batch_failed(self, event: events.BatchFailed) -> list[Instruction]:
        if self._dispatcher is None or self.members.process(event.node, event.address) is None:
            return []
        current = self._dispatcher.failed(event)
        if not current:
            return []
        if event.fatal:
            return self._fail(f"partition {current[0]}, clock {event.clock}, on node {event.node}: {event.error}")
        self.progress.failed(event.node, event.clock, event.error)
        self.members.settle(self._busy)
        return []

    def _on_node_failed(self, event: events.NodeFailed) -> list[Instruction]:
        node = self.members.process(event.node, event.address)
        if node is None or (
            node.state not in ("joining", "ready", "leaving", "unfit") and not self.shards.serves(node.name)
        ):
            return []
        return self._fail(f"node {event.node}: {event.error}")

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
        ended += self.members.ask_again(event.now_s)
        over = config.max_seconds is not None and self.progress.seconds(event.now_s) >= config.max_seconds
        if over and not self.stopping.ending:
            self._end_at(book.last_begun)
        if self.tiers.wave.passes(event.now_s):
            return ended + self._go_on(event.now_s)
        return ended + self._begin(event.now_s) + self._adapt(event.now_s) + self._dispatch(event.now_s)
