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

from infra.cluster import NO_LOSSES
from psengine.checkpointing import Checkpoint
from psengine.controller import Controller
from psengine.events import (
    BatchDone,
    BatchFailed,
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    DrainRequested,
    EffectsMissing,
    Event,
    HoldRequested,
    JobFoundFinished,
    JobStarted,
    ModelSaved,
    NodeFailed,
    NodeJoined,
    NodeLost,
    NodeReady,
    NodeUnfit,
    NoticeReceived,
    SaveFailed,
    ShardsOpened,
    StopRequested,
    TickDue,
)
from psengine.instructions import Dispatch, GatherModel, LoadPartitions, OpenShards, SaveCheckpoint
from psengine.microtasks import lost_effects
from psengine.model import JobConfig, TaskStats
from psengine.status import describe
from psengine.store import ShardStore

SHARDS = 2


@dataclass
class ModelNode:
    name: str
    address: str
    reliable: bool
    alive: bool = True
    noticed: bool = False
    unfit: bool = False
    stranger: bool = False
    loads: list[LoadPartitions] = field(default_factory=list)
    opens: list[OpenShards] = field(default_factory=list)
    batches: list[Dispatch] = field(default_factory=list)
    until_s: float = float("inf")


class ControllerMachine(RuleBasedStateMachine):
    late = Bundle("late")
    held: int | None = None

    @initialize(
        partitions=st.integers(1, 7),
        clocks=st.integers(1, 6),
        staleness=st.sampled_from([0, 0, 1, 3]),
        n=st.integers(1, 4),
        begun=st.sampled_from([True, True, False]),
        checkpoint_s=st.sampled_from([None, 1.0, 30.0]),
    )
    def begin(
        self, partitions: int, clocks: int, staleness: int, n: int, begun: bool, checkpoint_s: float | None
    ) -> None:
        self.config = JobConfig(
            "storm",
            n_partitions=partitions,
            n_shards=SHARDS,
            staleness=staleness,
            clocks=clocks,
            start_patience_s=3.0,
            checkpoint_s=checkpoint_s,
        )
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
        self.controller.validate()

    def common(self) -> int:
        clock = 0
        while all((clock + 1, p) in self.completed for p in range(self.config.n_partitions)):
            clock += 1
        return clock

    def check_dispatch(self, order: Dispatch, node: ModelNode) -> None:
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
            assert opened.checkpoint == (None if self.restored is None else self.restored[0])
            for shard in opened.shards:
                if opened.checkpoint is None:
                    self.stores[shard] = ShardStore(shard, opened.epoch, {"w": np.zeros((1, 1))})
                else:
                    assert self.restored is not None
                    clock, value = opened.checkpoint.clock, self.restored[1][shard]
                    folded = clock * self.config.n_partitions
                    self.stores[shard] = ShardStore(shard, opened.epoch, {"w": np.full((1, 1), value)}, clock, folded)
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

    @rule()
    def stranger_joins(self) -> None:
        """A node whose code is not the job's: it is told nothing to load, to open or to work on, ever."""
        if len(self.alive()) >= 6 or all(node.unfit or node.noticed for node in self.alive()):
            return  # where nobody can load the job fails: see test_code_digests
        self.names += 1
        node = ModelNode(f"n{self.names}", f"tcp://{self.names}", False, unfit=True, stranger=True)
        self.nodes[node.name] = node
        self.feed(NodeJoined(node.name, node.address, "transient", 1, self.now_s, "b" * 64))

    @invariant()
    def strangers_do_nothing(self) -> None:
        for node in self.nodes.values():
            assert not (node.stranger and [*node.loads, *node.opens, *node.batches]), node.name

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
        if order.node not in self.nodes:
            return  # its process died with all the others, and its messages with their connections
        if what in ("push", "both"):
            self.push(order, (0, 1))
        if what in ("report", "both"):
            self.report(order)

    @rule(data=st.data(), target=late, pushed=st.sampled_from([(), (0,), (1,), (0, 1)]), done=st.booleans())
    def lose(self, data: st.DataObject, pushed: tuple[int, ...], done: bool) -> object:
        """A node that serves nothing is killed in the middle of its work; what it had sent may arrive now or later."""
        serving = {owner.node for owner in self.controller.shards.owners}
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

    @rule(data=st.data(), worked=st.booleans())
    def cannot_load(self, data: st.DataObject, worked: bool) -> None:
        """A node gives up reading; what else it has to do it may do, or fail at. One that can load is always left."""
        able = [node for node in self.alive() if not (node.unfit or node.noticed)]
        if len(able) < 2:
            return
        node = data.draw(st.sampled_from(able))
        node.unfit = True
        node.loads.clear()
        self.feed(NodeUnfit(node.name, node.address, "disk full", self.now_s))
        if node.batches and not worked:
            order = node.batches.pop(0)
            self.give_up([order])
            tasks = tuple((t.partition, t.attempt) for t in order.tasks)
            self.feed(BatchFailed(node.name, node.address, order.clock, tasks, "disk full", False, self.now_s))

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

    @rule(ahead=st.sampled_from([None, 0, 1, 2]))
    def hold(self, ahead: int | None) -> None:
        self.held = None if ahead is None else self.common() + ahead
        self.feed(HoldRequested(self.held, self.now_s))

    @rule()
    def ask_for_a_checkpoint(self) -> None:
        self.feed(CheckpointRequested(self.now_s))

    @rule(whole=st.sampled_from([True, True, False]))
    def checkpoint_is_written(self, whole: bool) -> None:
        if self.keeping is None:
            return
        keeping, self.keeping = self.keeping, None
        if whole:
            self.kept = keeping
            self.feed(CheckpointSaved(keeping[0].clock, self.now_s))
        else:
            self.feed(CheckpointFailed("store away", self.now_s))

    @precondition(lambda self: self.gathered is None and self.common() > 0)
    @rule(n=st.integers(1, 3))
    def everything_dies(self, n: int) -> None:
        """All processes are killed, and some come back: the job goes on from what was kept, or from the beginning."""
        self.keeping, self.restored = None, self.kept
        clock = 0 if self.kept is None else self.kept[0].clock
        self.completed = {key for key in self.completed if key[0] <= clock}
        self.repeats_before = 0 if self.kept is None else self.kept[0].summary["repeated_micro_tasks"]
        self.attempts, self.given_up, self.stores, self.nodes = {}, set(), {}, {}
        self.controller, self.held = Controller(), None
        for i in range(n):
            self.join(reliable=i == 0, threads=1)
        self.feed(JobStarted(self.config, self.now_s, None if self.restored is None else self.restored[0]))

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def every_partition_has_an_owner(self) -> None:
        if getattr(self, "controller", None) is None or self.controller.progress.started_s is None:
            return
        ready = {n.name for n in self.controller.members.in_state("ready")}
        assert all((owner in ready) if ready else owner is None for owner in self.controller.members.placement.owner)

    @invariant()
    def what_is_done_is_what_the_model_says(self) -> None:
        if getattr(self, "controller", None) is not None and self.controller.book is not None:
            done = [max((c for c, q in self.completed if q == p), default=0) for p in range(self.config.n_partitions)]
            assert self.controller.book.done == done
            assert self.controller.book.common == self.common()
            assert [clock for clock, _ in self.controller.progress.losses] == list(range(1, self.common() + 1))

    def teardown(self) -> None:
        """Whatever happened, with one more node the job ends, and each effect is in the model exactly once."""
        if getattr(self, "controller", None) is None:
            return
        self.hold(None)
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
        repeats = self.repeats_before + sum(attempt - 1 for attempt in self.attempts.values())
        assert self.gathered.summary["repeated_micro_tasks"] == repeats
        assert lost == 0
        self.feed(ModelSaved({"lost_micro_tasks": lost, "stopped": None}, self.now_s))
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


