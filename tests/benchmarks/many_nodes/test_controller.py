"""The virtual nodes of the benchmark `controller`."""

import asyncio
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any, Self

import pytest

from proteus_spot.benchmarks.many_nodes.controller import ControllerTimes, _slopes, slope, times
from proteus_spot.benchmarks.many_nodes.virtual_nodes import VirtualCluster
from proteus_spot.psengine.protocol.instructions import BackUp, NodeInstruction


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_clock_of_virtual_nodes_is_a_whole_one(staleness: int) -> None:
    async def body() -> dict[str, int]:
        cluster = VirtualCluster(32, staleness=staleness)
        await cluster.start()
        before = cluster.received["Dispatch"]
        controller = cluster.shell.controller
        first = controller.job.history.common
        for _ in range(3):
            await cluster.answer(await cluster.instructions())
        received = await cluster.instructions()
        assert controller.job.history.common == first + 3
        assert {type(instruction).__name__ for instruction in received} <= {"Dispatch", "BackUp"}
        assert cluster.received["Dispatch"] >= before + 3 * 31, "stage 3: the transient nodes work"
        await cluster.shell.close()
        return cluster.received

    received = asyncio.run(body())
    assert received["BackUp"] >= 16, "half of them serve, and have what they serve copied"


def test_the_messages_do_not_depend_on_the_speed_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop stands still for a minute while the first replication round is under way, which rests as long."""

    class Stalling(VirtualCluster):
        async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
            if isinstance(message["instruction"], BackUp) and not stalled_s:
                stalled_s.append(60.0)
            return await super().call(address, op, deadline_s, **message)

    async def body(cluster: VirtualCluster) -> dict[str, int]:
        await cluster.start()
        for _ in range(3):
            await cluster.answer(await cluster.instructions())
        await cluster.instructions()
        await cluster.shell.close()
        return cluster.received

    stalled_s: list[float] = []
    time = asyncio.BaseEventLoop.time
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda loop: time(loop) + sum(stalled_s))
    undisturbed = asyncio.run(body(VirtualCluster(32)))
    assert asyncio.run(body(Stalling(32))) == undisturbed
    assert stalled_s == [60.0]


def test_every_clock_and_tick_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    reports = VirtualCluster.reports

    def recorded(cluster: VirtualCluster, instructions: list[NodeInstruction]) -> list[tuple[Any, Mapping[str, int]]]:
        found = reports(cluster, instructions)
        events.extend(event for event, _ in found)
        return found

    monkeypatch.setattr(VirtualCluster, "reports", recorded)
    found = asyncio.run(times(32))
    assert len(events) == len(set(events)) > 0, "nothing is reported twice"
    assert (len(found.clocks), len(found.ticks)) == (5, 5)
    assert min(found.clocks + found.ticks) > 0.0


def test_the_slope_is_that_of_the_logarithms() -> None:
    assert slope([64, 128, 256], [1.0, 4.0, 16.0]) == pytest.approx(2.0)
    figures = _slopes([ControllerTimes(n, [n * 1.0], [n * 0.5]) for n in (64, 4096)], 0)
    assert [one.ours for one in figures] == pytest.approx([1.0, 1.0])


class Steps:
    """Counts the interpreter's steps: a measure of work that no other program disturbs."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        sys.settrace(self._enter)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.count += 1
        return self._step


async def steps(n: int, staleness: int) -> tuple[int, int]:
    """Return the steps of a clock and of a tick of `n` nodes."""
    cluster = VirtualCluster(n, staleness=staleness)
    await cluster.start()
    common = cluster.shell.controller.job.history.common
    reports = cluster.reports(await cluster.instructions())
    with Steps() as clock:
        for event, moved in reports:
            await cluster.shell.event(event, event.address, moved)
    assert cluster.shell.controller.job.history.common == common + 1
    with Steps() as tick:
        await cluster.tick()
    await cluster.shell.close()
    return clock.count, tick.count


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_clock_and_a_tick_cost_the_controller_as_much_a_node_however_many_there_are(staleness: int) -> None:
    few, many = (asyncio.run(steps(n, staleness)) for n in (64, 256))
    for name, of_few, of_many in zip(("clock", "tick"), few, many, strict=True):
        assert of_many < 4.4 * of_few, f"a {name} of 256 nodes takes {of_many:,} steps, one of 64 {of_few:,}"
