"""What an agent loads: partitions, checkpoints and the application, and what happens if it cannot."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any, NoReturn

import numpy as np

from proteus_spot.psengine.config import JobConfig, JobError
from proteus_spot.psengine.protocol.checkpoint import Checkpoint
from proteus_spot.psengine.protocol.events import (
    BatchDone,
    BatchFailed,
    CheckpointDamaged,
    NodeFailed,
    NodeReady,
    NodeUnfit,
    ShardsNotOpened,
    ShardsOpened,
)
from proteus_spot.psengine.protocol.instructions import LoadPartitions, OpenShards
from proteus_spot.psengine.worker.agent import NodeAgent
from proteus_spot.psengine.worker.blocking_work import BlockingWork
from tests.support.agents import HERE, Counting, Disk, Wires, alone, config, dispatch, story
from tests.support.timeouts import PATIENCE


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
        assert re.fullmatch(r"agents\.py:\d+: KeyError: 'x'", error)

    alone(Disk(0), body)


def test_a_checkpoint_that_cannot_be_read_is_reported_and_fails_no_job() -> None:
    """A newer one may have taken its place meanwhile; or the store is away, and comes back."""

    async def body(wires: Wires, agent: NodeAgent) -> None:
        saved = Checkpoint(7, "jobs/job/checkpoints/clock-7", {})
        agent.instruct(OpenShards("here", HERE, config(), (0, 1), 3, saved))
        report = await wires.report(ShardsNotOpened)
        assert (report.shards, report.epoch) == ((0, 1), 3)
        assert not wires.reports

    alone(Disk(0), body)


def test_a_damaged_checkpoint_is_reported_under_its_name() -> None:
    async def body(wires: Wires, agent: NodeAgent) -> None:
        def damaged(name: str, number: int) -> NoReturn:
            raise JobError(f"{name}/{number}: its content differs")

        agent._shard_loader = agent._state_loader = damaged
        saved = Checkpoint(7, "jobs/job/checkpoints/clock-7", {})
        agent.instruct(OpenShards("here", HERE, config(), (0, 1), 3, saved))
        report = await wires.report(CheckpointDamaged)
        assert (report.name, report.error) == (saved.name, f"JobError: {saved.name}/0: its content differs")
        assert not wires.reports

    alone(Disk(0), body)


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
