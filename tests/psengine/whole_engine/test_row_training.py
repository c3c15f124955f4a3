"""Training by rows through real agents: the bits of a bare loop, also after moves and repeated work."""

from __future__ import annotations

import re
import runpy
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.apps.residents import wants
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.membership.placement import Placement
from proteus_spot.psengine.protocol.events import BatchDone, BatchFailed, ShardsTaken
from proteus_spot.psengine.single_process import initial
from proteus_spot.psengine.tables.row_owners import SharedRowError
from proteus_spot.psengine.tables.row_sets import RowSet
from proteus_spot.psengine.tables.sharding import Arrays
from tests.support.row_training import (
    CLOCKS,
    NODES,
    OWN,
    PARTITIONS,
    SHARDS,
    Cluster,
    Wanderers,
    check,
    expected,
    story,
)


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
        spoilt = ("proteus_push", "Committed", "proteus_states")
        wires.spoil = lambda op, n: "answer lost" if op in spoilt and n % 3 == 0 else ""
        await cluster.train(2)
        cluster.dispatch(3)
        cluster.tasks.give_up("b")  # it is taken for lost, and yet it works on and reports
        cluster.placement = Placement(("a", "a", "a", "c", "c", "c"), cluster.placement.owner)
        for order in cluster.dispatch(3):
            cluster.agents[order.node].instruct(order)  # and told twice
        await cluster.train(3)
        # b has the marks of its attempt, which did not count: it must not go on from them
        cluster.placement = Placement(("b", "a", "b", "b", "c", "c"), cluster.placement.owner)
        await cluster.train(5)
        cluster.dispatch(6)
        cluster.tasks.give_up("c")
        cluster.dispatch(6)  # once more, by c itself
        await cluster.train(CLOCKS)
        check(cluster)

    story(Cluster(), body)


def test_the_bits_are_the_same_when_what_servers_have_taken_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proteus_spot.psengine.worker.routing._MAP_S", 0.05)  # no other map comes

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
            while cluster.tasks.common < clock:
                cluster.dispatch(CLOCKS)
                await cluster.done()
        check(cluster, lonely=True)

    story(Cluster(staleness, lonely=True), body)


@pytest.mark.parametrize("staleness", [1, 3])
def test_who_does_a_task_again_does_not_see_what_a_lost_node_left(staleness: int) -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.train(2)
        cluster.dispatch(CLOCKS)
        lost = await cluster.wires.report(BatchDone)  # all of it has come to the servers, and nobody hears of it
        cluster.tasks.give_up(lost.node)
        heir = next(node for node in NODES if node != lost.node)
        owners = tuple(heir if owner == lost.node else owner for owner in cluster.placement.owner)
        cluster.placement = Placement(owners, (None,) * PARTITIONS)
        while cluster.tasks.common < CLOCKS:
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
        ("rows", "slice(0, 31, None) is not a run of the 30 rows of table 'words'"),
        ("shape", "the update of table 'places' is (1, 2): want (7, 2)"),
        ("type", "the update of table 'marks' is of float32: the table is of int16; round and cast it"),
    ],
)
def test_rows_that_are_wrong_fail_the_job_by_name(wrong: str, says: str) -> None:
    async def body(cluster: Cluster) -> None:
        cluster.dispatch(1)
        failed = await cluster.wires.report(BatchFailed)
        assert failed.fatal
        assert failed.error.endswith(says)

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
