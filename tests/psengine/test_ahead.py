"""Batches that are begun ahead of their order: what waits for what, and that only what fits the order is used."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import psengine.servers
from psengine.apps.base import Work
from psengine.client import ParameterClient
from psengine.events import BatchDone, BatchFailed
from psengine.instructions import UpdateShardMap
from psengine.microtasks import MicroTaskBook
from psengine.nodes import NodeRecord
from psengine.plan import Placement
from psengine.routing import SupersededError
from psengine.rows import RowDelta
from psengine.servers import ShardServer
from psengine.store import ShardStore
from tests.psengine.test_agent import HERE, OWNERS, THERE, Counting, Wires, dispatch, story
from tests.psengine.test_row_training import CLOCKS, NODES, PARTITIONS, Cluster, Wanderers, Watched, address, check
from tests.psengine.test_row_training import story as training
from tests.psengine.test_store import Zeros
from tests.support.patience import PATIENCE

# -- the server ---------------------------------------------------------------------------------------------------


def serving(n_partitions: int = 2) -> ShardServer:
    from psengine.sharding import Sharding

    made = ShardServer()
    made.open(Zeros(), Sharding(Zeros().tables(), 2), n_partitions, 7, [0, 1], 1)  # type: ignore[arg-type]
    return made


def push(server: ShardServer, partition: int, attempt: int = 1, clock: int = 1) -> None:
    shapes = {shard: store.committed["w"].shape for shard, store in server.stores.items()}
    updates = {s: [{"w": np.full(shape, 0.1 + partition, np.float32)}] for s, shape in shapes.items()}
    number = 100 * clock + 10 * attempt + partition
    blocks = [(partition, [attempt])]
    assert server.push("n", number, clock, dict.fromkeys(shapes, 1), blocks, updates)["status"] == "ok"


async def waiting(server: ShardServer, **message: Any) -> asyncio.Task[Any]:
    task = asyncio.create_task(server.pull_ahead({0: 1, 1: 1}, 1, **message))
    while not server._waiting:
        await asyncio.sleep(0)
    return task


def test_who_reads_ahead_gets_what_will_be_committed_when_all_effects_are_there() -> None:
    async def run() -> None:
        server = serving()
        asked = await waiting(server)
        some = asyncio.create_task(server.pull_ahead({0: 1}, 1, {0: {"w": slice(1, 2)}}))
        push(server, 0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        push(server, 1)
        answer, rows = await asked, (await some)["shards"][0]["w"]
        assert (answer["status"], answer["attempt"]) == ("ok", 1)
        assert server.pull({0: 1}, 0, exact=True)["status"] == "ok", "nothing is committed by it"
        later = server.pull({0: 1, 1: 1}, 1, exact=True)
        for shard in (0, 1):
            assert later["shards"][shard]["w"].tobytes() == answer["shards"][shard]["w"].tobytes()
        assert rows.tobytes() == answer["shards"][0]["w"][1:2].tobytes()
        assert (await server.pull_ahead({0: 1}, 1))["attempt"] == 1, "also when it is committed"

    asyncio.run(run())


def announcement(server: ShardServer, partition: int, attempt: int = 1, clock: int = 1) -> dict[str, Any]:
    updates = {
        s: [{"w": np.full(store.committed["w"].shape, 0.1 + partition, np.float32)}]
        for s, store in server.stores.items()
    }
    return {"clock": clock, "epochs": {0: 1, 1: 1}, "blocks": [(partition, [attempt])], "updates": updates}


def rest(server: ShardServer, partition: int, attempt: int = 1, clock: int = 1) -> str:
    """Push what was not announced, which is nothing, and return the answer."""
    message = {**announcement(server, partition, attempt, clock), "updates": {0: [{}], 1: [{}]}}
    return str(server.push("n", 100 * clock + 10 * attempt + partition, announced=True, **message)["status"])


def test_who_reads_what_was_announced_does_not_wait_for_the_rest() -> None:
    async def run() -> None:
        server = serving()
        whole = await waiting(server)
        asked = asyncio.create_task(server.pull_ahead({0: 1, 1: 1}, 1, announced=True))
        for partition in (0, 1):
            assert server.announce(**announcement(server, partition)) == {"status": "ok"}
        answer = await asked
        assert (answer["status"], answer["attempt"], whole.done()) == ("ok", 1, False)
        assert server.pull({0: 1}, 0, exact=True)["status"] == "ok", "nothing is committed by it"
        assert [rest(server, partition) for partition in (0, 1)] == ["ok", "ok"]
        await whole
        later = server.pull({0: 1, 1: 1}, 1, exact=True)
        for shard in (0, 1):
            assert server.stores[shard].folded == 2
            assert later["shards"][shard]["w"].tobytes() == answer["shards"][shard]["w"].tobytes()

    asyncio.run(run())


def test_who_reads_other_rows_does_not_wait_for_a_long_run_of_them() -> None:
    def run_of(low: int, high: int) -> RowDelta:
        return RowDelta(slice(low, high), np.full((high - low, 1), 0.5, np.float32))

    async def run() -> None:
        server = ShardServer()
        server.restore(0, 1, {"w": np.zeros((4, 1), np.float32)}, 2, 0)
        server.stores[0].ahead(0, {"w": None})  # as in every clock but the first
        asked, whole, touching = (
            asyncio.create_task(server.pull_ahead({0: 1}, 1, rows, announced=True))
            for rows in ({0: {"w": slice(2, 4)}}, None, {0: {"w": slice(1, 3)}})
        )
        message: dict[str, Any] = {"clock": 1, "epochs": {0: 1}}
        server.announce(blocks=[(1, [1])], updates={0: [{"w": run_of(2, 4)}]}, **message)
        server.announce(blocks=[(0, [1])], updates={0: [{}]}, to_come={0: [{"w": (0, 2)}]}, **message)
        answer = await asked
        assert (answer["status"], answer["attempt"]) == ("ok", 1)
        assert answer["shards"][0]["w"].tolist() == [[0.5], [0.5]]
        assert not whole.done()
        assert not touching.done()
        with_rest = {**message, "blocks": [(0, [1])], "updates": {0: [{}]}, "sender": "n", "sequence": 1}
        assert server.push(announced=True, **with_rest)["status"] == "unannounced", "they are still to come"
        server.announce(blocks=[(0, [1])], updates={0: [{"w": run_of(0, 2)}]}, **message)
        assert (await whole)["shards"][0]["w"].tolist() == 4 * [[0.5]]
        assert (await touching)["shards"][0]["w"].tolist() == 2 * [[0.5]]
        assert server.push(announced=True, **with_rest)["status"] == "ok"

    asyncio.run(run())


@pytest.mark.parametrize("announced_last", [True, False])
def test_who_reads_ahead_does_not_wait_where_some_have_nothing_to_announce(announced_last: bool) -> None:
    async def run() -> None:
        server = serving()
        asked = asyncio.create_task(server.pull_ahead({0: 1, 1: 1}, 1, announced=True))
        while not server._waiting:
            await asyncio.sleep(0)
        if announced_last:
            push(server, 1)
        server.announce(**announcement(server, 0))
        if not announced_last:
            push(server, 1)
        assert (await asyncio.wait_for(asked, 1.0))["status"] == "ok"
        assert rest(server, 0) == "ok"
        assert server.pull({0: 1, 1: 1}, 1, exact=True)["status"] == "ok"

    asyncio.run(run())


@pytest.mark.parametrize("rest_last", [True, False])
def test_what_was_not_announced_is_worked_out_soon(rest_last: bool) -> None:
    async def run() -> None:
        server = serving()
        server.announce(**announcement(server, 0))
        for last in (False, True):
            if last is rest_last:
                assert rest(server, 0) == "ok"
            else:
                push(server, 1)
        assert not server.stores[0]._coming._next
        async with asyncio.timeout(10):
            while not server.stores[0]._coming._next:
                await asyncio.sleep(0.001)

    asyncio.run(run())


def test_the_rest_of_what_was_not_announced_is_not_taken() -> None:
    async def run() -> None:
        server = serving()
        assert rest(server, 0) == "unannounced"
        server.announce(**announcement(server, 0, attempt=2))
        assert rest(server, 0) == "unannounced", "that was another attempt"
        assert not server.stores[0].pending
        push(server, 0)  # all of it, under the number of the message that was not taken
        push(server, 1)
        assert server.pull({0: 1, 1: 1}, 1, exact=True)["status"] == "ok"
        assert server.stores[0].folded == 2, "the attempt that was only announced does not count"
        assert server.stores[0].committed["w"].tobytes() == undisturbed().tobytes()

    asyncio.run(run())


def test_a_server_that_has_handed_over_takes_no_announcement() -> None:
    async def run() -> None:
        server = serving()
        server.announce(**announcement(server, 0))
        state = server.hand_over({0: 1, 1: 1}, "b", "tcp://b", 2)["states"][0]
        assert server.announce(**announcement(server, 1))["status"] == "moved"
        assert rest(server, 0) == "moved"
        assert state.later == (), "what was announced stays behind"

    asyncio.run(run())


def undisturbed() -> Any:
    server = serving()
    for partition in (0, 1):
        push(server, partition)
    server.pull({0: 1, 1: 1}, 1, exact=True)
    return server.stores[0].committed["w"]


@pytest.mark.parametrize("how", ["moved", "another generation", "not-yet"])
def test_who_reads_ahead_is_not_kept_waiting_for_nothing(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where it is let know, that is not because its time has run out.
    monkeypatch.setattr(psengine.servers, "AHEAD_WAITS_S", 0.01 if how == "not-yet" else 1000 * PATIENCE)

    async def run() -> None:
        server = serving()
        asked = await waiting(server)
        if how == "moved":
            server.hand_over({1: 1}, "t", "tcp://t", 2)
        elif how == "another generation":
            server.forget([], 2)
        async with asyncio.timeout(5 * PATIENCE):
            answer = await asked
        assert answer["status"] == {"another generation": "stale-epoch"}.get(how, how)
        assert not server._waiting

    asyncio.run(run())


def test_effects_of_several_attempts_are_not_read_ahead() -> None:
    async def run() -> None:
        server = serving()
        asked = await waiting(server)
        push(server, 0)
        push(server, 1, attempt=2)
        assert not asked.done()
        assert server.pull({0: 1, 1: 1}, 1, exact=True)["status"] == "ok"
        server._wake()
        assert (await asked)["status"] == "stale-read"

    asyncio.run(run())


def test_rows_that_are_to_come_of_another_attempt_are_not_left_out() -> None:
    async def run() -> None:
        server = serving()
        runs = {shard: [{"w": (0, 1)}] for shard in (0, 1)}
        server.announce(**{**announcement(server, 0, attempt=2), "updates": {0: [{}], 1: [{}]}}, to_come=runs)
        push(server, 0)
        push(server, 1)
        asked = asyncio.create_task(server.pull_ahead({0: 1, 1: 1}, 1))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        assert server.pull({0: 1, 1: 1}, 1, exact=True)["status"] == "ok"
        server._wake()
        answer = await asked
        assert answer["shards"][0]["w"].tobytes() == undisturbed().tobytes()

    asyncio.run(run())


def test_a_higher_attempt_takes_the_place_of_what_was_read_ahead() -> None:
    store = ShardStore(0, 1, {"w": np.zeros((1, 1), np.float32)}, 2)
    for partition in (0, 1):
        store.push(1, partition, [1], {"w": np.ones((1, 1), np.float32)})
    assert store.attempt(1) == 1
    assert store.ahead(1)["w"] == 2
    assert store.committed["w"] == 0
    store.push(1, 1, [2], {"w": np.full((1, 1), 5, np.float32)})
    assert store.attempt(1) == 0
    store.fold(1)
    assert (store.committed["w"], store.folded, store.attempt(1)) == (6, 2, 0)
    assert (store.attempt(2), store.attempt(3)) == (0, 0)


# -- the book -----------------------------------------------------------------------------------------------------


def test_the_book_knows_under_which_attempt_all_have_completed_a_clock() -> None:
    book = MicroTaskBook(2)
    assert book.completed_by == 0  # who wrote the beginning is not known

    def do(partition: int, clock: int, tries: int = 1) -> None:
        for _ in range(tries):
            book.give_up("n")
            attempt = book.start(partition, clock, "n")
        assert book.complete(partition, clock, attempt)

    do(0, 1)
    assert book.completed_by == 0
    do(1, 1)
    assert book.completed_by == 1
    do(0, 2, tries=2)
    do(1, 2)
    assert book.completed_by == 0
    for partition in (0, 1):
        do(partition, 3)
    assert book.completed_by == 1
    do(0, 4)
    assert book.completed_by == 0, "one has gone further, and its last attempt was at another clock"
    book.roll_back(2)
    for partition in (0, 1):
        do(partition, 3)
    assert book.completed_by == 3


# -- the agent ----------------------------------------------------------------------------------------------------


def pulls(wires: Wires) -> int:
    return sum(op == "proteus_pull" for _, op in wires.calls)


async def go_on(cluster: Cluster, clock: int) -> None:
    """Train up to `clock`, as a part of all clocks: whoever has done it has begun the next one."""
    while cluster.book.common < clock:
        cluster.dispatch(CLOCKS)
        await cluster.done()


def test_clocks_that_follow_one_another_are_read_ahead_alone() -> None:
    async def body(cluster: Cluster) -> None:
        await go_on(cluster, CLOCKS)
        assert pulls(cluster.wires) == len(NODES) * (len(NODES) - 1), "the first clock's"
        check(cluster)

    training(Cluster(), body)


def test_what_others_do_now_is_dropped_and_what_came_from_others_is_read() -> None:
    async def body(cluster: Cluster) -> None:
        await go_on(cluster, 3)
        cluster.placement = Placement(("c", "b", "a", "a", "b", "a"), (None,) * PARTITIONS)
        cluster.wires.calls.clear()
        await go_on(cluster, CLOCKS)
        assert pulls(cluster.wires) == 4, "a and b have something new, c has less"
        check(cluster)

    training(Cluster(), body)


def test_work_that_was_done_again_is_not_gone_on_from_ahead() -> None:
    async def body(cluster: Cluster) -> None:
        await go_on(cluster, 3)
        cluster.dispatch(CLOCKS)
        cluster.book.give_up("b")  # it is taken for lost when its effects are there already
        cluster.wires.calls.clear()
        await go_on(cluster, CLOCKS)
        assert pulls(cluster.wires) >= len(NODES) * (len(NODES) - 1)
        check(cluster)

    training(Cluster(), body)


def test_a_new_map_in_between_is_read_by() -> None:
    async def body(cluster: Cluster) -> None:
        await go_on(cluster, 3)
        cluster.tell_map()
        cluster.wires.calls.clear()
        await go_on(cluster, CLOCKS)
        assert pulls(cluster.wires) == len(NODES) * (len(NODES) - 1)
        assert {a.client.routes.version for a in cluster.agents.values()} == {cluster.version}
        assert address("a") in cluster.wires.agents
        check(cluster)

    training(Cluster(), body)


def test_the_rest_of_an_update_does_not_share_the_way_with_what_is_read_ahead(
    announced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psengine.client._REST_WAITS_S", 5 * PATIENCE)
    seen: list[tuple[str, str, int]] = []
    read, call = ParameterClient.read_ahead, Watched.call

    async def noted_read(self: ParameterClient, sharding: Any, wanted: Any, clock: int) -> Any:
        found = await read(self, sharding, wanted, clock)
        seen.append(("came", self._sender, clock))
        return found

    async def noted_call(self: Watched, to: str, op: str, deadline_s: float, **message: Any) -> Any:
        if op == "proteus_push" and message.get("announced"):
            seen.append(("rest", message["sender"], message["clock"]))
        return await call(self, to, op, deadline_s, **message)

    monkeypatch.setattr(ParameterClient, "read_ahead", noted_read)
    monkeypatch.setattr(Watched, "call", noted_call)

    async def body(cluster: Cluster) -> None:
        await go_on(cluster, CLOCKS)
        rests = [(sender, clock) for what, sender, clock in seen if what == "rest"]
        assert len(rests) >= len(NODES) * (CLOCKS - 1)
        for sender, clock in rests:
            assert seen.index(("came", sender, clock)) < seen.index(("rest", sender, clock))
        check(cluster)

    training(Cluster(), body)


def test_nobody_waits_for_word_of_what_will_come(announced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psengine.updates._LONG_BYTES", 1)
    call, told = Watched.call, []

    async def stuck(self: Watched, to: str, op: str, deadline_s: float, **message: Any) -> Any:
        if "to_come" in message:
            told.append(to)
            await asyncio.Event().wait()
        return await call(self, to, op, deadline_s, **message)

    monkeypatch.setattr(Watched, "call", stuck)

    async def body(cluster: Cluster) -> None:
        async with asyncio.timeout(10 * PATIENCE):
            await go_on(cluster, CLOCKS)
        assert told
        check(cluster)

    training(Cluster(), body)


def test_the_rest_of_an_update_waits_for_nobody_who_is_slow(announced: None) -> None:
    async def body(cluster: Cluster) -> None:
        ready = {node: NodeRecord(node, address(node), "reliable", 1) for node in NODES}
        (first, *others) = cluster.dispatcher.orders(cluster.placement, ready, CLOCKS, cluster.version, 1)
        cluster.agents[first.node].instruct(first)
        await cluster.done()  # although nothing is to be had ahead
        for order in others:
            cluster.agents[order.node].instruct(order)
            await cluster.done()
        await go_on(cluster, CLOCKS)
        check(cluster)

    training(Cluster(), body)


def test_the_rows_of_the_next_clock_are_asked_for_while_the_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {(data, clock): threading.Event() for data in range(PARTITIONS) for clock in range(1, CLOCKS + 2)}
    rows, run = Wanderers.rows, Wanderers.run

    def noted(self: Wanderers, data: int, clock: int) -> Any:
        asked[data, clock].set()
        return rows(self, data, clock)

    def waits(self: Wanderers, data: int, params: Any, clock: int) -> Work:
        assert clock == CLOCKS or asked[data, clock + 1].wait(5 * PATIENCE)
        return run(self, data, params, clock)

    monkeypatch.setattr(Wanderers, "rows", noted)
    monkeypatch.setattr(Wanderers, "run", waits)

    async def body(cluster: Cluster) -> None:
        await go_on(cluster, CLOCKS)
        assert not any(event.is_set() for (_, clock), event in asked.items() if clock > CLOCKS), (
            "there is no such clock"
        )
        monkeypatch.undo()
        check(cluster)

    training(Cluster(), body)


class Musing(Counting):
    """It takes long to say which rows it wants of clock 2, the first time it is asked."""

    asked, free = threading.Event(), threading.Event()

    def rows(self, data: float, clock: int) -> dict[str, slice]:
        if clock == 2 and not self.asked.is_set():
            self.asked.set()
            assert self.free.wait(5 * PATIENCE)
        return {"w": slice(0, 4)}


def test_who_gives_up_what_he_has_begun_ahead_leaves_the_question_for_its_rows_to_others() -> None:
    async def body(wires: Wires, here: Any, there: Any) -> None:
        Musing.asked.clear()
        Musing.free.clear()
        await all_of_clock_1(wires, here, there)
        assert Musing.asked.is_set()
        here.instruct(dispatch(2, 2, [(0, 1), (1, 1)], completed_by=0))  # which does not fit
        for _ in range(20):
            await asyncio.sleep(0)
        Musing.free.set()
        done = await wires.report(BatchDone)
        assert [stats.loss_sum for stats in done.results] == [12.0, 12.0]

    story(body, app="tests.psengine.test_ahead:Musing")


def test_who_reads_rows_of_partitions_own_ahead_sends_his_own_at_once(
    announced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psengine.client._REST_WAITS_S", 1000 * PATIENCE)
    monkeypatch.setattr("psengine.batches.unchanged", lambda before, wanted: frozenset())

    async def body(cluster: Cluster) -> None:
        await go_on(cluster, CLOCKS)
        check(cluster)

    training(Cluster(), body)


def test_the_rest_goes_at_once_where_nothing_can_be_read_ahead(
    announced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psengine.client._REST_WAITS_S", 1000 * PATIENCE)

    async def refused(self: ParameterClient, sharding: Any, wanted: Any, clock: int) -> Any:
        raise SupersededError("another time")

    monkeypatch.setattr(ParameterClient, "read_ahead", refused)

    async def body(cluster: Cluster) -> None:
        await go_on(cluster, CLOCKS)
        check(cluster)

    training(Cluster(), body)


class Failing(Counting):
    """It fails at clock 2."""

    def run(self, data: float, params: Any, clock: int) -> Work:
        if clock == 2:
            raise ZeroDivisionError("by the user")
        return super().run(data, params, clock)


async def all_of_clock_1(wires: Wires, here: Any, there: Any) -> None:
    """Have clock 1 done: partitions 0 and 1 here, and the others' effects, which are nothing, come from elsewhere."""
    here.instruct(dispatch(1, 1, [(0, 1), (1, 1)], goes_on=True))
    await wires.report(BatchDone)
    for agent, shard in ((here, 0), (there, 1)):
        agent.server.push("x", 1, 1, {shard: 1}, [(2, [1, 1])], {shard: [{}]})


