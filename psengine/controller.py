"""The elasticity controller of AgileML and master of Litz: one door, events in, instructions out. Pure.

It decides which node works on which partition, which node serves which shard, which micro-tasks run when and under which
attempt, and when the job is over. It knows no network, no clock and no Dask; the shell carries its instructions out.

| event | what follows |
|---|---|
| JobStarted | every node that is there is told to load; attach when it runs already |
| NodeJoined | its share of partitions to load, in the background; nobody stops; one with other code than the job's is set aside |
| NodeReady | from the next dispatch on it owns what it holds of its share |
| ShardsOpened | when all are open: the map to everybody, the first dispatch |
| ShardsTaken | the map, which says so, to everybody; who had them may go |
| ShardsNotTaken | moved again at the next tick |
| BatchDone | the clock may have become common: the next dispatch, or the end |
| BatchFailed | dispatched again at the next tick; a fatal one fails the job |
| NodeFailed | the job fails: its application is wrong |
| NodeUnfit | the node is set aside, its partitions go elsewhere; the job fails when no node that is there can load |
| NoticeReceived, DrainRequested | no new work; its partitions to their previous owners, its shards to other reliable nodes; drained when nothing runs and nothing is served |
| NodeLost | what it ran is dispatched again at once under the next attempt |
| TickDue | deadlines: start, notices, `max_seconds` |
| HoldRequested | no clock beyond the one that it names is begun; nothing ends |
| StopRequested | no new clock; the model of the clock under way; before the first clock: an end without a model |
| EffectsMissing | the job fails, and nothing was saved |
| SaveFailed | the shards are still there: gathered and saved again, see `saving` |
| CheckpointRequested | what is committed is kept now, see `checkpointing` |
| CheckpointSaved, CheckpointFailed | the next one is put off |

Invariants: a partition has an owner while a ready node exists (once training began); owners are ready nodes; one attempt
of a micro-task is current; nothing is dispatched beyond the driver's bound.

It puts together `membership` (who is there and owns what), `shardmap` (who serves), `microtasks` (what is done and runs),
`dispatching`, `limits` (how far the job goes), `progress`, `checkpointing` and `saving`.

Source: Proteus (EuroSys 2017), 3.2-3.3; Litz (2017), 3.
Differs: stage 1 only (ParamServs on reliable nodes, workers on all); `stages.stage_for` is what will choose.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from psengine import events, invariants
from psengine.checkpointing import Checkpoint, Checkpointing
from psengine.dispatching import Dispatcher
from psengine.drivers.ssp import SspDriver
from psengine.instructions import GatherModel, Instruction, SaveCheckpoint
from psengine.limits import Limits
from psengine.membership import Membership
from psengine.microtasks import MicroTaskBook
from psengine.model import JobConfig
from psengine.progress import Progress
from psengine.saving import Saving
from psengine.shardmap import ShardMap
from psengine.stages import Stage
from psengine.status import summary

JobState = Literal["starting", "waiting", "running", "finished", "stopped", "failed"]
ENDED: tuple[JobState, ...] = ("finished", "stopped", "failed")


class Controller:
    """State of one job. Change it through `handle` only; everything else is to be looked at.

    Attributes
    ----------
    result : dict or None
        What the job has come to, once it is finished or stopped; `stopped` in it is the reason of a stop, or None. One
        that was stopped before its first clock has `clocks` 0, and no model was saved.
    """

    def __init__(self) -> None:
        self.config: JobConfig | None = None
        self.state: JobState = "starting"
        self.reason = "waiting for a job"
        self.members = Membership()
        self.shards = ShardMap()
        self.book: MicroTaskBook | None = None
        self.limits = Limits()
        self.stage: Stage = 1
        self.asked_s: float | None = None
        self.progress = Progress()
        self.lost_micro_tasks: int | None = None
        self.result: dict[str, object] | None = None
        self.checkpoints = Checkpointing(None, 0)
        self._restored: Checkpoint | None = None
        self._dispatcher: Dispatcher | None = None
        self._begun = False
        self._saving: Saving | None = None

    # -- the one door ---------------------------------------------------------------------------------------------

    def handle(self, event: events.Event) -> list[Instruction]:
        """Take one event and return what is to be done, in order. Late and repeated events change nothing."""
        if self.state in ENDED and not isinstance(event, events.NodeJoined | events.NodeLost):
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
            case events.ShardsTaken():
                return self._on_shards_taken(event)
            case events.ShardsNotTaken():
                self.shards.not_taken(event.shards, event.epoch)
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
            case events.NodeLost():
                return self._on_lost(event)
            case events.TickDue():
                return self._on_tick(event)
            case events.StopRequested():
                return self._on_stop(event.reason, event.now_s)
            case events.HoldRequested():
                self.limits.hold_at(event.clock)
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
                self.checkpoints.saved(event.clock, event.now_s)
                return []
            case events.CheckpointFailed():
                self.checkpoints.failed(event.now_s)
                return []

    @property
    def training(self) -> bool:
        """Whether the shards are open and the job has not ended."""
        return self._begun and self.state not in ENDED

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
        if self.members.compare_code(self.members.in_state("joining")):
            return self._without_the_unfit(event.now_s)
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
        self.checkpoints = Checkpointing(config.checkpoint_s, clock)
        self._restored = checkpoint
        if checkpoint is not None:
            self.progress.go_on(checkpoint.summary)
            self.book.repeated = int(checkpoint.summary["repeated_micro_tasks"])
        self.members.adopt(config)
        self.limits.target = config.clocks
        self._dispatcher = Dispatcher(self.book, SspDriver(config.staleness))

    def _begin(self, now_s: float) -> list[Instruction]:
        """Open the shards when enough nodes are there; a node that still loads is waited for, within limits."""
        if self.config is None or self.asked_s is None or self._begun or self.shards.opening:
            return []
        if self.members.cannot_serve:
            return self._fail(f"too few nodes can serve: {self.members.set_aside}")
        servers = self.members.servers(patient=now_s - self.asked_s < self.config.start_patience_s)
        if not servers:
            return []
        self.reason = "opening the shards"
        return [*self.shards.open(self.config, servers, self._restored)]

    def _on_shards_opened(self, event: events.ShardsOpened) -> list[Instruction]:
        if self.members.process(event.node, event.address) is None:
            return []
        if not self.shards.opened(event.node, event.shards):
            return []
        self._begun = True
        self.progress.begin(event.now_s)
        self.checkpoints.begin(event.now_s)
        return self._maps() + self.members.replan(self._begun) + self._dispatch(event.now_s)

    def _on_shards_taken(self, event: events.ShardsTaken) -> list[Instruction]:
        if self.members.process(event.node, event.address) is None or not self.shards.taken(event.shards, event.epoch):
            return []
        self.members.settle(self._busy)
        return self._maps() + self._clear() + self._dispatch(event.now_s)

    def _maps(self) -> list[Instruction]:
        """Return the orders that tell everybody the map."""
        there = [node for node in self.members.nodes.values() if not node.gone]
        return [self.shards.update_for(node) for node in there]

    def _on_stop(self, reason: str, now_s: float) -> list[Instruction]:
        if self._saving is not None:
            return []
        self.limits.stop_reason = reason
        if self.book is None or not (self._begun or self._restored):  # there is nothing to save
            self._end(summary(self, now_s) | {"lost_micro_tasks": 0})
            return []
        self.limits.end_at(max(self.book.common, self.book.last_dispatched))
        return self._dispatch(now_s)

    def _fail(self, reason: str) -> list[Instruction]:
        self.state, self.reason = "failed", reason
        return []

    def _end(self, result: dict[str, object], reason: str = "reached its stopping criterion") -> None:
        """End with `result`; whether the job was stopped is what the result says, here and in the manifest alike."""
        stopped = result.get("stopped")
        self.result, self.lost_micro_tasks = result, 0
        self.state, self.reason = ("finished", reason) if stopped is None else ("stopped", str(stopped))

    # -- the model is saved ---------------------------------------------------------------------------------------

    def _gather(self, now_s: float) -> list[Instruction]:
        assert self.book is not None
        assert self.config is not None
        self.state, self.reason = "running", "saving the model"
        self._saving = Saving(GatherModel(self.config, self.book.common, self.shards.owners, summary(self, now_s)))
        return [self._saving.order]

    def _keep(self, now_s: float) -> list[Instruction]:
        """Order a checkpoint of the common clock, if one is due."""
        book = self.book
        if not self._begun or self._saving is not None or book is None or self.config is None:
            return []
        if not self.checkpoints.take(book.common, now_s):
            return []
        return [SaveCheckpoint(self.config, book.common, self.shards.owners, summary(self, now_s))]

    def _on_effects_missing(self, lost: int) -> list[Instruction]:
        self.lost_micro_tasks = lost
        return self._fail(f"{lost} effect(s) are missing from the model")

    def _on_save_failed(self, event: events.SaveFailed) -> list[Instruction]:
        saving = self._saving
        if saving is None:
            return []
        if not saving.failed(event.error, event.fatal, event.now_s):
            return self._fail(saving.reason)
        self.reason = saving.reason
        return []

    # -- nodes come and go ----------------------------------------------------------------------------------------

    def _on_joined(self, event: events.NodeJoined) -> list[Instruction]:
        if self.members.process(event.node, event.address) is not None:
            return []
        out: list[Instruction] = []
        known = self.members.nodes.get(event.node)
        if known is not None and not known.gone:  # its process was replaced before the loss was seen
            out += self._on_lost(events.NodeLost(known.address, "its process was replaced", event.now_s))
        node = self.members.join(event.node, event.address, event.tier, event.threads, event.code_sha256)
        if self.state in ENDED:
            return out
        if self._begun:
            out.append(self.shards.update_for(node))
        if self.members.compare_code([node]):
            return out + self._without_the_unfit(event.now_s)
        return out + self.members.replan(self._begun)

    def _on_ready(self, event: events.NodeReady) -> list[Instruction]:
        node = self.members.process(event.node, event.address)
        if node is None:
            return []
        node.holds |= frozenset(event.partitions)
        if node.state == "joining":
            node.state = "ready"
        return self._go_on(event.now_s)

    def _on_unfit(self, event: events.NodeUnfit) -> list[Instruction]:
        node = self.members.process(event.node, event.address)
        if node is None or node.state not in ("joining", "ready"):
            return []
        node.state, node.error = "unfit", event.error
        return self._without_the_unfit(event.now_s)

    def _without_the_unfit(self, now_s: float) -> list[Instruction]:
        """Go on without the nodes that were set aside; fail when there are no others, and none is awaited."""
        if self.members.cannot_load:
            return self._fail(f"no node can load: {self.members.set_aside}")
        return self._go_on(now_s)

    def _on_notice(self, event: events.NoticeReceived) -> list[Instruction]:
        if not self.members.notice(event.node, event.seconds_left, event.about):
            return []
        return self._drain((event.node,), event.seconds_left, event.now_s)

    def _drain(self, names: tuple[str, ...], seconds: float, now_s: float) -> list[Instruction]:
        self.members.drain(names, now_s + seconds)
        self.members.settle(self._busy)
        return self._go_on(now_s)

    def may_leave(self, names: Collection[str]) -> bool:
        """Return whether these nodes can go: what they serve, somebody else can."""
        others = [node for node in self.members.able_to_serve if node.name not in names]
        return bool(others) or not any(self.shards.serves(name) for name in names)

    def _clear(self) -> list[Instruction]:
        """Move the shards of those who are to go, if somebody can take them; not while the model is gathered."""
        if not self._begun or self._saving is not None or self.config is None:
            return []
        leaving = {node.name for node in self.members.in_state("draining")}
        return [*self.shards.clear(self.config, leaving, self.members.able_to_serve)]

    def _busy(self, name: str) -> bool:
        return self.shards.serves(name) or (self.book is not None and self.book.running_on(name) > 0)

    def _on_lost(self, event: events.NodeLost) -> list[Instruction]:
        node = self.members.at(event.address)
        if node is None:
            return []
        self.members.lose(node)
        if self.state in ENDED or self.book is None:
            return []
        if self.shards.serves(node.name):
            if self._begun:
                reason = f"reliable node {node.name} is gone and with it the shards it served: {event.reason}"
                late = self._saving is not None and self._saving.lose_shards(reason)
                return [] if late else self._fail(reason)
            self.shards.abandon()
        self.book.give_up(node.name)
        return self._go_on(event.now_s)

    def _go_on(self, now_s: float) -> list[Instruction]:
        """Return what follows from a change of the nodes."""
        return self.members.replan(self._begun) + self._begin(now_s) + self._clear() + self._dispatch(now_s)

    # -- work -----------------------------------------------------------------------------------------------------

    def _dispatch(self, now_s: float) -> list[Instruction]:
        """Dispatch whatever may run. At the end: gather the model."""
        book, dispatcher, limits = self.book, self._dispatcher, self.limits
        if not self._begun or book is None or dispatcher is None or self._saving is not None:
            return []
        ready = {node.name: node for node in self.members.in_state("ready")}
        working = bool(ready) or bool(book.running)
        if limits.stop_reason is not None and not working:
            limits.end_at(book.common)  # nobody is left to complete the clock under way
        if limits.last_clock is not None and book.common >= limits.last_clock:
            return [] if self.shards.moving else self._gather(now_s)
        self.state = "running" if working else "waiting"
        aside = self.members.set_aside
        self.reason = "" if working else f"no node is left to work{aside and f' ({aside})'}; goes on when one joins"
        return [*dispatcher.orders(self.members.placement, ready, limits.limit, self.shards.version)]

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
        # First the state that is to be kept: once the next clock is dispatched, its servers move on.
        kept = self._keep(event.now_s) if book.common > before else []
        return kept + self._dispatch(event.now_s)

    def _on_batch_failed(self, event: events.BatchFailed) -> list[Instruction]:
        if self._dispatcher is None or self.members.process(event.node, event.address) is None:
            return []
        current = self._dispatcher.failed(event)
        if not current:
            return []
        if event.fatal:
            return self._fail(f"partition {current[0]}, clock {event.clock}, on node {event.node}: {event.error}")
        self.members.settle(self._busy)
        return []

    def _on_node_failed(self, event: events.NodeFailed) -> list[Instruction]:
        node = self.members.process(event.node, event.address)
        if node is None or (node.state not in ("joining", "ready", "unfit") and not self.shards.serves(node.name)):
            return []
        return self._fail(f"node {event.node}: {event.error}")

    def _on_tick(self, event: events.TickDue) -> list[Instruction]:
        book, config = self.book, self.config
        if book is None or config is None or self._dispatcher is None:
            return []
        self._dispatcher.tick()
        for name in self.members.overdue(event.now_s):
            book.give_up(name)
        self.members.settle(self._busy)
        if self._saving is not None:
            return [*self._saving.due(event.now_s)]
        over = config.max_seconds is not None and self.progress.seconds(event.now_s) >= config.max_seconds
        if over and not self.limits.ending:
            self.limits.end_at(max(book.common, book.last_dispatched))
        return self._begin(event.now_s) + self._clear() + self._dispatch(event.now_s)
