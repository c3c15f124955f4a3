"""Nodes and servers of shards beside a controller: real `ShardStore`s, and nodes as queues of what they were told.

It knows by itself what was done under which attempt, and checks the controller's orders against that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from psengine.checkpointing import Checkpoint
from psengine.controller import Controller
from psengine.events import (
    BatchDone,
    CheckpointFailed,
    CheckpointSaved,
    Event,
    NodeReady,
    ShardsNotTaken,
    ShardsOpened,
    ShardsTaken,
)
from psengine.instructions import Dispatch, GatherModel, LoadPartitions, OpenShards, SaveCheckpoint, TakeShards
from psengine.model import JobConfig, TaskStats
from psengine.store import ShardStore
from psengine.sums import blocks

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
    batches: list[Dispatch] = field(default_factory=list)
    until_s: float = float("inf")


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
        self.attempts: dict[tuple[int, int], int] = {}  # {(clock, partition): highest attempt dispatched}
        self.completed: set[tuple[int, int]] = set()
        self.given_up: set[tuple[int, int, int]] = set()  # (clock, partition, attempt) that may no longer complete
        self.gathered: GatherModel | None = None
        self.keeping: tuple[Checkpoint, dict[int, float]] | None = None  # what is being written: where, and its values
        self.kept: tuple[Checkpoint, dict[int, float]] | None = None
        self.restored: tuple[Checkpoint, dict[int, float]] | None = None  # what this controller went on from
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
                    node.opens.append(order)
                case TakeShards():
                    assert not node.noticed, "shards for a node that was told to go"
                    node.takes.append(order)
        self.controller.validate()

    def common(self) -> int:
        """The clock that every partition has completed."""
        clock = 0
        while all((clock + 1, p) in self.completed for p in range(self.config.n_partitions)):
            clock += 1
        return clock

    def check_dispatch(self, order: Dispatch, node: ModelNode) -> None:
        """Check that the node may do it, that it is due, and that nobody has done it; note its attempts."""
        assert node.alive, "work for a node that is gone"
        assert not node.noticed, "work for a node that was told to go"
        assert not node.unfit, "work for a node that cannot load"
        assert order.clock <= self.common() + 1 + self.config.staleness, "beyond the SSP bound"
        assert order.committed == self.common()
        assert order.clock <= (self.config.clocks or 0)
        assert self.held is None or order.clock <= self.held, "beyond where it is held"
        for task in order.tasks:
            key = order.clock, task.partition
            assert key not in self.completed, "done again what was done"
            assert task.attempt == self.attempts.get(key, 0) + 1
            self.attempts[key] = task.attempt

    def keep(self, order: SaveCheckpoint) -> None:
        """The servers answer at once: what comes after it in the same orders is not theirs yet."""
        assert self.keeping is None, "two checkpoints at a time"
        assert order.committed == self.common() > (0 if self.kept is None else self.kept[0].clock)
        values = {shard: store.read(order.committed, exact=True)["w"].item() for shard, store in self.stores.items()}
        assert {store.folded for store in self.stores.values()} == {order.committed * self.config.n_partitions}
        self.keeping = Checkpoint(order.committed, f"clock-{order.committed}", order.summary), values

    def written(self, whole: bool) -> None:
        """The checkpoint that is being written is whole, or could not be kept."""
        assert self.keeping is not None
        keeping, self.keeping = self.keeping, None
        if whole:
            self.kept = keeping
            self.feed(CheckpointSaved(keeping[0].clock, self.now_s))
        else:
            self.feed(CheckpointFailed("store away", self.now_s))

    def push(self, order: Dispatch, shards: tuple[int, ...]) -> None:
        """Bring the effects of a batch to some of the shards."""
        attempts = {task.partition: task.attempt for task in order.tasks}
        for shard in shards:
            for low, high in blocks(attempts, self.config.n_partitions):
                total = sum(1.0 + partition + 100 * order.clock for partition in range(low, high))
                tries = [attempts[partition] for partition in range(low, high)]
                self.stores[shard].push(order.clock, low, tries, {"w": np.full((1, 1), total)})

    def pull(self, order: Dispatch) -> None:
        """Read what the batch must see of every shard."""
        for store in self.stores.values():
            store.read(order.committed, exact=False)

    def report(self, order: Dispatch) -> None:
        """Tell the controller that a batch is done."""
        for task in order.tasks:
            key = order.clock, task.partition
            # its effect is on every server; yet the report of a superseded or given-up attempt must not count
            if self.attempts[key] == task.attempt and (*key, task.attempt) not in self.given_up:
                self.completed.add(key)
        stats = tuple(TaskStats(t.partition, t.attempt, 2.0, 1, 0.0) for t in order.tasks)
        self.feed(BatchDone(order.node, order.address, order.clock, stats, self.now_s))

    def work(self, node: ModelNode) -> Dispatch:
        """Do the first batch of a node, and return it."""
        order = node.batches.pop(0)
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
            opened = node.opens.pop(0)
            assert opened.checkpoint == (None if self.restored is None else self.restored[0])
            for shard in opened.shards:
                if opened.checkpoint is None:
                    self.stores[shard] = ShardStore(
                        shard, opened.epoch, {"w": np.zeros((1, 1))}, self.config.n_partitions
                    )
                else:
                    assert self.restored is not None
                    clock, value = opened.checkpoint.clock, self.restored[1][shard]
                    folded = clock * self.config.n_partitions
                    self.stores[shard] = ShardStore(
                        shard, opened.epoch, {"w": np.full((1, 1), value)}, self.config.n_partitions, clock, folded
                    )
            self.feed(ShardsOpened(node.name, node.address, opened.shards, self.now_s))

    def take(self, node: ModelNode, comes: bool = True) -> None:
        """The shards that a node was told to take come to it, or do not; here they are in one place all the time."""
        order = node.takes.pop(0)
        if not comes:
            self.feed(ShardsNotTaken(node.name, node.address, order.shards, order.epoch, "away", self.now_s))
            return
        for shard, under in zip(order.shards, order.served_under, strict=True):
            assert self.stores[shard].epoch == under < order.epoch
            self.stores[shard] = ShardStore.of(shard, order.epoch, self.config.n_partitions, self.stores[shard].state())
        self.feed(ShardsTaken(node.name, node.address, order.shards, order.epoch, self.now_s))

    def give_up(self, orders: list[Dispatch]) -> None:
        """Note that the attempts of these may no longer count."""
        self.given_up |= {(o.clock, task.partition, task.attempt) for o in orders for task in o.tasks}

    def alive(self) -> list[ModelNode]:
        """The nodes whose processes are there."""
        return [node for node in self.nodes.values() if node.alive]

    def waiting(self) -> list[ModelNode]:
        """Those that have something to load or to open."""
        return [node for node in self.alive() if node.loads or node.opens]

    def taking(self) -> list[ModelNode]:
        """Those to whom shards are on their way."""
        return [node for node in self.alive() if node.takes]

    def busy(self) -> list[ModelNode]:
        """Those that have work."""
        return [node for node in self.alive() if node.batches]
