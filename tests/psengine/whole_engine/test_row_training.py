"""Training by rows through real agents: the bits of a bare loop, also after moves and repeated work."""

from __future__ import annotations

import asyncio
import re
import runpy
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from psengine.apps.base import Work
from psengine.apps.executors import initial_rows, shared_tables, wants, whole_own_tables
from psengine.config import JobConfig, TableSpec
from psengine.membership.node_record import NodeRecord
from psengine.membership.placement import Placement
from psengine.protocol.events import BatchDone, BatchFailed, ShardsOpened, ShardsTaken
from psengine.protocol.instructions import Dispatch, OpenShards, ShardOwner, TakeShards, UpdateShardMap
from psengine.scheduling.dispatcher import BatchDispatcher
from psengine.single_process import initial, train_alone
from psengine.tables.row_owners import SharedRowError
from psengine.tables.row_sets import RowSet
from psengine.tables.sharding import Arrays, Sharding
from psengine.worker.agent import NodeAgent
from tests.support.agents import CONTROLLER, Wires, no_shards
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
        if op in ("proteus_pull", "proteus_pull_ahead"):
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
    """Three agents that serve a shard each, and a controller's book and dispatcher."""

    def __init__(self, staleness: int = 0, **params: Any) -> None:
        self.wires = Watched()
        self.config = JobConfig(
            "job",
            "tests.psengine.whole_engine.test_row_training:Wanderers",
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
        self.book, self.host = ssp_table(PARTITIONS, staleness)
        self.dispatcher = BatchDispatcher(self.book, self.host)
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
        """Have a shard move; its new owner is in the map when the map is told the next time."""
        old = self.owners[shard]
        self.owners[shard] = ShardOwner(shard, to, address(to), old.epoch + 1)
        order = TakeShards(to, address(to), self.config, old.address, (shard,), (old.epoch,), old.epoch + 1)
        self.agents[to].instruct(order)

    def dispatch(self, clock: int) -> list[Dispatch]:
        """Tell whoever may go on to, up to `clock`."""
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
                self.book.forget(partition, found.clock, attempt)
        else:
            for stats in found.results:
                if self.book.complete(stats.partition, found.clock, stats.attempt) and stats.has_state:
                    self.book.states.completed(stats.partition, found.clock, stats.attempt, found.address)
            commit(self.book, self.host)

    async def train(self, clock: int) -> None:
        while self.book.common < clock:
            self.dispatch(clock)
            await self.done()

    def model(self) -> Arrays:
        app = Wanderers(**self.config.app_params)
        found = {}
        for owner in self.owners:
            answer = self.agents[owner.node].server.gather({owner.shard: owner.epoch}, CLOCKS)
            assert answer.folded == {owner.shard: CLOCKS * PARTITIONS}
            found[owner.shard] = answer.shards[owner.shard]
        states = {}
        for ref in self.book.states.at(CLOCKS):
            agent = next(agent for agent in self.agents.values() if agent.address == ref.address)
            (state,) = agent.host.sent([(ref.executor, ref.group, ref.attempt)])
            states[ref.executor] = state.arrays
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


def whole_tables() -> Arrays:
    """What the bare loop comes to, in whole arrays and by plain additions alone."""
    app = Wanderers()
    tables = initial(app, 0, SHARDS)

    def tree(updates: list[Arrays], name: str) -> np.ndarray:
        if len(updates) == 1:
            return updates[0][name]
        half = len(updates) // 2
        return tree(updates[:half], name) + tree(updates[half:], name)

    for clock in range(1, CLOCKS + 1):
        updates = []
        for p in range(PARTITIONS):
            wanted = app.rows(p, clock)
            params = {name: table[wanted.get(name, slice(None))].copy() for name, table in tables.items()}
            for table in params.values():
                table.flags.writeable = False
            update = {name: np.zeros_like(table) for name, table in tables.items()}
            for name, rows in app.run(p, params, clock).updates.items():
                update[name][wanted.get(name, slice(None))] = rows
            updates.append(update)
        tables = {name: table + tree(updates, name) for name, table in tables.items()}
    return tables


def test_the_bare_loop_by_rows_has_the_bits_of_whole_tables() -> None:
    alone = expected()
    for name, table in whole_tables().items():
        assert alone[name].tobytes() == table.tobytes(), name


def test_rows_of_their_own_do_not_travel_while_nothing_moves() -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.train(1)
        await cluster.train(CLOCKS)
        asked = {name for asked in cluster.wires.pulled for name in asked}
        assert asked == set(cluster.wires.pushed) == {"words", "total"}
        assert not any(op == "proteus_states" for _, op in cluster.wires.calls)
        # two partitions a node, 7 rows each of 2 float32 and 1 int16 and their numbers, in all clocks but the first
        own = 2 * (OWN * (2 * 4 + 2) + 2 * 16) * (CLOCKS - 1)
        assert [agent.client.moved["own"] for agent in cluster.agents.values()] == [own] * 3
        check(cluster)

    story(Cluster(), body)


def test_the_bits_are_the_same_when_partitions_and_shards_move() -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.train(2)
        cluster.placement = Placement(("b", "a", "c", "b", "a", "a"), cluster.placement.owner)
        await cluster.train(3)
        cluster.dispatch(4)
        cluster.take(2, "a")  # while the clock is under way
        cluster.take(0, "b")
        for _ in range(2):
            await cluster.wires.report(ShardsTaken)
        cluster.tell_map()
        cluster.placement = Placement(("a", "a", "a", "b", "b", "c"), cluster.placement.owner)
        await cluster.train(6)
        cluster.take(2, "c")
        await cluster.wires.report(ShardsTaken)  # the map is not told: who comes for it is sent on
        await cluster.train(CLOCKS)
        check(cluster)

    story(Cluster(), body)


def test_the_bits_are_the_same_when_work_is_done_again_and_messages_are_lost() -> None:
    async def body(cluster: Cluster) -> None:
        wires = cluster.wires
        spoilt = ("proteus_push", "proteus_pull", "proteus_states")
        wires.spoil = lambda op, n: "answer lost" if op in spoilt and n % 3 == 0 else ""
        await cluster.train(2)
        cluster.dispatch(3)
        cluster.book.give_up("b")  # it is taken for lost, and yet it works on and reports
        cluster.placement = Placement(("a", "a", "a", "c", "c", "c"), cluster.placement.owner)
        for order in cluster.dispatch(3):
            cluster.agents[order.node].instruct(order)  # and told twice
        await cluster.train(3)
        # b has the marks of its attempt, which did not count: it must not go on from them
        cluster.placement = Placement(("b", "a", "b", "b", "c", "c"), cluster.placement.owner)
        await cluster.train(5)
        cluster.dispatch(6)
        cluster.book.give_up("c")
        cluster.dispatch(6)  # once more, by c itself
        await cluster.train(CLOCKS)
        check(cluster)

    story(Cluster(), body)


def test_the_bits_are_the_same_when_what_servers_have_taken_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psengine.worker.routing._MAP_S", 0.05)  # no other map comes

    async def body(cluster: Cluster) -> None:
        # of six messages at one time, as many tries as three each: one batch, at the least, is given up
        cluster.wires.spoil = lambda op, n: "answer lost" if op == "proteus_push" and 7 <= n < 7 + 3 * 6 else ""
        await cluster.train(CLOCKS)
        assert cluster.given_up
        check(cluster)

    story(Cluster(), body)


@pytest.mark.parametrize("staleness", [1, 3])
def test_with_stale_reads_rows_of_their_own_are_not_stale(staleness: int) -> None:
    async def body(cluster: Cluster) -> None:
        cluster.wires.spoil = lambda op, n: "answer lost" if op == "proteus_push" and n % 4 == 0 else ""
        for clock in range(1, CLOCKS + 1):
            owners = cluster.placement.owner
            if clock % 2 == 0:
                cluster.placement = Placement((*owners[1:], owners[0]), owners)
            if clock == 4:
                cluster.take(1, "a")
                await cluster.wires.report(ShardsTaken)
                cluster.tell_map()
            while cluster.book.common < clock:
                cluster.dispatch(CLOCKS)
                await cluster.done()
        check(cluster, lonely=True)

    story(Cluster(staleness, lonely=True), body)


@pytest.mark.parametrize("staleness", [1, 3])
def test_who_does_a_micro_task_again_does_not_see_what_a_lost_node_left(staleness: int) -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.train(2)
        cluster.dispatch(CLOCKS)
        lost = await cluster.wires.report(BatchDone)  # all of it has come to the servers, and nobody hears of it
        cluster.book.give_up(lost.node)
        heir = next(node for node in NODES if node != lost.node)
        owners = tuple(heir if owner == lost.node else owner for owner in cluster.placement.owner)
        cluster.placement = Placement(owners, (None,) * PARTITIONS)
        while cluster.book.common < CLOCKS:
            cluster.dispatch(CLOCKS)
            await cluster.done()
        check(cluster, lonely=True)

    story(Cluster(staleness, lonely=True), body)


def shared(row: int, partition: int) -> str:
    return (
        f"table 'places': row {row} belongs to partition {partition} and to partition {partition + 1}; with "
        "own=True each row belongs to one partition: give each other rows, or leave out own"
    )


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("rows", "slice(0, 31, None) is no run of the 30 rows of table 'words'"),
        ("shape", "the update of table 'places' is (1, 2): want (7, 2)"),
        ("type", "the update of table 'marks' is of float32: the table is of int16"),
    ],
)
def test_rows_that_are_wrong_fail_the_job_by_name(wrong: str, says: str) -> None:
    async def body(cluster: Cluster) -> None:
        cluster.dispatch(1)
        failed = await cluster.wires.report(BatchFailed)
        assert (failed.fatal, failed.error) == (True, f"ValueError: {says}")

    story(Cluster(wrong=wrong), body)


