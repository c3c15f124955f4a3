"""A controller whose nodes do at once what they are instructed to, and whose clocks take as long as a test says."""

from __future__ import annotations

from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.protocol import events
from proteus_spot.psengine.protocol.instructions import (
    BackUp,
    Dispatch,
    Instruction,
    LoadPartitions,
    OpenShards,
    TakeShards,
)


class InstantCluster:
    """`config.n_reliable` reliable nodes and `transient` ones; each task reports `kernel_s`."""

    def __init__(self, config: JobConfig, transient: int, kernel_s: float = 0.0) -> None:
        self.controller, self.now_s, self.kernel_s = Controller(), 0.0, kernel_s
        #: Batches that are not done.
        self.batches: list[Dispatch] = []
        for number in range(config.n_reliable + transient):
            tier = "reliable" if number < config.n_reliable else "transient"
            self.feed(events.NodeJoined(f"n{number}", f"sim://n{number}", tier, 1, 0.0))
        self.feed(events.JobStarted(config, 0.0))
        for _ in range(4):
            self.tick()

    def feed(self, event: events.Event) -> None:
        """Hand the controller an event, and let nodes do what follows; batches are left to the test."""
        for order in self.controller.handle(event):
            self._do(order)

    def _do(self, order: Instruction) -> None:
        match order:
            case LoadPartitions():
                self.feed(events.NodeReady(order.node, order.address, order.request, order.partitions, self.now_s))
            case OpenShards():
                self.feed(events.ShardsOpened(order.node, order.address, order.shards, order.epoch, self.now_s))
            case TakeShards():
                self.feed(events.ShardsTaken(order.node, order.address, order.shards, order.epoch, self.now_s))
            case BackUp():
                self.feed(events.BackedUp(order.node, order.address, order.number, order.shards, self.now_s))
            case Dispatch():
                self.batches.append(order)

    def tick(self) -> None:
        self.now_s += 0.25
        self.feed(events.TimerFired(self.now_s))

    def results(self, batch: Dispatch) -> tuple[events.TaskStats, ...]:
        return tuple(events.TaskStats(t.partition, t.attempt, 1.0, 1, self.kernel_s) for t in batch.tasks)

    def do_clock(self, seconds: float) -> None:
        """Report all batches under way, `seconds` later, each by itself, and let the timer fire."""
        self.now_s += seconds
        batches, self.batches = self.batches, []
        for batch in batches:
            done = self.results(batch)
            self.feed(events.BatchDone(batch.node, batch.address, batch.group, done, self.now_s))
        self.tick()
