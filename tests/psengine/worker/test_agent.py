"""The agent and its client against a transport in memory that can lose, double and refuse."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine
from types import UnionType
from typing import Any

import numpy as np
import pytest

from psengine.apps.base import Work
from psengine.config import JobConfig, TableSpec
from psengine.protocol.checkpoint import Checkpoint
from psengine.protocol.events import (
    BatchDone,
    BatchFailed,
    NodeFailed,
    NodeReady,
    NodeUnfit,
    ShardsNotOpened,
    ShardsNotTaken,
    ShardsOpened,
    ShardsTaken,
)
from psengine.protocol.instructions import (
    Dispatch,
    LoadPartitions,
    OpenShards,
    ShardOwner,
    TakeShards,
    TaskKey,
    UpdateShardMap,
)
from psengine.rpc.transport import Transport, Unreachable
from psengine.telemetry.byte_counts import link
from psengine.worker import parameter_client as client
from psengine.worker import routing
from psengine.worker.agent import NodeAgent
from psengine.worker.blocking_work import BlockingWork
from tests.support.timeouts import PATIENCE

HERE, THERE, CONTROLLER = "tcp://here", "tcp://there", "tcp://controller"


class Counting:
    """An application whose update is 1 + partition, and which checks that it reads what it should."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec("w", 4, 1, "float64"),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        return np.zeros((rows[1] - rows[0], 1))

    def prepare(self, arrays: Any) -> float:
        return float(arrays["x"])

    def run(self, data: float, params: Any, clock: int) -> Work:
        if self.fails:
            raise ZeroDivisionError("by the user")
        assert not params["w"].flags.writeable
        return Work({"w": np.full((4, 1), 1.0 + data)}, float(params["w"].sum()), 1)


def no_shards(checkpoint: str, shard: int) -> Any:
    raise AssertionError("no checkpoint in this story")


class Wires:
    """Every call, to agents by address; `spoil` may raise before or after the call took effect."""

    def __init__(self) -> None:
        self.agents: dict[str, NodeAgent] = {}
        self.reports: list[Any] = []
        self.calls: list[tuple[str, str]] = []
        #: {process: the bytes moved in its last report}
        self.moved: dict[str, dict[str, int]] = {}
        self.spoil: Callable[[str, int], str] = lambda op, n: ""
        self.arrived = asyncio.Event()

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        assert deadline_s > 0
        self.calls.append((address, op))
        spoilt = self.spoil(op, sum(o == op for _, o in self.calls))
        if spoilt == "lost":
            raise Unreachable(address, op, OSError("lost"))
        if op == "proteus_event":
            self.reports.append(message["event"])
            self.moved[message["process"]] = message.get("moved", {})
            self.arrived.set()
            answer: Any = "ok"
        elif op == "proteus_partition":
            answer = {"pickled": await self.agents[address].partitions.sent(message["partition"])}
        elif op == "proteus_states":
            answer = {"states": self.agents[address].host.sent(message["wanted"])}
        else:
            server = self.agents[address].server
            message.pop("turn", None)
            message.pop("reader", None)
            if op not in ("proteus_hand_over", "proteus_pull_ahead"):
                await server.arrived(message["epochs"])
            answer = getattr(server, op.removeprefix("proteus_"))(**message)
            if op == "proteus_pull_ahead":
                answer = await answer
        if spoilt == "answer lost":
            raise Unreachable(address, op, OSError("answer lost"))
        return answer

    async def report(self, kind: type | UnionType) -> Any:
        async with asyncio.timeout(5 * PATIENCE):
            while True:
                found = [r for r in self.reports if isinstance(r, kind)]
                if found:
                    self.reports.remove(found[0])
                    return found[0]
                self.arrived.clear()
                await self.arrived.wait()


OWNERS = (ShardOwner(0, "here", HERE, 1), ShardOwner(1, "there", THERE, 1))


def config(app: str = "tests.psengine.worker.test_agent:Counting", **params: Any) -> JobConfig:
    return JobConfig("job", app, params, n_partitions=4, n_shards=2, clocks=9)


