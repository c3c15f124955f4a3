"""Several batches in flight on a node."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np

from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.protocol.events import BatchDone, BatchFailed, ShardsOpened
from proteus_spot.psengine.protocol.instructions import (
    Dispatch,
    OpenShards,
    RecallTasks,
    ShardOwner,
    UpdateShardMap,
)
from proteus_spot.psengine.worker.agent import NodeAgent
from tests.support.agents import HERE, OWNERS, THERE, Counting, Wires, called, dispatch, story
from tests.support.timeouts import PATIENCE


class Owning(Counting):
    """Each partition has a row of its own."""

    def tables(self) -> tuple[TableSpec, ...]:
        return (*super().tables(), TableSpec("own", 4, 1, "float64", own=True))

    def rows(self, data: float, group: int) -> dict[str, Any]:
        return {"own": np.array([int(data)])}

    def run(self, data: float, params: Any, group: int) -> Work:
        return Work({"w": np.zeros((4, 1)), "own": np.ones((1, 1))}, 0.0, 1)


class Gate:
    """It holds the calls of one operation up."""

    def __init__(self, wires: Wires, op: str) -> None:
        self.calls, self.open, call = 0, asyncio.Event(), wires.call

        self.passes: dict[int, asyncio.Event] = {}

        async def held(address: str, asked: str, deadline_s: float, **message: Any) -> object:
            if called(asked, message) == op:
                self.calls += 1
                alone = self.passes.setdefault(self.calls, asyncio.Event())
                await asyncio.wait(
                    [asyncio.ensure_future(self.open.wait()), asyncio.ensure_future(alone.wait())],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            return await call(address, asked, deadline_s, **message)

        wires.call = held  # type: ignore[method-assign]

    def let_through(self, call: int) -> None:
        self.passes[call].set()

    async def has(self, calls: int) -> None:
        async with asyncio.timeout(5 * PATIENCE):
            while self.calls < calls:
                await asyncio.sleep(0.001)


def test_a_batch_runs_while_another_one_pushes() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        gate = Gate(wires, "proteus_push")
        here.instruct(dispatch(1, 1, [(0, 1)], read="parent"))
        await gate.has(1)
        here.instruct(dispatch(2, 1, [(1, 1)], read="parent"))
        await gate.has(2)
        gate.open.set()
        assert {(await wires.report(BatchDone)).results[0].partition for _ in range(2)} == {0, 1}

    story(body)


def test_batches_of_one_executor_follow_each_other_and_are_reported_in_order() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        gate = Gate(wires, "proteus_push")
        here.instruct(dispatch(1, 1, [(0, 1), (1, 1)], read="parent"))
        await gate.has(1)
        here.instruct(dispatch(2, 1, [(1, 2)], read="parent"))
        here.instruct(dispatch(3, 1, [(2, 1)], read="parent"))
        await gate.has(2)
        assert not wires.reports
        gate.open.set()
        reports = [await wires.report(BatchDone) for _ in range(3)]
        attempts = [task.attempt for report in reports for task in report.results if task.partition == 1]
        assert attempts == [1, 2]
        assert gate.calls == 3

    story(body)


def test_a_rollback_gives_up_every_batch_in_flight() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        gate = Gate(wires, "proteus_push")
        here.instruct(dispatch(1, 1, [(0, 1)], read="parent"))
        here.instruct(dispatch(2, 1, [(1, 1)], read="parent"))
        here.instruct(dispatch(3, 2, [(1, 1)], read="parent"))
        await gate.has(2)
        here.instruct(UpdateShardMap("here", HERE, 2, OWNERS, 2))
        failed = [await wires.report(BatchFailed) for _ in range(3)]
        assert sorted(report.group for report in failed) == [1, 1, 2]
        assert not any(report.fatal for report in failed)

    story(body)


def test_rows_of_batches_that_are_given_up_are_reported_with_the_next_ones() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        gate = Gate(wires, "proteus_push")
        for number in (1, 2):
            here.instruct(dispatch(number, 1, [(number - 1, 1)], read="parent"))
            await gate.has(number)
        here.instruct(UpdateShardMap("here", HERE, 2, OWNERS, 2))
        for _ in range(2):
            await wires.report(BatchFailed)
        gate.open.set()
        owners = tuple(ShardOwner(owner.shard, owner.node, owner.address, 2) for owner in OWNERS)
        for agent, name, address, shard in ((here, "here", HERE, 0), (there, "there", THERE, 1)):
            agent.instruct(OpenShards(name, address, here._job[0], (shard,), 2))  # type: ignore[index]
            await wires.report(ShardsOpened)
        here.instruct(UpdateShardMap("here", HERE, 3, owners, 2))
        again = {"read": "parent", "map_version": 3, "generation": 2}
        here.instruct(dispatch(3, 1, [(0, 2), (1, 2)], **again))
        reported = {task.partition: task.own_rows for task in (await wires.report(BatchDone)).results}
        assert {part: [*rows["own"]] for part, rows in reported.items()} == {0: [0], 1: [1]}
        here.instruct(dispatch(4, 2, [(0, 1)], **again, completions=4, committed=1))
        assert (await wires.report(BatchDone)).results[0].own_rows is None, "they are the same"

    story(body, app="tests.psengine.worker.test_node_scheduler:Owning")


def test_rows_that_are_being_read_are_not_read_again() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        gate = Gate(wires, "Committed")
        here.instruct(dispatch(1, 1, [(0, 1)], read="parent"))
        await gate.has(1)
        here.instruct(dispatch(2, 1, [(1, 1)], read="parent"))
        for _ in range(20):
            await asyncio.sleep(0)
        gate.open.set()
        for _ in range(2):
            await wires.report(BatchDone)
        assert gate.calls == 1
        here.instruct(dispatch(3, 2, [(2, 1)], read="parent", completions=2, committed=0))
        await wires.report(BatchDone)
        assert gate.calls == 2, "what it must see is newer"

    story(body)


def follow(batch: int, group: int, tasks: list[tuple[int, int]], follows: tuple[int, int]) -> Dispatch:
    order = dispatch(batch, group, tasks, read="parent", completions=0, committed=0)
    return replace(order, tasks=tuple(replace(task, follows=follows) for task in order.tasks))


def test_a_batch_that_follows_another_one_runs_while_that_one_pushes() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        gate = Gate(wires, "proteus_push")
        here.instruct(dispatch(1, 1, [(0, 1), (1, 1)], read="parent"))
        here.instruct(follow(2, 2, [(0, 1), (1, 1)], (1, 1)))
        await gate.has(2)
        gate.let_through(2)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not wires.reports, "the second is reported after the first"
        gate.open.set()
        assert [(await wires.report(BatchDone)).group for _ in range(2)] == [1, 2]

    story(body)


def test_a_batch_begins_in_the_state_that_the_one_before_leaves() -> None:
    """Each task adds its group to the rows of its partition, which are the state of its partition."""

    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(dispatch(1, 1, [(0, 1)], read="parent"))
        here.instruct(follow(2, 2, [(0, 1)], (1, 1)))
        here.instruct(follow(3, 3, [(0, 1)], (2, 1)))
        for _ in range(3):
            assert (await wires.report(BatchDone)).results[0].has_state
        states = [here.host.states.find(0, group, 1) for group in (1, 2, 3)]
        assert [state.arrays["mine"][0, 0] for state in states if state is not None] == [1.0, 3.0, 6.0]

    story(body, app="tests.psengine.worker.test_node_scheduler:Keeping")


def test_a_batch_whose_predecessor_is_given_up_or_is_not_here_is_given_up() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        here.instruct(follow(1, 2, [(1, 1)], (1, 1)))
        assert "the tasks before those of partitions [1] were given up" in (await wires.report(BatchFailed)).error
        here.instruct(dispatch(2, 1, [(0, 1)], read="parent", map_version=9))
        here.instruct(follow(3, 2, [(0, 1)], (1, 1)))
        failed = [await wires.report(BatchFailed) for _ in range(2)]
        assert [report.group for report in failed] == [1, 2]
        assert "the tasks before those of partitions [0] were given up" in failed[1].error

    story(body)


class Keeping(Counting):
    """Rows of the partition, to which each group adds its number."""

    def tables(self) -> tuple[TableSpec, ...]:
        return (*super().tables(), TableSpec("mine", 4, 1, "float64", own=True))

    def rows(self, data: float, group: int) -> dict[str, slice]:
        return {"mine": slice(int(data), int(data) + 1)}

    def run(self, data: float, params: Any, group: int) -> Work:
        return Work({"mine": np.full((1, 1), float(group))}, 0.0, 1)


def test_what_has_not_begun_is_given_back_and_what_has_begun_is_completed() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        reads, pushes = Gate(wires, "Committed"), Gate(wires, "proteus_push")
        here.instruct(dispatch(1, 1, [(0, 1)], read="parent"))
        await reads.has(1)
        here.instruct(follow(2, 2, [(0, 1)], (1, 1)))
        here.instruct(RecallTasks("here", HERE, 2))
        back = await wires.report(BatchFailed)
        assert (back.group, back.tasks, back.recalled, back.fatal) == (2, ((0, 1),), True, False)
        reads.open.set()
        await pushes.has(1)
        here.instruct(follow(3, 2, [(0, 2)], (1, 1)))
        await pushes.has(2)
        here.instruct(RecallTasks("here", HERE, 2))
        pushes.open.set()
        done = [await wires.report(BatchDone) for _ in range(2)]
        assert [(report.group, report.results[0].attempt) for report in done] == [(1, 1), (2, 2)]
        assert not wires.reports

    story(body)
