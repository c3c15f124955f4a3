"""Random storms of joins, loads, notices, losses, completions, late and doubled messages against the controller.

The nodes and the shards' servers are modelled beside it: real `ShardStore`s, nodes as queues of what they were told. What
the controller believes is never asked where the model knows it by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from psengine.controller import Controller
from psengine.events import (
    BatchDone,
    BatchFailed,
    DrainRequested,
    Event,
    JobStarted,
    ModelSaved,
    NodeJoined,
    NodeLost,
    NodeReady,
    NoticeReceived,
    ShardsOpened,
    StopRequested,
    TickDue,
)
from psengine.instructions import Dispatch, GatherModel, LoadPartitions, OpenShards
from psengine.microtasks import lost_effects
from psengine.model import JobConfig, TaskStats
from psengine.store import ShardStore

SHARDS = 2


@dataclass
class ModelNode:
    name: str
    address: str
    reliable: bool
    alive: bool = True
    noticed: bool = False
    loads: list[LoadPartitions] = field(default_factory=list)
    opens: list[OpenShards] = field(default_factory=list)
    batches: list[Dispatch] = field(default_factory=list)
    until_s: float = float("inf")


class ControllerMachine(RuleBasedStateMachine):
    late = Bundle("late")

    @initialize(
        partitions=st.integers(1, 7),
        clocks=st.integers(1, 6),
        staleness=st.sampled_from([0, 0, 1, 3]),
        n=st.integers(1, 4),
        begun=st.sampled_from([True, True, False]),
    )
    def begin(self, partitions: int, clocks: int, staleness: int, n: int, begun: bool) -> None:
        self.config = JobConfig(
            "storm", n_partitions=partitions, n_shards=SHARDS, staleness=staleness, clocks=clocks, start_patience_s=3.0
        )
        self.controller = Controller()
        self.now_s = 0.0
        self.names = 0
        self.nodes: dict[str, ModelNode] = {}
        self.stores: dict[int, ShardStore] = {}
        self.attempts: dict[tuple[int, int], int] = {}  # {(clock, partition): highest attempt dispatched}
        self.completed: set[tuple[int, int]] = set()
        self.given_up: set[tuple[int, int, int]] = set()  # (clock, partition, attempt) that may no longer complete
        self.gathered: GatherModel | None = None
        self.join(reliable=True, threads=1)
        for i in range(n - 1):
            self.join(reliable=False, threads=1 + i % 2)
        self.feed(JobStarted(self.config, self.now_s))
        while begun and any(node.loads or node.opens for node in self.alive()):
            for node in self.alive():
                self.answer(node)

    # -- the world ------------------------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        for order in self.controller.handle(event):
            if isinstance(order, GatherModel):
                assert self.gathered is None, "the model is gathered once"
                self.gathered = order
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
        self.controller.validate()

    def common(self) -> int:
        clock = 0
        while all((clock + 1, p) in self.completed for p in range(self.config.n_partitions)):
            clock += 1
        return clock

    def check_dispatch(self, order: Dispatch, node: ModelNode) -> None:
        assert node.alive, "work for a node that is gone"
        assert not node.noticed, "work for a node that was told to go"
        assert order.clock <= self.common() + 1 + self.config.staleness, "beyond the SSP bound"
        assert order.committed == self.common()
        assert order.clock <= (self.config.clocks or 0)
        for task in order.tasks:
            key = order.clock, task.partition
            assert key not in self.completed, "done again what was done"
            assert task.attempt == self.attempts.get(key, 0) + 1
            self.attempts[key] = task.attempt

    def push(self, order: Dispatch, shards: tuple[int, ...]) -> None:
        for shard in shards:
            for task in order.tasks:
                delta = np.full((1, 1), 1.0 + task.partition + 100 * order.clock)
                self.stores[shard].push(order.clock, task.partition, task.attempt, {"w": delta})

    def pull(self, order: Dispatch) -> None:
        for store in self.stores.values():
            store.read(order.committed, exact=False)

    def report(self, order: Dispatch) -> None:
        for task in order.tasks:
            key = order.clock, task.partition
            # its effect is on every server; yet the report of a superseded or given-up attempt must not count
            if self.attempts[key] == task.attempt and (*key, task.attempt) not in self.given_up:
                self.completed.add(key)
        stats = tuple(TaskStats(t.partition, t.attempt, 2.0, 1, 0.0) for t in order.tasks)
        self.feed(BatchDone(order.node, order.address, order.clock, stats, self.now_s))

    def answer(self, node: ModelNode, times: int = 1) -> None:
        """Carry out the latest load, or else open the shards that are waited for."""
        if node.loads:
            order = node.loads.pop()
            node.loads.clear()
            for _ in range(times):
                self.feed(NodeReady(node.name, node.address, order.request, order.partitions, self.now_s))
        elif node.opens:
            opened = node.opens.pop(0)
            for shard in opened.shards:
                self.stores[shard] = ShardStore(shard, opened.epoch, {"w": np.zeros((1, 1))})
            self.feed(ShardsOpened(node.name, node.address, opened.shards, self.now_s))

    def give_up(self, orders: list[Dispatch]) -> None:
        self.given_up |= {(o.clock, task.partition, task.attempt) for o in orders for task in o.tasks}

    def alive(self) -> list[ModelNode]:
        return [node for node in self.nodes.values() if node.alive]

    # -- rules ----------------------------------------------------------------------------------------------------

    @rule(reliable=st.booleans(), threads=st.integers(1, 4))
    def join(self, reliable: bool, threads: int) -> None:
        if len(self.alive()) >= 6:
            return
        self.names += 1
        node = ModelNode(f"n{self.names}", f"tcp://{self.names}", reliable)
        self.nodes[node.name] = node
        tier = "reliable" if reliable else "transient"
        self.feed(NodeJoined(node.name, node.address, tier, threads, self.now_s))

    @rule(data=st.data(), times=st.integers(1, 3))
    def loads(self, data: st.DataObject, times: int) -> None:
        """A node finishes what it was told to load or open; doubled reports are thrown in."""
        waiting = [node for node in self.alive() if node.loads or node.opens]
        if not waiting:
            return
        node = data.draw(st.sampled_from(waiting))
        self.answer(node, times)

    @rule(data=st.data(), target=late)
    def batch_done(self, data: st.DataObject) -> object:
        busy = [node for node in self.alive() if node.batches]
        if not busy:
            return multiple()
        order = data.draw(st.sampled_from(busy)).batches.pop(0)
        self.pull(order)
        self.push(order, (0, 1))
        self.report(order)
        return order

    @rule(order=late, what=st.sampled_from(["push", "report", "both"]))
    def doubled_or_late(self, order: Dispatch, what: str) -> None:
        if what in ("push", "both"):
            self.push(order, (0, 1))
        if what in ("report", "both"):
            self.report(order)

    @rule(data=st.data(), target=late, pushed=st.sampled_from([(), (0,), (1,), (0, 1)]), done=st.booleans())
    def lose(self, data: st.DataObject, pushed: tuple[int, ...], done: bool) -> object:
        """A node that serves nothing is killed in the middle of its work; what it had sent may arrive now or later."""
        serving = {owner.node for owner in self.controller.owners}
        victims = [node for node in self.alive() if node.name not in serving]
        if not victims:
            return multiple()
        node = data.draw(st.sampled_from(victims))
        node.alive = False
        ghosts = list(node.batches)
        for order in ghosts:
            self.push(order, pushed)
        self.give_up(ghosts)
        self.feed(NodeLost(node.address, "killed", self.now_s))
        if done and ghosts and pushed == (0, 1):
            self.report(ghosts[0])  # its report was under way when it died
        return multiple(*ghosts) if pushed == (0, 1) else multiple()

    @rule(data=st.data(), seconds=st.sampled_from([0.5, 5.0]), notice=st.booleans())
    def leave(self, data: st.DataObject, seconds: float, notice: bool) -> None:
        if not self.alive():
            return
        node = data.draw(st.sampled_from(self.alive()))
        node.noticed = True
        node.until_s = min(node.until_s, self.now_s + seconds)
        if notice:
            self.feed(NoticeReceived(node.name, seconds, self.now_s))
        else:
            self.feed(DrainRequested((node.name, "nobody"), seconds, self.now_s))

    @rule(data=st.data())
    def batch_failed(self, data: st.DataObject) -> None:
        busy = [node for node in self.alive() if node.batches]
        if not busy:
            return
        order = data.draw(st.sampled_from(busy)).batches.pop(0)
        tasks = tuple((t.partition, t.attempt) for t in order.tasks)
        self.push(order, (1,))
        self.give_up([order])
        self.feed(BatchFailed(order.node, order.address, order.clock, tasks, "server away", False, self.now_s))

    @rule(seconds=st.sampled_from([0.25, 1.0, 4.0]))
    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        for node in self.alive():
            if node.until_s <= self.now_s:
                self.give_up(node.batches)
        self.feed(TickDue(self.now_s))

    @precondition(lambda self: self.names > 4)
    @rule()
    def start_again(self) -> None:
        self.feed(JobStarted(self.config, self.now_s))

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def every_partition_has_an_owner(self) -> None:
        if getattr(self, "controller", None) is None or self.controller.started_s is None:
            return
        ready = {n.name for n in self.controller.in_state("ready")}
        assert all((owner in ready) if ready else owner is None for owner in self.controller.placement.owner)

    @invariant()
    def what_is_done_is_what_the_model_says(self) -> None:
        if getattr(self, "controller", None) is not None and self.controller.book is not None:
            done = [max((c for c, q in self.completed if q == p), default=0) for p in range(self.config.n_partitions)]
            assert self.controller.book.done == done
            assert self.controller.book.common == self.common()
            assert [clock for clock, _ in self.controller.losses] == list(range(1, self.common() + 1))

    def teardown(self) -> None:
        """Whatever happened, with one more node the job ends, and each effect is in the model exactly once."""
        if getattr(self, "controller", None) is None:
            return
        self.join_for_good()
        for _ in range(400):
            if self.gathered is not None:
                break
            for node in self.alive():
                while node.loads or node.opens:
                    self.answer(node)
                while node.batches:
                    order = node.batches.pop(0)
                    self.pull(order)
                    self.push(order, (1, 0))
                    self.report(order)
            self.tick(4.0)
        assert self.gathered is not None, f"the job does not end: {self.controller.state} {self.controller.reason}"
        clocks, partitions = self.gathered.committed, self.config.n_partitions
        assert clocks == self.config.clocks
        total = sum(1.0 + p + 100 * c for c in range(1, clocks + 1) for p in range(partitions))
        for store in self.stores.values():
            assert store.read(clocks, exact=True)["w"].item() == total
        folded = tuple(store.folded for store in self.stores.values())
        lost = lost_effects(folded, clocks, partitions)
        assert folded == (clocks * partitions,) * SHARDS
        repeats = sum(attempt - 1 for attempt in self.attempts.values())
        assert self.gathered.summary["repeated_micro_tasks"] == repeats
        self.feed(ModelSaved(folded, {"lost_micro_tasks": lost}, self.now_s))
        assert self.controller.state == "finished"

    def join_for_good(self) -> None:
        self.names += 1
        node = ModelNode(f"n{self.names}", f"tcp://{self.names}", True)
        self.nodes[node.name] = node
        self.feed(NodeJoined(node.name, node.address, "reliable", 1, self.now_s))


TestControllerMachine = ControllerMachine.TestCase
TestControllerMachine.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_a_stop_ends_at_the_clock_under_way() -> None:
    controller = Controller()
    config = JobConfig("stop", n_partitions=2, n_shards=1, clocks=100)
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
    controller.handle(JobStarted(config, 0.0))
    controller.handle(NodeReady("r", "tcp://r", 1, (0, 1), 0.0))
    (dispatch,) = [o for o in controller.handle(ShardsOpened("r", "tcp://r", (0,), 0.0)) if isinstance(o, Dispatch)]
    assert controller.handle(StopRequested("enough", 1.0)) == []
    stats = tuple(TaskStats(t.partition, t.attempt, 1.0, 1, 0.0) for t in dispatch.tasks)
    (gather,) = controller.handle(BatchDone("r", "tcp://r", 1, stats, 2.0))
    assert isinstance(gather, GatherModel)
    assert gather.committed == 1
    controller.handle(ModelSaved((2,), {"lost_micro_tasks": 0}, 3.0))
    assert (controller.state, controller.reason) == ("stopped", "enough")


@pytest.mark.parametrize("lost", [0, 1])
def test_an_effect_that_is_missing_fails_the_job(lost: int) -> None:
    controller = Controller()
    controller.handle(JobStarted(JobConfig("lost", clocks=1), 0.0))
    controller.handle(ModelSaved((8 - lost,), {"lost_micro_tasks": lost_effects((8 - lost, 8), 1, 8)}, 1.0))
    assert controller.state == ("failed" if lost else "finished")


def test_work_that_failed_waits_for_the_next_tick() -> None:
    controller = Controller()
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
    controller.handle(JobStarted(JobConfig("again", n_partitions=2, n_shards=1, clocks=1), 0.0))
    controller.handle(NodeReady("r", "tcp://r", 1, (0, 1), 0.0))
    controller.handle(ShardsOpened("r", "tcp://r", (0,), 0.0))
    assert controller.handle(BatchFailed("r", "tcp://r", 1, ((1, 1),), "away", False, 0.1)) == []
    assert controller.handle(NoticeReceived("nobody", 1.0, 0.1)) == []
    done = TaskStats(0, 1, 1.0, 1, 0.0)
    assert controller.handle(BatchDone("r", "tcp://r", 1, (done,), 0.2)) == []
    (again,) = controller.handle(TickDue(0.25))
    assert isinstance(again, Dispatch)
    assert [(t.partition, t.attempt) for t in again.tasks] == [(1, 2)]
    controller.handle(BatchFailed("r", "tcp://r", 1, ((1, 2),), "ValueError: labels", True, 0.3))
    assert (controller.state, controller.reason) == ("failed", "partition 1, clock 1, on node r: ValueError: labels")