def dispatch(batch: int, clock: int, tasks: list[tuple[int, int]], **more: Any) -> Dispatch:
    keys = tuple(TaskKey(*task) for task in tasks)
    fields = {"parent_clock": 4 * (clock - 1), "committed": clock - 1, "map_version": 1, "generation": 1} | more
    return Dispatch("here", HERE, batch, clock, keys, **fields)


def story(body: Callable[[Wires, NodeAgent, NodeAgent], Coroutine[Any, Any, None]], **params: Any) -> None:
    """Run `body` on two agents; the job is known, the shards are open, partitions 0 and 1 are loaded at `here`."""

    async def run() -> None:
        wires = Wires()
        transport: Transport = wires
        here, there = (
            NodeAgent(name, address, CONTROLLER, transport, lambda url, p: {"x": np.float64(p)}, no_shards, 2)
            for name, address in (("here", HERE), ("there", THERE))
        )
        wires.agents = {HERE: here, THERE: there}
        job = config(**params)
        try:
            for agent, name, address, shard in ((here, "here", HERE, 0), (there, "there", THERE, 1)):
                agent.instruct(OpenShards(name, address, job, (shard,), 1))
                assert (await wires.report(ShardsOpened)).shards == (shard,)
            here.instruct(LoadPartitions("here", HERE, job, 1, (0, 1)))
            assert (await wires.report(NodeReady)).partitions == (0, 1)
            here.instruct(UpdateShardMap("here", HERE, 1, OWNERS, 1))
            await body(wires, here, there)
        finally:
            await asyncio.gather(here.close(), there.close())

    asyncio.run(run())


def values(agent: NodeAgent, shard: int, clock: int) -> float:
    return float(agent.server.pull({shard: 1}, clock, exact=True)["shards"][shard]["w"][0, 0])


def test_a_batch_is_one_message_a_server_and_its_own_server_is_not_called() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        wires.calls.clear()
        here.instruct(dispatch(1, 1, [(0, 1), (1, 1)]))
        done = await wires.report(BatchDone)
        assert [(s.partition, s.attempt, s.examples) for s in done.results] == [(0, 1, 1), (1, 1, 1)]
        expected = [(THERE, "proteus_pull"), (THERE, "proteus_push"), (CONTROLLER, "proteus_event")]
        assert wires.calls == expected  # the report comes after the flush
        assert values(here, 0, 1) == values(there, 1, 1) == 1.0 + 2.0

    story(body)


def test_a_batch_that_is_received_twice_runs_once_and_a_batch_of_the_clock_shares_the_read() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        for _ in range(2):
            here.instruct(dispatch(1, 1, [(0, 1)]))
        here.instruct(dispatch(2, 1, [(3, 2)]))  # taken over: not loaded here, so it is loaded on demand
        for _ in range(2):
            await wires.report(BatchDone)
        assert [op for _, op in wires.calls].count("proteus_pull") == 1
        assert values(here, 0, 1) == 1.0 + 4.0
        assert here.server.dropped == {"message": 0, "repeated": 0, "superseded": 0}

    story(body)


def test_what_was_read_as_it_is_is_not_taken_for_exactly_the_group_before() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        for number, (clock, task, completions, committed) in enumerate(
            [(1, (0, 1), 0, 0), (2, (1, 1), 1, 1), (3, (0, 1), 2, 1), (3, (1, 1), 3, 1)], start=1
        ):
            here.instruct(dispatch(number, clock, [task], parent_clock=completions, committed=committed, read="parent"))
            await wires.report(BatchDone)
        here.instruct(dispatch(5, 3, [(0, 2)], parent_clock=3, committed=2, read="group"))
        (stats,) = (await wires.report(BatchDone)).results
        assert stats.loss_sum == 4 * (1.0 + 2.0), "without the updates of group 3"

    story(body)


def test_a_node_tells_what_it_has_moved_with_what_it_reports() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        assert wires.moved[HERE] == {"input": 2 * 8}, "two partitions of one number each"
        here.instruct(dispatch(1, 1, [(0, 1), (1, 1)]))
        await wires.report(BatchDone)
        # Each server has two rows of eight bytes; its own rows do not move.
        assert wires.moved[HERE] == {"input": 16, "read": 16, "push": 16, link(THERE): 32}
        there.instruct(TakeShards("there", THERE, config(), HERE, (0,), (1,), 2))
        await wires.report(ShardsTaken)
        # The state at clock 0, and an update of two partitions, which is one sum.
        assert wires.moved[THERE] == {"hand_over": 16 + 16, link(HERE): 32}

    story(body)


