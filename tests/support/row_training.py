"""An application that reads and writes rows, and agents on a transport in memory that train it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.apps.residents import initial_rows, shared_tables, whole_own_tables
from proteus_spot.psengine.config import JobConfig, TableSpec
from proteus_spot.psengine.membership.node_record import NodeRecord
from proteus_spot.psengine.membership.placement import Placement
from proteus_spot.psengine.protocol.events import BatchDone, BatchFailed, ShardsOpened
from proteus_spot.psengine.protocol.instructions import Dispatch, OpenShards, ShardOwner, TakeShards, UpdateShardMap
from proteus_spot.psengine.scheduling.dispatcher import BatchDispatcher
from proteus_spot.psengine.single_process import initial, train_alone
from proteus_spot.psengine.tables.row_sets import RowSet
from proteus_spot.psengine.tables.sharding import Arrays, Sharding
from proteus_spot.psengine.worker.agent import NodeAgent
from tests.support.agents import CONTROLLER, Wires, called, no_shards
from tests.support.servers import at_once
from tests.support.task_tables import commit, ssp_table

PARTITIONS, SHARDS, CLOCKS, OWN = 6, 3, 8, 7
NODES = ("a", "b", "c")


class Wanderers:
    """Each partition has rows of its own, and wanders over rows that others write too; all depends on all that is read.

    `lonely`: what is added depends on the clock and on rows of the partition's own alone, and adds up in any order.
    """

    #: Partition that shares a row with the one before: on another node, on its own node in one block, or in two.
    SHARED: ClassVar[Mapping[str, int]] = {"shared": 2, "shared in a block": 5, "shared on a node": 1}

    def __init__(self, lonely: bool = False, wrong: str = "") -> None:
        self.lonely, self.wrong = lonely, wrong

    def tables(self) -> tuple[TableSpec, ...]:
        return (
            TableSpec("words", 30, 3),
            TableSpec("places", PARTITIONS * OWN, 2, own=True),
            TableSpec("marks", PARTITIONS * OWN, 1, "int16", own=True),
            TableSpec("total", 1, 3, "float64"),
        )

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        shape = (rows[1] - rows[0], table.n_cols)
        return -np.zeros(shape) if self.lonely or table.dtype == "int16" else rng.standard_normal(shape)

    def prepare(self, arrays: Any) -> int:
        return int(arrays["x"])

    def rows(self, data: int, clock: int) -> Mapping[str, RowSet]:
        mine = slice(OWN * data, OWN * (data + 1))
        if self.wrong == "rows":
            return {"words": slice(0, 31)}
        rng = np.random.default_rng([data, clock])
        words: RowSet = np.flatnonzero(rng.random(30) < 0.3) if data % 2 else slice(4 * data, 4 * data + 3 + clock % 2)
        if data == self.SHARED.get(self.wrong):  # it also takes the last row of the partition before
            return {"words": words, "places": slice(mine.start - 1, mine.stop), "marks": mine}
        return {"words": words, "places": mine, "marks": mine}

    def run(self, data: int, params: Mapping[str, Any], clock: int) -> Work:
        rng = np.random.default_rng([data, clock, 1])
        words, places, marks = params["words"], params["places"], params["marks"]
        assert not any(table.flags.writeable for table in (words, places, marks))
        assert (marks == (clock - 1) * (data + 1)).all(), "the marks of another clock"
        updates = {"marks": np.full(marks.shape, data + 1, np.int16), "total": np.full((1, 3), data + 0.5)}
        if self.lonely:
            updates["words"] = rng.integers(0, 9, words.shape).astype(np.float32)
            updates["places"] = (places * 0.1 + clock).astype(np.float32)
        else:
            near = np.float32(words.sum() + places.sum() + params["total"].sum())
            updates["words"] = (rng.standard_normal(words.shape) * near * 0.01).astype(np.float32)
            if clock % 3:  # now and then it leaves them as they are
                updates["places"] = (rng.standard_normal(places.shape) + 0.01 * near).astype(np.float32)
        if self.wrong == "shape":
            updates["places"] = np.zeros((1, 2), np.float32)
        if self.wrong == "type":
            updates["marks"] = np.zeros_like(params["marks"], np.float32)
        return Work(updates, 0.0, 1)

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        return {}


class Watched(Wires):
    """It notes which tables were asked for, rows of them or all, and how large the updates were."""

    def __init__(self) -> None:
        super().__init__()
        self.pulled: list[dict[str, RowSet | None]] = []
        self.pushed: dict[str, int] = {}

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        if called(op, message) in ("Committed", "Complete"):
            self.pulled += message["rows"].values()
        if op == "proteus_push":
            for per_block in message["updates"].values():
                for update in per_block:
                    for name, of in update.items():
                        self.pushed[name] = self.pushed.get(name, 0) + of.nbytes
        return await super().call(address, op, deadline_s, **message)


def address(node: str) -> str:
    return f"tcp://{node}"


class Cluster:
    """Three agents that serve a shard each, and a controller's tasks and dispatcher."""

    def __init__(self, staleness: int = 0, **params: Any) -> None:
        self.wires = Watched()
        self.config = JobConfig(
            "job",
            "tests.support.row_training:Wanderers",
            params,
            n_partitions=PARTITIONS,
            n_shards=SHARDS,
            clocks=CLOCKS,
            staleness=staleness,
        )
        self.agents = {
            node: NodeAgent(
                node, address(node), CONTROLLER, self.wires, lambda url, p: {"x": np.int64(p)}, no_shards, 2
            )
            for node in NODES
        }
        self.wires.agents = {address(node): agent for node, agent in self.agents.items()}
        self.owners = [ShardOwner(shard, node, address(node), 1) for shard, node in enumerate(NODES)]
        self.version = self.given_up = 0
        self.tasks, self.host = ssp_table(PARTITIONS, staleness)
        self.dispatcher = BatchDispatcher(self.tasks, self.host)
        #: the rows of a partition's own lie on another node than the one that works on it
        self.placement = Placement(("c", "c", "a", "a", "b", "b"), (None,) * PARTITIONS)

    async def open(self) -> None:
        for owner in self.owners:
            agent = self.agents[owner.node]
            agent.instruct(OpenShards(owner.node, owner.address, self.config, (owner.shard,), 1))
            await self.wires.report(ShardsOpened)
        self.tell_map()

    def tell_map(self) -> None:
        self.version += 1
        for node, agent in self.agents.items():
            agent.instruct(UpdateShardMap(node, address(node), self.version, tuple(self.owners), 1))

    def take(self, shard: int, to: str) -> None:
        """Move a shard; the next map that is sent names its new owner."""
        old = self.owners[shard]
        self.owners[shard] = ShardOwner(shard, to, address(to), old.epoch + 1)
        order = TakeShards(to, address(to), self.config, old.address, (shard,), (old.epoch,), old.epoch + 1)
        self.agents[to].instruct(order)

    def dispatch(self, clock: int) -> list[Dispatch]:
        """Send the tasks that may begin, up to `clock`."""
        ready = {node: NodeRecord(node, address(node), "reliable", 1) for node in NODES}
        orders = self.dispatcher.orders(self.placement, ready, clock, self.version, 1)
        for order in orders:
            self.agents[order.node].instruct(order)
        return orders

    async def done(self) -> None:
        """Process a report; a batch that a node gave up, since all attempts at a message were lost, is repeated."""
        found: BatchDone | BatchFailed = await self.wires.report(BatchDone | BatchFailed)
        if isinstance(found, BatchFailed):
            assert not found.fatal, found
            self.given_up += 1
            for partition, attempt in found.tasks:
                self.tasks.forget(partition, found.group, attempt)
        else:
            for stats in found.results:
                if self.tasks.complete(stats.partition, found.group, stats.attempt) and stats.has_state:
                    self.tasks.states.completed(stats.partition, found.group, stats.attempt, found.address)
            commit(self.tasks, self.host)

    async def train(self, clock: int) -> None:
        while self.tasks.common < clock:
            self.dispatch(clock)
            await self.done()

    def model(self) -> Arrays:
        app = Wanderers(**self.config.app_params)
        found = {}
        for owner in self.owners:
            answer = at_once(self.agents[owner.node].server.gather({owner.shard: owner.epoch}, CLOCKS))
            assert answer.folded == {owner.shard: CLOCKS * PARTITIONS}
            found[owner.shard] = answer.shards[owner.shard]
        states = {}
        for ref in self.tasks.states.at(CLOCKS):
            agent = next(agent for agent in self.agents.values() if agent.address == ref.address)
            (state,) = agent.host.sent([(ref.partition, ref.group, ref.attempt)])
            states[ref.partition] = state.arrays
        shared = Sharding(shared_tables(app), SHARDS).join([found[shard] for shard in range(SHARDS)])
        return shared | whole_own_tables(app, states, initial_rows(app, 0, SHARDS))


def story(cluster: Cluster, body: Callable[[Cluster], Any]) -> None:
    async def run() -> None:
        try:
            await cluster.open()
            await body(cluster)
        finally:
            await asyncio.gather(*(agent.close() for agent in cluster.agents.values()))

    asyncio.run(run())


def expected(**params: Any) -> Arrays:
    app = Wanderers(**params)
    return train_alone(app, list(range(PARTITIONS)), initial(app, 0, SHARDS), CLOCKS)


def check(cluster: Cluster, **params: Any) -> None:
    model, alone = cluster.model(), expected(**params)
    for name, table in alone.items():
        assert model[name].dtype == table.dtype
        assert model[name].tobytes() == table.tobytes(), name
