"""Prepared partitions that are sent from the memory of another node."""

import asyncio
from collections import Counter
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.protocol.events import NodeReady
from proteus_spot.psengine.protocol.instructions import LoadPartitions
from proteus_spot.psengine.telemetry.byte_counts import link
from proteus_spot.psengine.worker.agent import NodeAgent
from proteus_spot.psengine.worker.hosts.partition_host import PartitionHost, from_message, to_message
from tests.support.agents import HERE, THERE, Counting, Wires, config, story


class Lines(Counting):
    """Its data are an array and an object."""

    def prepare(self, arrays: Any) -> Any:
        return {"lines": np.arange(5000.0) + float(arrays["x"]), "name": f"part {arrays['x']}"}


class Unpicklable(Counting):
    def prepare(self, arrays: Any) -> Any:
        return lambda: float(arrays["x"])


@pytest.mark.parametrize(
    ("app", "spoilt", "from_memory"),
    [("Lines", "", True), ("Lines", "lost", False), ("Unpicklable", "", False)],
)
def test_a_partition_comes_from_memory_and_else_from_storage(app: str, spoilt: str, from_memory: bool) -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        reads: list[int] = []
        load = here._loader
        here._loader = lambda url, partition: reads.append(partition) or load(url, partition)
        there.instruct(LoadPartitions("there", THERE, here._job[0], 7, (3,)))  # type: ignore[index]
        await wires.report(NodeReady)
        wires.spoil = lambda op, n: spoilt if op == "proteus_partition" else ""
        order = LoadPartitions("here", HERE, here._job[0], 7, (2, 3), ((3, THERE),))  # type: ignore[index]
        here.instruct(order)
        assert (await wires.report(NodeReady)).partitions == (2, 3)
        assert reads == ([2] if from_memory else [2, 3])
        if from_memory:
            (mine, theirs) = (agent.partitions.data[3] for agent in (here, there))
            assert mine is not theirs
            assert mine["lines"].tobytes() == theirs["lines"].tobytes()
            assert mine["name"] == theirs["name"]
            assert here.moved[link(THERE)] >= 40_000
        else:
            assert link(THERE) not in here.moved

    story(body, app=f"tests.psengine.worker.hosts.test_partition_host:{app}")


def test_a_node_that_does_not_have_the_partition_sends_none() -> None:
    async def body(wires: Wires, here: NodeAgent, there: NodeAgent) -> None:
        assert await there.partitions.sent(3) is None
        here.instruct(LoadPartitions("here", HERE, config(), 7, (3,), ((3, THERE),)))
        assert (await wires.report(NodeReady)).partitions == (3,)

    story(body)


def test_arrays_are_written_to_if_they_were() -> None:
    fixed, free = np.arange(6).reshape(2, 3).T, np.zeros(0, np.float32)
    fixed.flags.writeable = False
    head, parts = to_message([fixed, free, fixed[::2]])
    for buffer, _ in parts:
        assert buffer.dtype == np.uint8
    received = from_message((head, [(buffer.copy(), readonly) for buffer, readonly in parts]))
    assert [array.flags.writeable for array in received[:2]] == [False, True]
    assert received[0].flags.f_contiguous
    assert all(np.array_equal(got, sent) for got, sent in zip(received, [fixed, free, fixed[::2]], strict=True))


def test_a_task_that_is_given_up_leaves_the_read_to_others() -> None:
    async def body() -> None:
        reads, may_end = list[int](), asyncio.Event()

        async def read(partition: int) -> str:
            reads.append(partition)
            await may_end.wait()
            return f"part {partition}"

        host = PartitionHost(None, read, None, Counter())  # type: ignore[arg-type] # nothing is sent
        given_up = asyncio.ensure_future(host.get(3))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        other = asyncio.ensure_future(host.get(3))
        await asyncio.sleep(0)
        may_end.set()
        assert await other == "part 3"
        assert reads == [3]
        assert (host.data, host.loading) == ({3: "part 3"}, {})

    asyncio.run(body())


def test_a_read_that_fails_is_begun_again() -> None:
    async def body() -> None:
        answers = [OSError("the disk is gone"), "part 3"]

        async def read(partition: int) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, OSError):
                raise answer
            return answer

        host = PartitionHost(None, read, None, Counter())  # type: ignore[arg-type] # nothing is sent
        with pytest.raises(OSError, match="gone"):
            await host.get(3)
        assert await host.get(3) == "part 3"

    asyncio.run(body())