def test_a_push_whose_answer_is_lost_is_sent_again_and_counts_once() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        wires.spoil = lambda op, n: "answer lost" if op == "proteus_push" and n == 1 else ""
        here.instruct(dispatch(1, 1, [(0, 1), (1, 1)]))
        await wires.report(BatchDone)
        assert there.server.dropped["message"] == 1
        assert values(there, 1, 1) == 3.0

    story(body)


def test_a_server_that_stays_away_fails_the_batch_and_the_next_attempt_replaces_the_half_that_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "_MAP_S", 0.05)

    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        wires.spoil = lambda op, n: "lost" if op == "proteus_push" and n <= 3 else ""
        here.instruct(dispatch(1, 1, [(0, 1)]))
        failed = await wires.report(BatchFailed)
        assert (failed.tasks, failed.fatal) == (((0, 1),), False)
        here.instruct(dispatch(2, 1, [(0, 2)]))
        await wires.report(BatchDone)
        assert values(here, 0, 1) == values(there, 1, 1) == 1.0
        assert here.server.stores[0].folded == there.server.stores[1].folded == 1

    story(body)


def test_work_that_is_no_longer_wanted_is_dropped() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        there.server.pull({1: 1}, 1, exact=True)  # somebody else is a clock ahead already
        here.instruct(dispatch(1, 1, [(0, 1)]))
        assert not (await wires.report(BatchFailed)).fatal
        here.instruct(dispatch(2, 1, [(0, 2)], map_version=2))
        assert "map 2 required" in (await wires.report(BatchFailed)).error
        there.server.stores[1].epoch = 2
        here.instruct(dispatch(3, 2, [(0, 1)]))
        assert "epoch 1 requested, 2 served" in (await wires.report(BatchFailed)).error

    story(body)


def test_an_order_for_another_process_of_this_name_is_ignored() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(Dispatch("here", "tcp://before", 1, 1, (TaskKey(0, 1),), 0, 0, 1, 1))
        here.instruct(dispatch(2, 1, [(1, 1)]))
        assert [s.partition for s in (await wires.report(BatchDone)).results] == [1]

    story(body)


def test_what_the_application_raises_reaches_the_controller_as_one_line() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(dispatch(1, 1, [(0, 1)]))
        failed = await wires.report(BatchFailed)
        assert failed.fatal
        assert re.fullmatch(r"test_agent\.py:\d+: ZeroDivisionError: by the user", failed.error)

    story(body, fails=True)


class Disk:
    """A loader that fails so many times before it reads."""

    def __init__(self, failures: int) -> None:
        self.failures, self.reads = failures, 0

    def __call__(self, url: str, partition: int) -> Any:
        self.reads += 1
        if self.reads <= self.failures:
            raise FileNotFoundError(f"{url}/part-{partition:05d}.npz")
        return {"x": np.float64(partition)}


def alone(disk: Disk, body: Callable[[Wires, NodeAgent], Coroutine[Any, Any, None]]) -> None:
    """Run `body` on one agent that reads from `disk`, three times at most."""

    async def run() -> None:
        wires = Wires()
        agent = NodeAgent("here", HERE, CONTROLLER, wires, disk, no_shards, 1, read_again_s=(0.0, 0.0))
        try:
            await body(wires, agent)
        finally:
            await agent.close()

    asyncio.run(run())


def test_a_read_that_fails_in_passing_is_done_again() -> None:
    async def body(wires: Wires, agent: NodeAgent) -> None:
        agent.instruct(LoadPartitions("here", HERE, config(), 1, (2,)))
        assert (await wires.report(NodeReady)).partitions == (2,)

    alone(disk := Disk(2), body)
    assert disk.reads == 3


