"""Nodes and servers beside a controller whose job has a driver of its own, and the same job in one loop.

The driver takes some partitions for each group, at random but seeded, gives them arguments, and decides by what they
return. What a task adds depends on the model that it reads and on its arguments, so a completion that the driver hears
twice, or of which it hears after a rollback, shows in the model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from proteus_spot.psengine.config import JobConfig, TableSpec
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.drivers.interface import Dispatcher, Done, Driver, Read, Task
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.protocol.events import BatchDone, ShardsNotOpened, ShardsOpened, TaskStats
from proteus_spot.psengine.protocol.instructions import BackUp, Dispatch, OpenShards, SaveCheckpoint
from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.server.shard_store import ShardStore, StaleReadError
from proteus_spot.psengine.tables.tree_sum import Delta, Subtree, largest_subtrees, tree_sum
from tests.support.controller_model import SHARDS, ModelNode, World


class Picky(Driver):
    """Two groups at a time, each of some partitions; the second of them reads what is there.

    `spares`: it does without partitions that have vanished, until they return.
    """

    def __init__(self, groups: int, spares: bool = False) -> None:
        self.groups, self.spares = groups, spares
        self.partitions = self.seed = self.total = 0
        self.gone: set[int] = set()

    def start(self, to: Dispatcher, partitions: int, seed: int) -> None:
        self.partitions, self.seed = partitions, seed
        self._dispatch(to, 0)

    def completed(self, to: Dispatcher, done: Done) -> None:
        self.total += done.result

    def committed(self, to: Dispatcher, group: int) -> None:
        if group >= self.groups:
            to.finish(group, f"all {self.groups} groups are done")
        elif group % 2 == 0:
            self._dispatch(to, group)

    def vanished(self, to: Dispatcher, partitions: Collection[int]) -> bool:
        if self.spares:
            self.gone |= set(partitions)
        return self.spares

    def returned(self, to: Dispatcher, partitions: Collection[int]) -> None:
        self.gone -= set(partitions)

    def snapshot(self) -> Any:
        return self.partitions, self.seed, self.total, frozenset(self.gone)

    def restore(self, state: Any) -> None:
        self.partitions, self.seed, self.total, gone = state
        self.gone = set(gone)

    def _dispatch(self, to: Dispatcher, group: int) -> None:
        rng = np.random.default_rng([self.seed, group, self.total % 1009])
        reads: tuple[Read, Read] = ("group", "parent")
        for number, read in enumerate(reads, start=group + 1):
            chosen = np.flatnonzero(rng.random(self.partitions) < 0.6).tolist() or [0]
            present = [partition for partition in chosen if partition not in self.gone]
            for partition in present or [next(e for e in range(self.partitions) if e not in self.gone)]:
                to.dispatch(Task(partition, number, args=self.total % 13 + number, read=read))
            to.seal(number)


def result_of(task: Task) -> int:
    """Return what a task returns to the driver."""
    return 3 * task.partition + task.args


def added_by(task: Task, before: float) -> float:
    """Return what a task adds to the model `before`; one that reads "parent" does not look at it."""
    return (before if task.read == "group" else 2.0) * 0.1 * (task.partition + 1) / task.args


class Loop:
    """The same job in one loop: a dispatcher that runs each group when it is sealed and committed."""

    def __init__(self, driver: Driver, partitions: int, seed: int) -> None:
        self.tasks: dict[int, dict[int, Task]] = {}
        self.values = [0.0]
        self.end: int | None = None
        driver.start(self, partitions, seed)
        while self.end is None:
            group = len(self.values)
            before, updates = np.full((1, 1), self.values[-1]), dict[int, Delta]()
            for partition, task in sorted(self.tasks[group].items()):
                updates[partition] = {"w": np.full((1, 1), added_by(task, self.values[-1]))}
                driver.completed(self, Done(task, result_of(task), 1, 1.0))
            total = tree_sum((0, partitions), partial(_leaf, updates)) or {}
            self.values.append((before + total["w"]).item())
            driver.committed(self, group)

    def dispatch(self, task: Task) -> None:
        self.tasks.setdefault(task.group, {})[task.partition] = task

    def seal(self, group: int, members: Collection[int] | None = None) -> None:
        assert members is None

    def evaluate(self, group: int) -> None: ...

    def finish(self, group: int, reason: str = "") -> None:
        self.end = group


def _leaf(updates: dict[int, Delta], block: Subtree) -> Delta | None:
    return updates.get(block[0]) if block[1] - block[0] == 1 else None


class DriverWorld(World):
    """A controller and its nodes; `kept` outlives them."""

    def __init__(self, config: JobConfig, spares: bool = False) -> None:
        self.make = partial(Picky, config.clocks, spares)
        self.anew(config)
        self.controller = Controller(lambda _: self.make())
        #: {(group, partition): task}, of the latest dispatch
        self.tasks: dict[tuple[int, int], Task] = {}

    def restart(self) -> None:
        """Kill all processes; a new controller begins."""
        kept = self.kept
        self.anew(self.config)
        self.controller, self.kept = Controller(lambda _: self.make()), kept

    def common(self) -> int:
        """The last committed group, as the controller has it."""
        assert self.controller.job.tasks is not None
        return self.controller.job.tasks.common

    def check_back_up(self, order: BackUp) -> None:
        """A group whose tasks are all withdrawn is committed by the same event, behind the round."""
        assert order.group <= self.common(), "of a committed group"
        assert all(store.committed_group <= order.group for store in self.stores.values()), (
            "which the servers still have"
        )

    def begin_generation(self, order: OpenShards) -> None:
        self.generation = max(order.epoch, self.generation)

    def check_dispatch(self, order: Dispatch, node: ModelNode) -> None:
        assert node.alive
        assert order.generation == self.generation
        for task in order.tasks:
            key = order.group, task.partition
            assert task.attempt > self.attempts.get(key, 0)
            self.attempts[key] = task.attempt
            self.tasks[key] = Task(task.partition, order.group, task.args, order.read)

    def keep(self, order: SaveCheckpoint) -> None:
        stores = [self.stores[shard] for shard in range(SHARDS)]
        if order.from_replicas:
            states = [self.replicas[owner.address, owner.shard, owner.epoch] for owner in order.owners]
        else:
            states = [store.copy(order.committed) for store in stores]
        assert {(state.group, state.folded) for state in states} == {(order.committed, order.n_updates)}
        values = {shard: state.arrays["w"].item() for shard, state in enumerate(states)}
        self.keeping = Checkpoint(order.committed, f"clock-{order.committed}", order.summary), values

    def open(self, node: ModelNode, order: OpenShards) -> None:
        if order.epoch < self.generation:
            return
        n_partitions, states = self.config.n_partitions, dict[int, ShardState]()
        for shard in order.shards:
            if order.replicas is not None:
                at, number = dict(order.replicas.at), order.replicas.number
                found = self.replicas.get((node.address, shard, number)) or self.replicas.get(
                    (at.get(shard, ""), shard, number)
                )
                if found is None:
                    what = order.shards, order.epoch
                    self.feed(ShardsNotOpened(node.name, node.address, *what, "nobody has it", self.now_s))
                    return
                states[shard] = found
            elif order.checkpoint is not None:
                assert self.kept is not None
                value, checkpoint = np.full((1, 1), self.kept[1][shard]), order.checkpoint
                assert "driver" not in checkpoint.summary, "it is the controller's"
                states[shard] = ShardState({"w": value}, checkpoint.group, checkpoint.n_updates(n_partitions))
            else:
                states[shard] = ShardState({"w": np.zeros((1, 1))}, 0, 0)
        for shard, state in states.items():
            self.stores[shard] = ShardStore.of(shard, order.epoch, n_partitions, state)
            self.served_at[shard] = node.address
        self.feed(ShardsOpened(node.name, node.address, order.shards, order.epoch, self.now_s))

    def push(self, order: Dispatch, shards: tuple[int, ...]) -> None:
        """Run the tasks of a batch, and bring their updates to some of the shards; withdrawn ones change nothing."""
        if order.generation < self.generation:
            return
        attempts = {task.partition: task.attempt for task in order.tasks}
        for shard in shards:
            if shard not in self.stores or shard in self.frozen:
                continue
            store = self.stores[shard]
            before = store.read(order.committed, exact=True)["w"].item() if order.read == "group" else 0.0
            updates: dict[int, Delta] = {
                task.partition: {"w": np.full((1, 1), added_by(self.tasks[order.group, task.partition], before))}
                for task in order.tasks
                if not task.withdrawn
            }
            for block in largest_subtrees(attempts, self.config.n_partitions):
                tries = [attempts[partition] for partition in range(*block)]
                store.push(order.group, block[0], tries, tree_sum(block, partial(_leaf, updates)) or {})

    def work(self, node: ModelNode) -> Dispatch:
        """Do the first batch of a node; one of a group that was committed with other attempts is given up."""
        order = node.batches[0]
        try:
            return super().work(node)
        except StaleReadError as error:
            self.fail(node, order, str(error))
            return order

    def pull(self, order: Dispatch) -> None:
        """Read nothing: `push` does."""

    def report(self, order: Dispatch) -> None:
        stats = tuple(
            TaskStats(
                task.partition,
                task.attempt,
                0.0 if task.withdrawn else 2.0,
                0 if task.withdrawn else 1,
                0.0,
                None if task.withdrawn else result_of(self.tasks[order.group, task.partition]),
            )
            for task in order.tasks
        )
        self.feed(BatchDone(order.node, order.address, order.group, stats, self.now_s))


class Curious(Picky):
    """It wants one group evaluated."""

    def committed(self, to: Dispatcher, group: int) -> None:
        if group == 4:
            to.evaluate(5)
        super().committed(to, group)


class Picked:
    """The same job as an application: `w` is read by every task, and what "parent" tasks read makes no difference."""

    def __init__(self, groups: int, curious: bool = False) -> None:
        self.groups, self.kind = groups, Curious if curious else Picky

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec("w", 1, 1, "float64"),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        return np.zeros((rows[1] - rows[0], 1))

    def prepare(self, arrays: Mapping[str, Any]) -> None:
        return None

    def executor(self, data: None, partition: int, n_partitions: int) -> Adder:
        return Adder(partition)

    def driver(self) -> Picky:
        return self.kind(self.groups)

    def evaluate(self, params: Mapping[str, Any], heldout: Mapping[str, Any]) -> dict[str, float]:
        return {"w": params["w"].item()}


class Adder:
    def __init__(self, partition: int) -> None:
        self.partition = partition

    def run(self, args: int, params: Any, rng: np.random.Generator) -> tuple[int, float, int]:
        task = Task(self.partition, params.group, args, "group" if params.group % 2 else "parent")
        params.add("w", np.full((1, 1), added_by(task, params.get("w").item())))
        return result_of(task), 1.0, 1
