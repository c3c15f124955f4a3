"""The elasticity controller of AgileML and master of Litz: one door, events in, instructions out. Pure.

It decides which node works on which partition, which node serves which shard, which micro-tasks run when and under which
attempt, and when the job is over. It knows no network, no clock and no Dask; the shell carries its instructions out.

| event | what follows |
|---|---|
| JobStarted | every node that is there is told to load; attach when it runs already |
| NodeJoined | its share of partitions to load, in the background; nobody stops |
| NodeReady | from the next dispatch on it owns what it holds of its share |
| ShardsOpened | when all are open: the map to everybody, the first dispatch |
| BatchDone | the clock may have become common: the next dispatch, or the end |
| BatchFailed | dispatched again at the next tick; a fatal one fails the job |
| NodeFailed | the job fails: its application or its data are wrong |
| NoticeReceived, DrainRequested | no new work; its partitions to their previous owners; drained when nothing runs |
| NodeLost | what it ran is dispatched again at once under the next attempt |
| TickDue | deadlines: start, notices, `max_seconds` |
| StopRequested | no new clock; the model of the clock under way |

Invariants: a partition has an owner while a ready node exists (once training began); owners are ready nodes; one attempt
of a micro-task is current; nothing is dispatched beyond the driver's bound.

Source: Proteus (EuroSys 2017), 3.2-3.3; Litz (2017), 3.
Differs: stage 1 only (ParamServs on reliable nodes, workers on all); `stages.stage_for` is what will choose.
"""

from __future__ import annotations

from typing import Literal

from psengine.drivers.ssp import SspDriver
from psengine.events import (
    BatchDone,
    BatchFailed,
    DrainRequested,
    Event,
    JobFoundFinished,
    JobStarted,
    ModelSaved,
    NodeFailed,
    NodeJoined,
    NodeLost,
    NodeReady,
    NoticeReceived,
    SaveFailed,
    ShardsOpened,
    StopRequested,
    TickDue,
)
from psengine.instructions import (
    Dispatch,
    GatherModel,
    Instruction,
    LoadPartitions,
    OpenShards,
    ShardOwner,
    UpdateShardMap,
)
from psengine.microtasks import MicroTaskBook
from psengine.model import JobConfig, TaskKey
from psengine.nodes import NodeRecord
from psengine.plan import Owners, Placement, balance, switch, take_over
from psengine.stages import Stage

JobState = Literal["starting", "waiting", "running", "finished", "stopped", "failed"]
ENDED: tuple[JobState, ...] = ("finished", "stopped", "failed")