def test_what_a_later_request_leaves_out_makes_room() -> None:
    async def body(wires: Wires, agent: NodeAgent) -> None:
        agent.instruct(LoadPartitions("here", HERE, config(), 1, (1, 2)))
        assert (await wires.report(NodeReady)).partitions == (1, 2)
        agent.instruct(LoadPartitions("here", HERE, config(), 2, (2, 3)))
        assert set(agent.partitions.data) == {2}, "at once, before more is loaded"
        assert (await wires.report(NodeReady)).partitions == (2, 3)

    alone(disk := Disk(0), body)
    assert disk.reads == 3


def test_a_partition_that_cannot_be_read_makes_the_node_unfit() -> None:
    async def body(wires: Wires, agent: NodeAgent) -> None:
        wires.spoil = lambda op, n: "lost" if n == 1 else ""  # and the report gets through at the second try
        agent.instruct(LoadPartitions("here", HERE, config(), 1, (2,)))
        assert (await wires.report(NodeUnfit)).error == "FileNotFoundError: /part-00002.npz"
        assert not wires.reports

    alone(disk := Disk(3), body)
    assert disk.reads == 3


def test_a_batch_whose_partition_cannot_be_read_is_left_to_others() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here._loader = Disk(10)
        here._read_again_s = (0.0,)
        here.instruct(dispatch(1, 1, [(3, 1)]))
        failed = await wires.report(BatchFailed)
        assert (failed.tasks, failed.fatal) == (((3, 1),), False)
        assert failed.error == "FileNotFoundError: /part-00003.npz"
        assert [type(report) for report in wires.reports] == [NodeUnfit]  # it came before, so that nothing follows
        here.instruct(dispatch(2, 1, [(0, 1)]))  # what it holds it can work on
        await wires.report(BatchDone)

    story(body)


def test_an_application_that_is_not_there_makes_the_node_unfit() -> None:
    async def body(wires: Wires, agent: NodeAgent) -> None:
        agent.instruct(LoadPartitions("here", HERE, JobConfig("job", "nowhere:App", clocks=1), 1, (2,)))
        assert "app 'nowhere:App' cannot be imported on this node" in (await wires.report(NodeUnfit)).error

    alone(Disk(0), body)


def test_an_application_that_cannot_prepare_its_data_fails_the_job() -> None:
    async def body(wires: Wires, agent: NodeAgent) -> None:
        agent._loader = lambda url, p: {"y": np.float64(p)}
        agent.instruct(LoadPartitions("here", HERE, config(), 1, (2,)))
        error = (await wires.report(NodeFailed)).error
        assert re.fullmatch(r"test_agent\.py:\d+: KeyError: 'x'", error)

    alone(Disk(0), body)


# -- shards that move


def take(shard: int, under: int, epoch: int) -> TakeShards:
    """The order that moves a shard from `there` to `here`."""
    return TakeShards("here", HERE, config(), THERE, (shard,), (under,), epoch)


def test_a_shard_moves_with_what_has_come_and_what_comes_late_is_sent_on() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(dispatch(1, 1, [(0, 1)]))  # by the old map
        await wires.report(BatchDone)
        here.instruct(take(1, 1, 2))
        assert (await wires.report(ShardsTaken)).shards == (1,)
        here.instruct(dispatch(2, 1, [(1, 1)]))  # still by the old map: sent to `there`, and on to `here`
        await wires.report(BatchDone)
        assert wires.calls[-2:] == [(THERE, "proteus_push"), (CONTROLLER, "proteus_event")]
        assert values(here, 0, 1) == 3.0
        assert here.server.pull({1: 2}, 1, exact=True)["shards"][1]["w"][0, 0] == 3.0
        assert here.server.stores[1].folded == 2
        wires.calls.clear()
        here.instruct(dispatch(3, 2, [(0, 1)], committed=1))
        await wires.report(BatchDone)
        assert [address for address, _ in wires.calls] == [CONTROLLER], "it knows where the shard is now"

    story(body)