def started(config: JobConfig) -> tuple[Controller, Dispatch]:
    """Return a controller with one reliable node that holds everything and was given the first clock."""
    controller = Controller()
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
    controller.handle(JobStarted(config, 0.0))
    controller.handle(NodeReady("r", "tcp://r", 1, tuple(range(config.n_partitions)), 0.0))
    orders = controller.handle(ShardsOpened("r", "tcp://r", tuple(range(config.n_shards)), 0.0))
    (dispatch,) = [o for o in orders if isinstance(o, Dispatch)]
    return controller, dispatch


def done(dispatch: Dispatch, now_s: float) -> BatchDone:
    stats = tuple(TaskStats(t.partition, t.attempt, 1.0, 1, 0.0) for t in dispatch.tasks)
    return BatchDone(dispatch.node, dispatch.address, dispatch.clock, stats, now_s)


def gathering(now_s: float = 2.0) -> tuple[Controller, GatherModel]:
    controller, dispatch = started(JobConfig("save", n_partitions=2, n_shards=1, clocks=1))
    (gather,) = controller.handle(done(dispatch, now_s))
    assert isinstance(gather, GatherModel)
    return controller, gather


def test_a_stop_ends_at_the_clock_under_way() -> None:
    controller, dispatch = started(JobConfig("stop", n_partitions=2, n_shards=1, clocks=100))
    assert controller.handle(StopRequested("enough", 1.0)) == []
    (gather,) = controller.handle(done(dispatch, 2.0))
    assert isinstance(gather, GatherModel)
    assert (gather.committed, gather.summary["stopped"]) == (1, "enough")
    controller.handle(ModelSaved({**gather.summary, "lost_micro_tasks": 0}, 3.0))
    assert (controller.state, controller.reason) == ("stopped", "enough")