class Controller:
    """State of one job. Change it through `handle` only; everything else is to be looked at."""

    def __init__(self) -> None:
        self.config: JobConfig | None = None
        self.state: JobState = "starting"
        self.reason = "waiting for a job"
        #: {name: node}, in the order in which they joined
        self.nodes: dict[str, NodeRecord] = {}
        self.placement = Placement.empty(0)
        self.target: Owners = ()
        self.owners: tuple[ShardOwner, ...] = ()
        self.map_version = 0
        self.book: MicroTaskBook | None = None
        self.stage: Stage = 1
        self.asked_s: float | None = None
        self.started_s: float | None = None
        #: (clock, mean loss over all examples) of each common clock
        self.losses: list[tuple[int, float]] = []
        self.clock_seconds: list[float] = []
        self.notices: list[dict[str, object]] = []
        self.done_by_tier: dict[str, int] = {"reliable": 0, "transient": 0}
        self.lost_micro_tasks: int | None = None
        self.result: dict[str, object] | None = None
        self._driver = SspDriver(0)
        self._begun = False
        self._unopened: set[int] = set()
        self._epoch = 0
        self._batches = 0
        self._stop_at: int | None = None
        self._stop_reason: str | None = None
        self._saving = False
        self._held_back: set[int] = set()
        self._stats: dict[int, dict[int, tuple[float, int]]] = {}
        #: seconds in kernels, for each clock those of the node that had the most; what is left of a clock is overhead
        self.kernel_seconds = 0.0
        self._kernels: dict[int, dict[str, float]] = {}
        self._last_common_s = 0.0

    # -- the one door ---------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Instruction]:
        """Take one event and return what is to be done, in order. Late and repeated events change nothing."""
        if self.state in ENDED and not isinstance(event, NodeJoined | NodeLost):
            return []
        match event:
            case JobStarted():
                return self._on_job_started(event)
            case JobFoundFinished():
                return self._on_found_finished(event)
            case NodeJoined():
                return self._on_joined(event)
            case NodeReady():
                return self._on_ready(event)
            case ShardsOpened():
                return self._on_shards_opened(event)
            case BatchDone():
                return self._on_batch_done(event)
            case BatchFailed():
                return self._on_batch_failed(event)
            case NodeFailed():
                return self._on_node_failed(event)
            case NoticeReceived():
                return self._on_notice(event)
            case DrainRequested():
                return self._on_drain(event)
            case NodeLost():
                return self._on_lost(event)
            case TickDue():
                return self._on_tick(event)
            case StopRequested():
                return self._on_stop(event.reason, event.now_s)
            case ModelSaved():
                return self._on_saved(event)
            case SaveFailed():
                return self._fail(f"the model could not be saved: {event.error}")

    # -- views ----------------------------------------------------------------------------------------------------

    @property
    def last_clock(self) -> int | None:
        """The clock after which none is begun, None when only time ends the job."""
        target = self.config.clocks if self.config else None
        if self._stop_at is None:
            return target
        return self._stop_at if target is None else min(self._stop_at, target)

    def in_state(self, *states: str) -> list[NodeRecord]:
        """Return the nodes in one of `states`, in the order in which they joined."""
        return [node for node in self.nodes.values() if node.state in states]

    def validate(self) -> None:
        """Raise AssertionError when an invariant of the module docstring does not hold."""
        if not self._begun or self.book is None or self.config is None or self.state in ENDED:
            return
        ready = {node.name for node in self.in_state("ready")}
        assert all(owner in ready for owner in self.placement.owner if owner is not None)
        assert not ready or all(owner is not None for owner in self.placement.owner)
        alive = {node.name for node in self.in_state("ready", "draining")}
        for partition, running in self.book.running.items():
            assert running.node in alive, f"partition {partition} runs on {running.node}, which is gone"
            assert running.clock <= self.book.common + 1 + self.config.staleness
            assert self.last_clock is None or running.clock <= self.last_clock

    # -- the job --------------------------------------------------------------------------------------------------

    def _on_job_started(self, event: JobStarted) -> list[Instruction]:
        if self.config is not None:
            return []
        self._adopt(event.config)
        self.asked_s = event.now_s
        self.reason = f"waiting for {event.config.n_reliable} reliable node(s)"
        return self._replan() + self._begin(event.now_s)

    def _on_found_finished(self, event: JobFoundFinished) -> list[Instruction]:
        if self.config is None:
            self._adopt(event.config)
            self.state, self.reason, self.result = "finished", "the model was there already", event.result
            self.lost_micro_tasks = event.lost_micro_tasks
            self.losses = list(event.losses)
        return []

    def _adopt(self, config: JobConfig) -> None:
        self.config = config
        self.book = MicroTaskBook(config.n_partitions)
        self.placement = Placement.empty(config.n_partitions)
        self.target = self.placement.owner
        self._driver = SspDriver(config.staleness)

    def _begin(self, now_s: float) -> list[Instruction]:
        """Open the shards when enough nodes are there; a node that still loads is waited for, within limits."""
        if self.config is None or self.asked_s is None or self._begun or self._unopened:
            return []
        reliable = [node for node in self.in_state("ready") if node.tier == "reliable"]
        patient = now_s - self.asked_s < self.config.start_patience_s
        if len(reliable) < self.config.n_reliable or (patient and self.in_state("joining")):
            return []
        self._epoch += 1
        count = self.config.n_shards
        self._unopened = set(range(count))
        self.owners = tuple(
            ShardOwner(shard, node.name, node.address, self._epoch)
            for shard in range(count)
            for node in [reliable[shard * len(reliable) // count]]
        )
        self.reason = "opening the shards"
        return [
            OpenShards(node.name, node.address, self.config, shards, self._epoch)
            for node in reliable
            for shards in [tuple(o.shard for o in self.owners if o.node == node.name)]
            if shards
        ]

    def _on_shards_opened(self, event: ShardsOpened) -> list[Instruction]:
        node = self.nodes.get(event.node)
        if node is None or node.address != event.address or not self._unopened:
            return []
        self._unopened -= {o.shard for o in self.owners if o.node == event.node and o.shard in event.shards}
        if self._unopened:
            return []
        self._begun = True
        self.map_version += 1
        self.started_s = self._last_common_s = event.now_s
        maps: list[Instruction] = [self._map_for(node) for node in self.in_state("joining", "ready")]
        return maps + self._replan() + self._dispatch(event.now_s)

    def _map_for(self, node: NodeRecord) -> UpdateShardMap:
        return UpdateShardMap(node.name, node.address, self.map_version, self.owners)

    def _on_stop(self, reason: str, now_s: float) -> list[Instruction]:
        if self._saving:
            return []
        self._stop_reason = reason
        if self.book is None or not self._begun:
            self.state, self.reason = "stopped", reason
            return []
        self._stop_at = max(self.book.common, self.book.last_dispatched)
        return self._dispatch(now_s)

    def _fail(self, reason: str) -> list[Instruction]:
        self.state, self.reason = "failed", reason
        return []

    def _on_saved(self, event: ModelSaved) -> list[Instruction]:
        self.result = event.result
        lost = event.result.get("lost_micro_tasks")
        self.lost_micro_tasks = lost if isinstance(lost, int) else None
        if self.lost_micro_tasks:
            return self._fail(f"{self.lost_micro_tasks} effect(s) are missing from the model")
        if self._stop_reason is not None:
            self.state, self.reason = "stopped", self._stop_reason
        else:
            self.state, self.reason = "finished", "reached its stopping criterion"
        return []

    # -- nodes come and go ----------------------------------------------------------------------------------------

    def _on_joined(self, event: NodeJoined) -> list[Instruction]:
        known = self.nodes.get(event.node)
        if known is not None and known.address == event.address:
            return []
        out: list[Instruction] = []
        if known is not None and not known.gone:  # its process was replaced before the loss was seen
            out += self._on_lost(NodeLost(known.address, "its process was replaced", event.now_s))
        self.nodes.pop(event.node, None)
        self.nodes[event.node] = node = NodeRecord(event.node, event.address, event.tier, event.threads)
        if self.state in ENDED:
            return out
        if self._begun:
            out.append(self._map_for(node))
        return out + self._replan()

    def _on_ready(self, event: NodeReady) -> list[Instruction]:
        node = self.nodes.get(event.node)
        if node is None or node.address != event.address:
            return []
        node.holds |= frozenset(event.partitions)
        if node.state == "joining":
            node.state = "ready"
        return self._replan() + self._begin(event.now_s) + self._dispatch(event.now_s)

    def _on_notice(self, event: NoticeReceived) -> list[Instruction]:
        node = self.nodes.get(event.node)
        if node is None or node.gone:
            return []
        if not node.noticed:
            node.noticed = True
            seq = len(self.notices) + 1
            notice = {"node": node.name, "seconds_left": event.seconds_left, "seq": seq, "about": event.about}
            self.notices.append(notice)
        return self._drain([node], event.seconds_left, event.now_s)

    def _on_drain(self, event: DrainRequested) -> list[Instruction]:
        nodes = [self.nodes[name] for name in event.nodes if name in self.nodes and not self.nodes[name].gone]
        return self._drain(nodes, event.deadline_s, event.now_s)

    def _drain(self, nodes: list[NodeRecord], seconds: float, now_s: float) -> list[Instruction]:
        for node in nodes:
            until = now_s + seconds
            node.until_s = until if node.until_s is None else min(until, node.until_s)
            if node.state in ("joining", "ready"):
                node.state = "draining"
        self._settle_drained()
        return self._replan() + self._begin(now_s) + self._dispatch(now_s)

    def _settle_drained(self) -> None:
        for node in self.in_state("draining"):
            serves = any(owner.node == node.name for owner in self.owners)
            if not serves and (self.book is None or self.book.running_on(node.name) == 0):
                node.state = "drained"

    def _on_lost(self, event: NodeLost) -> list[Instruction]:
        node = next((n for n in self.nodes.values() if n.address == event.address and not n.gone), None)
        if node is None:
            return []
        node.gone, node.holds = True, frozenset()
        if node.state != "drained":
            node.state = "lost"
        if self.state in ENDED or self.book is None:
            return []
        if any(owner.node == node.name for owner in self.owners):
            if self._begun:
                return self._fail(f"reliable node {node.name} is gone and with it the shards it served: {event.reason}")
            self.owners, self._unopened = (), set()
        self.book.give_up(node.name)
        return self._replan() + self._begin(event.now_s) + self._dispatch(event.now_s)

    def _replan(self) -> list[Instruction]:
        """Bring the placement in line with the nodes; order the loads that the plan still lacks."""
        if self.config is None:
            return []
        candidates = self.in_state("joining", "ready")
        ready = [node.seat for node in self.in_state("ready")]
        if self._begun:
            self.placement = take_over(self.placement, ready)
        names = {node.name for node in candidates}
        held = tuple(
            owner if owner in names else planned if planned in names else None
            for owner, planned in zip(self.placement.owner, self.target, strict=True)
        )
        self.target = balance(held, [node.seat for node in candidates])
        if self._begun:
            self.placement = switch(self.placement, self.target, ready)
        out: list[Instruction] = []
        for node in candidates:
            share = frozenset(p for p, owner in enumerate(self.target) if owner == node.name)
            if node.wanted is not None and share <= node.wanted | node.holds:
                continue
            node.wanted = share | frozenset(self.placement.kept_by(node.name))
            node.request += 1
            wanted = tuple(sorted(node.wanted))
            out.append(LoadPartitions(node.name, node.address, self.config, node.request, wanted))
        return out

    # -- work -----------------------------------------------------------------------------------------------------

    def _dispatch(self, now_s: float) -> list[Instruction]:
        """Dispatch whatever may run: one message a node and clock. At the end: gather the model."""
        book = self.book
        if not self._begun or book is None or self.config is None or self._saving:
            return []
        ready = {node.name: node for node in self.in_state("ready")}
        working = bool(ready) or bool(book.running)
        if self._stop_reason is not None and not working:
            self._stop_at = book.common  # nobody is left to complete the clock under way
        if self.last_clock is not None and book.common >= self.last_clock:
            return self._gather(now_s)
        self.state = "running" if working else "waiting"
        self.reason = "" if working else "no node is left to work; goes on when one joins"
        groups: dict[tuple[str, int], list[int]] = {}
        for partition, clock in self._driver.ready(book.done, book.running, self.last_clock):
            owner = self.placement.owner[partition]
            if owner is not None and partition not in self._held_back:
                groups.setdefault((owner, clock), []).append(partition)
        out: list[Instruction] = []
        for (name, clock), partitions in groups.items():
            self._batches += 1
            node = ready[name]
            out.append(
                Dispatch(
                    node=name,
                    address=node.address,
                    batch=self._batches,
                    clock=clock,
                    tasks=tuple(TaskKey(p, book.start(p, clock, name)) for p in partitions),
                    parent_clock=self._driver.parent_clock(book.done, book.completions),
                    committed=book.common,
                    map_version=self.map_version,
                )
            )
        return out

    def _on_batch_done(self, event: BatchDone) -> list[Instruction]:
        book, node = self.book, self.nodes.get(event.node)
        if book is None or node is None or node.address != event.address:
            return []
        before = book.common
        done = [stats for stats in event.results if book.complete(stats.partition, event.clock, stats.attempt)]
        for stats in done:
            self._stats.setdefault(event.clock, {})[stats.partition] = (stats.loss_sum, stats.examples)
            self.done_by_tier[node.tier] += 1
            kernels = self._kernels.setdefault(event.clock, {})
            kernels[node.name] = kernels.get(node.name, 0.0) + stats.kernel_s / node.threads
        if not node.gone:
            node.holds |= frozenset(stats.partition for stats in done)
        for clock in range(before + 1, book.common + 1):
            self._close_clock(clock, event.now_s)
        self._settle_drained()
        return self._dispatch(event.now_s)

    def _close_clock(self, clock: int, now_s: float) -> None:
        parts = self._stats.pop(clock)
        examples = sum(parts[p][1] for p in sorted(parts))
        loss = sum(parts[p][0] for p in sorted(parts))
        self.losses.append((clock, loss / examples if examples else 0.0))
        self.kernel_seconds += max(self._kernels.pop(clock).values())
        self.clock_seconds.append(now_s - self._last_common_s)
        self._last_common_s = now_s

    def _on_batch_failed(self, event: BatchFailed) -> list[Instruction]:
        node = self.nodes.get(event.node)
        if self.book is None or node is None or node.address != event.address:
            return []
        current = [p for p, attempt in event.tasks if self.book.forget(p, event.clock, attempt)]
        if not current:
            return []
        if event.fatal:
            return self._fail(f"partition {current[0]}, clock {event.clock}, on node {event.node}: {event.error}")
        self._held_back |= set(current)  # until the next tick, so that a node that cannot work does not spin
        self._settle_drained()
        return []

    def _on_node_failed(self, event: NodeFailed) -> list[Instruction]:
        node = self.nodes.get(event.node)
        if node is None or node.address != event.address or node.state not in ("joining", "ready"):
            return []
        return self._fail(f"node {event.node}: {event.error}")

    def _on_tick(self, event: TickDue) -> list[Instruction]:
        self._held_back.clear()
        book, config = self.book, self.config
        if book is None or config is None:
            return []
        for node in self.in_state("draining"):
            if node.until_s is not None and event.now_s >= node.until_s:
                book.give_up(node.name)
        self._settle_drained()
        over = (
            config.max_seconds is not None
            and self.started_s is not None
            and event.now_s - self.started_s >= config.max_seconds
        )
        if over and self._stop_at is None:
            self._stop_at = max(book.common, book.last_dispatched)
        return self._begin(event.now_s) + self._dispatch(event.now_s)

    def _gather(self, now_s: float) -> list[Instruction]:
        assert self.book is not None
        assert self.config is not None
        assert self.started_s is not None
        self._saving = True
        self.state, self.reason = "running", "saving the model"
        summary: dict[str, object] = {
            "job_id": self.config.job_id,
            "app": self.config.app,
            "clocks": self.book.common,
            "seconds": now_s - self.started_s,
            "kernel_seconds": self.kernel_seconds,
            "losses": [list(pair) for pair in self.losses],
            "repeated_micro_tasks": self.book.repeated,
            "micro_tasks_done": dict(self.done_by_tier),
            "stopped": self._stop_reason,
        }
        return [GatherModel(self.config, self.book.common, self.owners, summary)]
