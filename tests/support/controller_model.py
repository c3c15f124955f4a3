"""Nodes and servers of shards beside a controller: real `ShardStore`s, and nodes as queues of their instructions.

It tracks which attempts are done, and checks the controller's instructions against that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.protocol.events import (
    BackedUp,
    BatchDone,
    BatchFailed,
    CheckpointFailed,
    CheckpointSaved,
    Event,
    NodeReady,
    NodesLost,
    NotBackedUp,
    ShardsNotOpened,
    ShardsNotTaken,
    ShardsOpened,
    ShardsTaken,
    TaskStats,
)
from proteus_spot.psengine.protocol.instructions import (
    BackUp,
    Dispatch,
    GatherModel,
    LoadPartitions,
    OpenShards,
    RecallTasks,
    SaveCheckpoint,
    TakeShards,
)
from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.server.shard_store import ShardStore, StaleReadError
from proteus_spot.psengine.tables.tree_sum import largest_subtrees
from tests.support.controller_invariants import check_invariants

SHARDS = 2


@dataclass
class ModelNode:
    """A node: what it was told and has not done yet, and what the market or its disk has done to it."""

    name: str
    address: str
    reliable: bool
    alive: bool = True
    noticed: bool = False
    unfit: bool = False
    stranger: bool = False
    loads: list[LoadPartitions] = field(default_factory=list)
    opens: list[OpenShards] = field(default_factory=list)
    takes: list[TakeShards] = field(default_factory=list)
    backups: list[BackUp] = field(default_factory=list)
    batches: list[Dispatch] = field(default_factory=list)
    recalls: list[RecallTasks] = field(default_factory=list)
    until_s: float = float("inf")
    #: it may get new work before that
    works_until_s: float = float("inf")


class World:
    """What a controller's orders befall; `anew` first."""

    config: JobConfig
    controller: Controller
    held: int | None

    def anew(self, config: JobConfig) -> None:
        """Begin with a controller that has heard nothing, and nobody there."""
        self.config = config
        self.controller = Controller()
        self.now_s = 0.0
        self.names = 0
        self.repeats_before = 0
        self.nodes: dict[str, ModelNode] = {}
        self.stores: dict[int, ShardStore] = {}
        self.doubtful: set[int] = set()  # shards of which a move came to nothing
        self.served_at: dict[int, str] = {}  # {shard: address of the process that has its store}
        self.frozen: dict[int, int] = {}  # {shard: epoch of the move for which its server gave it away, to no avail}
        self.replicas: dict[tuple[str, int, int], ShardState] = {}  # {(address, shard, round): what is kept there}
        self.generation = 0
        self.dispatches: Counter[tuple[int, int]] = Counter()
        self.recalled: dict[int, int] = {}  # {partition: clock of its task that was given back and had not begun}
        self.attempts: dict[tuple[int, int], int] = {}  # {(clock, partition): highest attempt dispatched}
        self.completed: set[tuple[int, int]] = set()
        self.given_up: set[tuple[int, int, int]] = set()  # (clock, partition, attempt) that may no longer complete
        self.gathered: GatherModel | None = None
        self.keeping: tuple[Checkpoint, dict[int, float]] | None = None  # what is being written: where, and its values
        self.kept: tuple[Checkpoint, dict[int, float]] | None = None
        self.held = None

    def feed(self, event: Event) -> None:
        """Hand the controller an event, and its orders to those whom they are for."""
        for order in self.controller.handle(event):
            if isinstance(order, GatherModel):
                assert self.gathered is None, "the model is gathered once"
                self.gathered = order
                continue
            if isinstance(order, SaveCheckpoint):
                self.keep(order)
                continue
            node = self.nodes[order.node]
            assert node.address == order.address
            match order:
                case Dispatch():
                    self.check_dispatch(order, node)
                    node.batches.append(order)
                case LoadPartitions():
                    node.loads.append(order)
                case OpenShards():
                    self.begin_generation(order)
                    node.opens.append(order)
                case TakeShards():
                    back = order.from_address == node.address
                    assert back or not node.noticed, "shards for a node that was told to go"
                    assert not back or set(order.shards) <= set(self.frozen) | self.doubtful, "taken back for nothing"
                    node.takes.append(order)
                case BackUp():
                    self.check_back_up(order)
                    node.backups.append(order)
                case RecallTasks():
                    node.recalls.append(order)
        check_invariants(self.controller.job)

    def check_back_up(self, order: BackUp) -> None:
        """Check that a round is of the common clock."""
        assert order.group == self.common()

    def common(self) -> int:
        """The clock that every partition has completed."""
        clock = 0
        while all((clock + 1, p) in self.completed for p in range(self.config.n_partitions)):
            clock += 1
        return clock

    def begin_generation(self, order: OpenShards) -> None:
        """All go back to one clock: what was done after it is not done any more."""
        if order.epoch == self.generation:
            return
        assert order.epoch > self.generation
        self.generation = order.epoch
        self.frozen, self.doubtful = {}, set()
        clock = (
            order.replicas.group if order.replicas is not None else order.checkpoint.group if order.checkpoint else 0
        )
        if clock > self.common():  # of a checkpoint that all have gone back from since, for want of newer copies
            assert order.checkpoint is not None, "back to what is still to come"
            self.completed |= {(c, p) for c in range(1, clock + 1) for p in range(self.config.n_partitions)}
        if order.replicas is None:
            newest = None if self.kept is None else self.kept[0].for_nodes()
            assert order.checkpoint == newest, "the newest checkpoint there is"
        self.completed = {key for key in self.completed if key[0] <= clock}

    def value(self, clock: int) -> float:
        """What the model must be at a common clock."""
        return sum(1.0 + p + 100 * c for c in range(1, clock + 1) for p in range(self.config.n_partitions))

    def lose(self, *nodes: ModelNode) -> None:
        """The processes of nodes are gone with all that they had; one that was said to be drained is nobody's loss."""
        gone = {node.address: "killed" for node in nodes}
        drained = {known.name for known in self.controller.job.members.in_state("drained")}
        before = len(self.controller.job.rollbacks), set(self.completed)
        for node in nodes:
            node.alive = False
        for shard in [shard for shard, address in self.served_at.items() if address in gone]:
            del self.stores[shard], self.served_at[shard]
        self.replicas = {key: state for key, state in self.replicas.items() if key[0] not in gone}
        self.feed(NodesLost(gone, self.now_s))
        back = len(self.controller.job.rollbacks) - before[0]
        assert back <= 1, "all go back once, however many are lost"
        assert not {node.name for node in nodes} <= drained or (back, before[1]) == (0, self.completed), (
            "an acknowledged update is lost"
        )

    def check_dispatch(self, order: Dispatch, node: ModelNode) -> None:
        """Check that the node may do it, that it is due, and that nobody has done it; note its attempts."""
        assert node.alive, "work for a node that is gone"
        assert self.now_s < node.works_until_s, "work for a node that was told to go, and has no time for it"
        assert not node.unfit, "work for a node that cannot load"
        assert order.group <= self.common() + 1 + self.config.staleness, "beyond the SSP bound"
        assert order.committed == self.common()
        assert order.group <= (self.config.clocks or 0)
        held = None if self.controller.job.stopping.ending else self.held  # a hold delays no end
        assert held is None or order.group <= held, "beyond where it is held"
        for task in order.tasks:
            key = order.group, task.partition
            assert key not in self.completed, "done again what was done"
            assert task.attempt > self.attempts.get(key, 0)
            self.attempts[key] = task.attempt
            if self.recalled.pop(task.partition, None) != order.group:  # what had not begun is not done again
                self.dispatches[key] += 1
            if task.follows is not None:
                assert any(self.has_task(before, task.partition, task.follows) for before in node.batches)
        assert order.generation == self.generation

    @staticmethod
    def has_task(order: Dispatch, partition: int, key: tuple[int, int]) -> bool:
        """Return whether a batch has a partition's task of this clock and attempt."""
        return any((task.partition, order.group, task.attempt) == (partition, *key) for task in order.tasks)

    def followers(self, node: ModelNode, before: Dispatch) -> list[Dispatch]:
        """Return the batches of a node that follow `before`, and those that follow these."""
        found = [before]
        for order in node.batches:
            follows = [(task.partition, task.follows) for task in order.tasks if task.follows is not None]
            if any(self.has_task(other, partition, key) for other in found for partition, key in follows):
                found.append(order)
        return found[1:]

    def give_back(self, node: ModelNode) -> None:
        """A node gives back what was recalled and it has not begun: whatever follows another batch."""
        clocks = {recall.group for recall in node.recalls}
        node.recalls.clear()
        for order in [order for order in node.batches[1:] if order.group in clocks and order.tasks[0].follows]:
            node.batches.remove(order)
            self.fail(node, order, "recalled", recalled=True)

    def fail(self, node: ModelNode, order: Dispatch, error: str, recalled: bool = False) -> None:
        """Report a batch that a node has given up, and those that follow it."""
        followers = self.followers(node, order)
        node.batches = [batch for batch in node.batches if batch not in followers]
        for batch in (order, *followers) if recalled and order.generation == self.generation else ():
            for task in batch.tasks:
                if (batch.group, task.partition, task.attempt) not in self.given_up:
                    self.recalled[task.partition] = batch.group
        self.give_up([order, *followers])
        for batch in (order, *followers):
            tasks = tuple((t.partition, t.attempt) for t in batch.tasks)
            about = (batch.group, tasks, error, False, self.now_s)
            self.feed(BatchFailed(node.name, node.address, *about, recalled=recalled))

    def keep(self, order: SaveCheckpoint) -> None:
        """The servers answer at once: what comes after it in the same orders is not theirs yet."""
        assert self.keeping is None, "two checkpoints at a time"
        assert order.committed > (0 if self.kept is None else self.kept[0].group)
        if order.from_replicas:
            states = [self.replicas[owner.address, owner.shard, owner.epoch] for owner in order.owners]
        else:
            assert order.committed == self.common()
            states = [self.stores[shard].copy(order.committed) for shard in range(SHARDS)]
        assert len(states) == SHARDS
        assert {(state.group, state.folded) for state in states} == {
            (order.committed, order.committed * self.config.n_partitions)
        }
        values = {shard: state.arrays["w"].item() for shard, state in enumerate(states)}
        assert set(values.values()) == {self.value(order.committed)}
        losses = order.summary["losses"]
        assert isinstance(losses, list)
        assert [clock for clock, _ in losses] == list(range(1, order.committed + 1))
        self.keeping = Checkpoint(order.committed, f"clock-{order.committed}", order.summary), values

    def written(self, whole: bool) -> None:
        """The checkpoint that is being written is whole, or could not be kept."""
        assert self.keeping is not None
        keeping, self.keeping = self.keeping, None
        if whole:
            self.kept = keeping
            self.feed(CheckpointSaved(keeping[0], self.now_s))
        else:
            self.feed(CheckpointFailed("store away", self.now_s))

    def push(self, order: Dispatch, shards: tuple[int, ...]) -> None:
        """Bring the updates of a batch to some of the shards."""
        attempts = {task.partition: task.attempt for task in order.tasks}
        if order.generation < self.generation:
            return  # its epochs are of before
        for shard in shards:
            if shard not in self.stores or shard in self.frozen:
                continue  # nobody answers, or sends on to somebody who has it not
            for low, high in largest_subtrees(attempts, self.config.n_partitions):
                total = sum(1.0 + partition + 100 * order.group for partition in range(low, high))
                tries = [attempts[partition] for partition in range(low, high)]
                self.stores[shard].push(order.group, low, tries, {"w": np.full((1, 1), total)})

    def pull(self, order: Dispatch) -> None:
        """Read what the batch must see of every shard."""
        for store in self.stores.values():
            store.read(order.committed, exact=False)

    def report(self, order: Dispatch) -> None:
        """Tell the controller that a batch is done."""
        for task in order.tasks:
            key = order.group, task.partition
            # its update is on every server; yet the report of a superseded or given-up attempt must not count
            counts = order.generation == self.generation and (*key, task.attempt) not in self.given_up
            if self.attempts[key] == task.attempt and counts:
                self.completed.add(key)
        stats = tuple(TaskStats(t.partition, t.attempt, 2.0, 1, 0.0) for t in order.tasks)
        self.feed(BatchDone(order.node, order.address, order.group, stats, self.now_s))

    def work(self, node: ModelNode) -> Dispatch:
        """Do the first batch of a node, and return it."""
        order = node.batches.pop(0)
        if order.generation < self.generation or len(self.stores) < SHARDS or self.frozen:
            self.fail(node, order, "gone back")
            return order
        self.pull(order)
        self.push(order, tuple(range(SHARDS)))
        self.report(order)
        return order

    def answer(self, node: ModelNode, times: int = 1) -> None:
        """Carry out the latest load, or else open the shards that are waited for."""
        if node.loads:
            order = node.loads.pop()
            node.loads.clear()
            for _ in range(times):
                self.feed(NodeReady(node.name, node.address, order.request, order.partitions, self.now_s))
        elif node.opens:
            self.open(node, node.opens.pop(0))

    def open(self, node: ModelNode, order: OpenShards) -> None:
        """Open shards, as they began, as a checkpoint or as copies have them."""
        if order.epoch < self.generation:
            return
        partitions = self.config.n_partitions
        states: dict[int, ShardState] = {}
        for shard in order.shards:
            if order.replicas is not None:
                at, number = dict(order.replicas.at), order.replicas.number
                state = self.replicas.get((node.address, shard, number)) or self.replicas.get(
                    (at.get(shard, ""), shard, number)
                )
                if state is None:
                    what = order.shards, order.epoch
                    self.feed(ShardsNotOpened(node.name, node.address, *what, "nobody has it", self.now_s))
                    return
                assert (state.group, state.folded) == (order.replicas.group, order.replicas.group * partitions)
                assert state.arrays["w"].item() == self.value(state.group), "one consistent clock, and all of it"
                states[shard] = state
            elif order.checkpoint is not None:
                assert self.kept is not None
                clock = order.checkpoint.group
                states[shard] = ShardState({"w": np.full((1, 1), self.value(clock))}, clock, clock * partitions)
            else:
                states[shard] = ShardState({"w": np.zeros((1, 1))}, 0, 0)
        for shard, state in states.items():
            self.stores[shard] = ShardStore.of(shard, order.epoch, partitions, state)
            self.served_at[shard] = node.address
        self.feed(ShardsOpened(node.name, node.address, order.shards, order.epoch, self.now_s))

    def take(self, node: ModelNode, comes: str = "all") -> None:
        """The shards that a node was told to take come to it; or not, "away", or their server believes it: "half"."""
        order = node.takes.pop(0)
        there = order.epoch > self.generation and all(
            self.served_at.get(shard) == order.from_address for shard in order.shards
        )
        if comes != "all" or not there:
            if there and comes == "half":
                self.frozen |= dict.fromkeys(order.shards, order.epoch)
            self.doubtful |= set(order.shards)
            self.feed(ShardsNotTaken(node.name, node.address, order.shards, order.epoch, "away", self.now_s))
            return
        for shard, under in zip(order.shards, order.served_under, strict=True):
            assert self.stores[shard].epoch == under < order.epoch
            self.stores[shard] = ShardStore.of(shard, order.epoch, self.config.n_partitions, self.stores[shard].state())
            self.served_at[shard] = node.address
            self.frozen.pop(shard, None)
            self.doubtful.discard(shard)
        self.feed(ShardsTaken(node.name, node.address, order.shards, order.epoch, self.now_s))

    def back_up(self, node: ModelNode, works: bool = True) -> None:
        """A server copies its shards to their backups, or cannot."""
        order = node.backups.pop(0)
        try:
            if not works:
                raise StaleReadError("link away")
            for shard, epoch, backup in zip(order.shards, order.epochs, order.backups, strict=True):
                if self.served_at.get(shard) != node.address or self.stores[shard].epoch != epoch or self.frozen:
                    raise StaleReadError("moved")
                places = {node.address, backup}
                if not places <= {other.address for other in self.alive()}:
                    raise StaleReadError("backup away")
                state = self.stores[shard].copy(order.group)
                for address in places:
                    for key in [k for k in self.replicas if k[:2] == (address, shard) and k[2] < order.last_complete]:
                        del self.replicas[key]
                    self.replicas[address, shard, order.number] = state
        except StaleReadError as error:
            self.feed(NotBackedUp(node.name, node.address, order.number, str(error), self.now_s))
        else:
            self.feed(BackedUp(node.name, node.address, order.number, order.shards, self.now_s))

    def give_up(self, orders: list[Dispatch]) -> None:
        """Note that the attempts of these may no longer count."""
        self.given_up |= {(o.group, task.partition, task.attempt) for o in orders for task in o.tasks}

    def alive(self) -> list[ModelNode]:
        """The nodes whose processes are there."""
        return [node for node in self.nodes.values() if node.alive]

    def waiting(self) -> list[ModelNode]:
        """Those that have something to load or to open."""
        return [node for node in self.alive() if node.loads or node.opens]

    def taking(self) -> list[ModelNode]:
        """Those to whom shards are on their way."""
        return [node for node in self.alive() if node.takes]

    def serving(self) -> list[ModelNode]:
        """Those that serve shards."""
        return [node for node in self.alive() if node.address in self.served_at.values()]

    def copying(self) -> list[ModelNode]:
        """Those that are to copy what they serve."""
        return [node for node in self.alive() if node.backups]

    def busy(self) -> list[ModelNode]:
        """Those that have work."""
        return [node for node in self.alive() if node.batches]