@pytest.mark.parametrize("asked", [False, True])
def test_a_stop_before_the_first_clock_leaves_a_result_and_no_model(asked: bool) -> None:
    controller = Controller()
    if asked:
        controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
        controller.handle(JobStarted(JobConfig("early", n_partitions=2, n_shards=1, clocks=1), 0.0))
    assert controller.handle(StopRequested("never mind", 1.0)) == []
    result = describe(controller, 0, 1.0)["result"]
    assert (controller.state, controller.reason) == ("stopped", "never mind")
    assert result["job_id"] == ("early" if asked else None)
    assert (result["clocks"], result["losses"], result["stopped"]) == (0, [], "never mind")
    assert (result["lost_micro_tasks"], result["repeated_micro_tasks"], result["seconds"]) == (0, 0, 0.0)


def test_an_effect_that_is_missing_fails_the_job() -> None:
    controller, _ = gathering()
    assert controller.handle(EffectsMissing(3, 3.0)) == []
    assert (controller.state, controller.reason) == ("failed", "3 effect(s) are missing from the model")
    assert (controller.lost_micro_tasks, controller.result) == (3, None)


@pytest.mark.parametrize(
    ("stopped", "lost", "state", "reason"),
    [
        (None, 0, "finished", "the model was there already"),
        ("enough", 0, "stopped", "enough"),
        (None, 2, "failed", "2 effect(s) are missing from the model"),
    ],
)
def test_a_model_that_is_there_says_how_the_job_ended(stopped: str | None, lost: int, state: str, reason: str) -> None:
    controller = Controller()
    result: dict[str, object] = {"clocks": 2, "stopped": stopped, "lost_micro_tasks": lost}
    controller.handle(JobFoundFinished(JobConfig("found", clocks=2), result, ((1, 2.0), (2, 1.0)), lost, 0.0))
    assert (controller.state, controller.reason) == (state, reason)
    assert controller.result == (None if lost else result)
    assert controller.lost_micro_tasks == lost
    assert controller.handle(TickDue(1.0)) == []


def test_a_model_that_was_not_saved_is_saved_again_ever_more_seldom() -> None:
    controller, gather = gathering(now_s=0.0)
    now_s = 0.0
    for pause_s in (1.0, 4.0, 16.0, 64.0):
        assert controller.handle(SaveFailed("OSError: away", False, now_s)) == []
        assert (controller.state, "OSError: away" in controller.reason) == ("running", True)
        assert controller.handle(TickDue(now_s + pause_s - 0.1)) == []
        now_s += pause_s
        assert controller.handle(TickDue(now_s)) == [gather]
        assert controller.handle(TickDue(now_s + 100)) == []  # one try at a time
    controller.handle(SaveFailed("OSError: away", False, now_s))
    assert controller.state == "failed"
    assert controller.reason == "the model could not be saved: OSError: away (try 5)"
    assert controller.handle(TickDue(1000.0)) == []


def test_a_second_try_that_saves_ends_the_job() -> None:
    controller, gather = gathering()
    controller.handle(SaveFailed("OSError: away", False, 2.0))
    assert controller.handle(TickDue(3.0)) == [gather]
    controller.handle(ModelSaved({**gather.summary, "lost_micro_tasks": 0}, 4.0))
    assert (controller.state, controller.lost_micro_tasks) == ("finished", 0)


def test_an_application_that_cannot_evaluate_is_not_asked_again() -> None:
    controller, _ = gathering()
    controller.handle(SaveFailed("ZeroDivisionError: by the user", True, 3.0))
    assert controller.reason == "the model could not be saved: ZeroDivisionError: by the user (try 1)"
    assert controller.state == "failed"


@pytest.mark.parametrize("saved", [True, False])
def test_shards_that_go_while_the_model_is_saved_count_when_it_is_not(saved: bool) -> None:
    controller, gather = gathering()
    controller.handle(NodeLost("tcp://r", "killed", 3.0))
    assert controller.state == "running"
    if saved:
        controller.handle(ModelSaved({**gather.summary, "lost_micro_tasks": 0}, 4.0))
        assert controller.state == "finished"
    else:
        controller.handle(SaveFailed("OSError: away", False, 4.0))
        assert (controller.state, "reliable node r is gone" in controller.reason) == ("failed", True)


def test_shards_that_go_between_two_tries_at_saving_fail_the_job() -> None:
    controller, _ = gathering()
    controller.handle(SaveFailed("OSError: away", False, 3.0))
    controller.handle(NodeLost("tcp://r", "killed", 3.5))
    assert (controller.state, "reliable node r is gone" in controller.reason) == ("failed", True)