@pytest.mark.parametrize(("completed_by", "pulled"), [(1, 0), (2, 1), (0, 1)])
def test_only_the_attempt_that_counts_is_gone_on_from(completed_by: int, pulled: int) -> None:
    async def body(wires: Wires, here: Any, there: Any) -> None:
        await all_of_clock_1(wires, here, there)
        wires.calls.clear()
        here.instruct(dispatch(2, 2, [(0, 1), (1, 1)], completed_by=completed_by))
        done = await wires.report(BatchDone)
        assert [stats.loss_sum for stats in done.results] == [12.0, 12.0]  # 4 rows of 1 + 2
        assert pulls(wires) == pulled

    story(body)


def test_what_an_application_raises_ahead_is_told_when_the_order_has_come() -> None:
    async def body(wires: Wires, here: Any, there: Any) -> None:
        await all_of_clock_1(wires, here, there)
        here.instruct(dispatch(2, 2, [(0, 1), (1, 1)], completed_by=1))
        failed = await wires.report(BatchFailed)
        assert (failed.fatal, failed.error) == (True, "ZeroDivisionError: by the user")

    story(body, app="tests.psengine.test_ahead:Failing")


def test_all_go_back_while_one_has_begun_ahead() -> None:
    async def body(wires: Wires, here: Any, there: Any) -> None:
        await all_of_clock_1(wires, here, there)
        for agent, owner in zip((here, there), OWNERS, strict=True):
            opened = ShardStore(owner.shard, 2, {"w": np.zeros((2, 1))}, 4)
            agent.server.generation = 2
            agent.server._serve(opened)
        owners = tuple(type(owner)(owner.shard, owner.node, owner.address, 2) for owner in OWNERS)
        here.instruct(UpdateShardMap("here", HERE, 2, owners, 2))
        again = {"map_version": 2, "generation": 2}
        here.instruct(dispatch(2, 1, [(0, 2), (1, 2)], **again))
        done = await wires.report(BatchDone)
        assert [stats.loss_sum for stats in done.results] == [0.0, 0.0]
        assert (THERE, "proteus_pull") in wires.calls

    story(body)