def test_who_comes_for_a_shard_on_its_way_waits_and_what_was_committed_is_read_where_it_was() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.server.expect([1], 2)
        gone = there.server.hand_over({1: 1}, "here", HERE, 2)
        here.instruct(dispatch(1, 1, [(0, 1), (1, 1)]))  # it reads clock 0 at `there`, and cannot push yet
        async with asyncio.timeout(5 * PATIENCE):
            while (THERE, "proteus_push") not in wires.calls:
                await asyncio.sleep(0)
        assert (THERE, "proteus_pull") in wires.calls
        assert not wires.reports
        here.server.take(4, gone["states"], 2)
        await wires.report(BatchDone)
        assert here.server.pull({1: 2}, 1, exact=True)["shards"][1]["w"][0, 0] == 3.0

    story(body)


def test_a_move_that_fails_is_reported_and_can_be_made_again() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        wires.spoil = lambda op, n: "answer lost" if op == "proteus_hand_over" and n == 1 else ""
        here.instruct(take(1, 1, 2))
        failed = await wires.report(ShardsNotTaken)
        assert (failed.shards, failed.epoch) == ((1,), 2)
        assert "answer lost" in failed.error
        here.instruct(dispatch(1, 1, [(0, 1)]))
        assert "epoch 2 requested, None served" in (await wires.report(BatchFailed)).error
        here.instruct(take(1, 1, 3))
        await wires.report(ShardsTaken)
        here.instruct(UpdateShardMap("here", HERE, 2, (OWNERS[0], ShardOwner(1, "here", HERE, 3)), 1))
        here.instruct(dispatch(2, 1, [(0, 2)], map_version=2))
        await wires.report(BatchDone)
        assert here.server.pull({1: 3}, 1, exact=True)["shards"][1]["w"][0, 0] == 1.0

    story(body)


def test_who_is_asked_for_a_shard_that_he_does_not_serve_says_so_and_nothing_moves() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(take(1, 7, 8))
        assert "epoch 7 is not served here" in (await wires.report(ShardsNotTaken)).error
        assert there.server.pull({1: 1}, 0, exact=True)["status"] == "ok"
        assert there.server.hand_over({1: 1}, "late", "tcp://late", 9)["status"] == "ok"
        assert there.server.hand_over({1: 1}, "here", HERE, 8)["status"] == "stale-epoch", "an older move comes late"

    story(body)


def test_what_was_handed_over_is_dropped_when_the_map_says_who_has_it() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(take(1, 1, 2))
        await wires.report(ShardsTaken)
        assert 1 in there.server.stores
        moved = (OWNERS[0], ShardOwner(1, "here", HERE, 2))
        there.instruct(UpdateShardMap("there", THERE, 2, moved, 1))
        assert 1 not in there.server.stores
        assert there.server.pull({1: 1}, 0, exact=True)["owners"] == (moved[1],), "late readers are sent on"

    story(body)


@pytest.mark.parametrize("op", ["proteus_pull", "proteus_push"])
def test_a_server_that_handed_over_may_be_gone_before_the_map_that_says_so_has_come(op: str) -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(take(1, 1, 2))
        await wires.report(ShardsTaken)
        wires.spoil = lambda asked, n: "lost" if asked == op else ""
        here.instruct(dispatch(1, 1, [(0, 1), (1, 1)]))
        async with asyncio.timeout(5 * PATIENCE):
            while sum(asked == op for _, asked in wires.calls) < client._TRIES:
                await asyncio.sleep(0)
        here.instruct(UpdateShardMap("here", HERE, 2, (OWNERS[0], ShardOwner(1, "here", HERE, 2)), 1))
        assert (await wires.report(BatchDone)).clock == 1
        assert not [one for one in wires.reports if isinstance(one, BatchFailed)]
        assert float(here.server.pull({1: 2}, 1, exact=True)["shards"][1]["w"][0, 0]) == 3.0

    story(body)


def test_an_agent_closes_although_what_a_batch_raises_takes_the_place_of_its_cancellation() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        began = asyncio.Event()

        async def raises_when_cancelled(order: Dispatch) -> BatchDone:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ZeroDivisionError("by the user, just then") from None
            raise AssertionError("unreachable")

        here._run = raises_when_cancelled  # type: ignore[method-assign]
        here.instruct(dispatch(1, 1, [(0, 1)]))
        async with asyncio.timeout(5 * PATIENCE):
            await began.wait()
            await here.close()

    story(body)