def test_a_node_that_cannot_load_is_set_aside() -> None:
    controller, dispatch = started(JobConfig("unfit", n_partitions=2, n_shards=1, clocks=9))
    (load,) = [
        o for o in controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0)) if isinstance(o, LoadPartitions)
    ]
    controller.handle(NodeReady("t", "tcp://t", load.request, load.partitions, 0.1))
    orders = controller.handle(done(dispatch, 0.2))
    (theirs,) = [o for o in orders if isinstance(o, Dispatch) and o.node == "t"]
    assert controller.handle(NodeUnfit("t", "tcp://before", "late", 0.3)) == []
    assert controller.members.nodes["t"].state == "ready"
    controller.handle(NodeUnfit("t", "tcp://t", "BlobError: disk full", 0.3))
    tasks = tuple((task.partition, task.attempt) for task in theirs.tasks)
    controller.handle(BatchFailed("t", "tcp://t", theirs.clock, tasks, "BlobError: disk full", False, 0.3))
    (again,) = [o for o in controller.handle(TickDue(0.5)) if isinstance(o, Dispatch)]
    assert (again.node, [(t.partition, t.attempt) for t in again.tasks]) == ("r", [(p, a + 1) for p, a in tasks])
    node = next(n for n in describe(controller, 0, 0.5)["nodes"] if n["name"] == "t")
    assert (node["state"], node["error"], node["partitions"]) == ("unfit", "BlobError: disk full", [])
    assert controller.handle(DrainRequested(("t",), 5.0, 0.6)) == []
    assert controller.members.nodes["t"].state == "drained"  # whoever wants it gone can let it go


def test_a_job_fails_when_no_node_can_load() -> None:
    controller = Controller()
    controller.handle(JobStarted(JobConfig("none", n_partitions=2, n_shards=1, clocks=9), 0.0))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0))
    controller.handle(NodeUnfit("t", "tcp://t", "BlobError: no part", 0.1))
    assert controller.state == "starting"  # the reliable node has not come yet
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.2))
    assert controller.state == "starting"
    controller.handle(NodeUnfit("r", "tcp://r", "BlobError: no part", 0.3))
    assert controller.state == "failed"
    assert controller.reason == "no node can load: t is unfit: BlobError: no part; r is unfit: BlobError: no part"


def test_an_unfit_reliable_node_serves_all_the_same() -> None:
    controller = Controller()
    controller.handle(JobStarted(JobConfig("serve", n_partitions=2, n_shards=1, clocks=1), 0.0))
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0))
    controller.handle(NodeUnfit("r", "tcp://r", "disk full", 0.1))
    orders = controller.handle(NodeReady("t", "tcp://t", 2, (0, 1), 0.2))
    (opening,) = [o for o in orders if isinstance(o, OpenShards)]
    assert opening.node == "r"
    orders = controller.handle(ShardsOpened("r", "tcp://r", (0,), 0.3))
    assert [(o.node, len(o.tasks)) for o in orders if isinstance(o, Dispatch)] == [("t", 2)]
    controller.handle(NodeLost("tcp://t", "killed", 0.4))
    assert controller.state == "waiting"
    assert controller.reason == "no node is left to work (r is unfit: disk full); goes on when one joins"


def test_shards_that_an_unfit_node_cannot_open_fail_the_job() -> None:
    controller = Controller()
    controller.handle(JobStarted(JobConfig("open", n_partitions=2, n_shards=1, clocks=1), 0.0))
    controller.handle(NodeJoined("r", "tcp://r", "reliable", 1, 0.0))
    controller.handle(NodeJoined("t", "tcp://t", "transient", 1, 0.0))
    controller.handle(NodeUnfit("r", "tcp://r", "JobError: no such module", 0.1))
    controller.handle(NodeReady("t", "tcp://t", 2, (0, 1), 0.2))
    controller.handle(NodeFailed("r", "tcp://r", "JobError: no such module", 0.3))
    assert (controller.state, controller.reason) == ("failed", "node r: JobError: no such module")


def test_a_status_can_be_asked_for_without_losses() -> None:
    controller, dispatch = started(JobConfig("quiet", n_partitions=2, n_shards=1, clocks=9))
    for clock in (1, 2, 3):
        (dispatch,) = controller.handle(done(dispatch, float(clock)))
    assert [c for c, _ in describe(controller, 0, 4.0)["losses"]] == [1, 2, 3]
    assert [c for c, _ in describe(controller, 2, 4.0)["losses"]] == [3]
    told = describe(controller, NO_LOSSES, 4.0)
    assert (told["losses"], told["clock"]) == ([], 3)


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