@pytest.mark.parametrize(("wrong", "row", "partition"), [("shared", 13, 1), ("shared on a node", 6, 0)])
def test_rows_of_two_partitions_are_no_model(wrong: str, row: int, partition: int) -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.train(CLOCKS)
        with pytest.raises(SharedRowError, match=re.escape(shared(row, partition))):
            cluster.model()

    story(Cluster(wrong=wrong), body)


def test_the_methods_that_the_page_shows_are_taken(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "applications.md").read_text()
    (shown,) = re.findall(r"^ {4}def tables.*?^ {8}return \{.*?$", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "shown.py").write_text(textwrap.dedent(shown))
    names = runpy.run_path(str(tmp_path / "shown.py"), {"TableSpec": TableSpec})
    sizes = SimpleNamespace(k=3, n_inputs=2, n_examples=50)
    tables = names["tables"](sizes)

    class Shown(Wanderers):
        def rows(self, data: Any, clock: int) -> Mapping[str, RowSet]:
            rows: Mapping[str, RowSet] = names["rows"](self, data, clock)
            return rows

    assert wants(Shown(), tables, SimpleNamespace(first=30, x=np.zeros(20)), 1) == {"nearest": slice(30, 50)}
    assert [table.name for table in tables if table.own] == ["nearest"]