def test_a_checkpoint_that_cannot_be_read_is_reported_and_fails_no_job() -> None:
    """A newer one may have taken its place meanwhile; or the store is away, and comes back."""

    async def body(wires: Wires, agent: NodeAgent) -> None:
        saved = Checkpoint(7, "jobs/job/checkpoints/clock-7", {})
        agent.instruct(OpenShards("here", HERE, config(), (0, 1), 3, saved))
        report = await wires.report(ShardsNotOpened)
        assert (report.shards, report.epoch) == ((0, 1), 3)
        assert not wires.reports

    alone(Disk(0), body)


def test_an_agent_whose_work_loop_has_died_ends_its_process() -> None:
    """Its heartbeats would go on, and its partitions stay where nobody works on them."""

    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        here._on_failed = ended.set_result

        def spoil(op: str, n: int) -> str:
            if op == "proteus_event":
                raise ValueError("planted")
            return ""

        wires.spoil = spoil
        here.instruct(dispatch(1, 1, [(0, 1)]))
        async with asyncio.timeout(5 * PATIENCE):
            assert (await ended).endswith("ValueError: planted")

    story(body)


def test_a_fault_of_the_agent_reaches_the_controller_as_one_line() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        here._on_failed = ended.set_result

        async def work() -> None:
            raise KeyError("planted")

        here._spawn(work())
        assert (await wires.report(NodeFailed)).error.endswith("KeyError: 'planted'")
        async with asyncio.timeout(5 * PATIENCE):
            assert (await ended).endswith("KeyError: 'planted'")

    story(body)


class Stuck:
    """A disk of which some reads do not return until `let_go` is set."""

    def __init__(self, stuck: set[int]) -> None:
        self.stuck, self.let_go = stuck, threading.Event()

    def __call__(self, url: str, partition: int) -> Any:
        if partition in self.stuck:
            assert self.let_go.wait(20 * PATIENCE)
        return {"x": np.float64(partition)}


def test_a_read_that_does_not_return_holds_up_no_restore_and_is_given_up() -> None:
    disk = Stuck({2})

    async def body(wires: Wires, agent: NodeAgent) -> None:
        agent._blocking = BlockingWork(read_s=1.0)
        agent._shard_loader = lambda name, shard: {"w": np.zeros((2, 1))}
        agent.instruct(LoadPartitions("here", HERE, config(), 1, (2,)))
        saved = Checkpoint(0, "jobs/job/checkpoints/clock-0", {})
        agent.instruct(OpenShards("here", HERE, config(), (0, 1), 3, saved))
        assert (await wires.report(ShardsOpened)).shards == (0, 1)
        unfit = await wires.report(NodeUnfit)
        assert (unfit.error, unfit.again) == ("ReadTimeoutError: the read did not return within 1 s", True)
        disk.stuck.clear()
        agent.instruct(LoadPartitions("here", HERE, config(), 2, (1, 2)))
        assert (await wires.report(NodeReady)).partitions == (1, 2), "on other threads"

    try:
        alone(disk, body)
    finally:
        disk.let_go.set()


def test_an_application_that_prepares_for_long_holds_up_no_read() -> None:
    prepares, let_go = threading.Event(), threading.Event()

    class Slow(Counting):
        def prepare(self, arrays: Any) -> float:
            prepares.set()
            assert let_go.wait(20 * PATIENCE)
            return 1.0

    async def body(wires: Wires, agent: NodeAgent) -> None:
        read: list[int] = []
        agent._loader = lambda url, partition: read.append(partition) or {"x": np.float64(partition)}
        job, _, sharding = await agent._adopt(config())
        agent._job = job, Slow(), sharding
        first, second = (asyncio.ensure_future(agent.partitions.get(number)) for number in (0, 1))
        async with asyncio.timeout(5 * PATIENCE):
            while not (prepares.is_set() and len(read) == 2):
                await asyncio.sleep(0.001)
        assert not first.done()
        let_go.set()
        assert await asyncio.gather(first, second) == [1.0, 1.0]

    alone(Disk(0), body)
