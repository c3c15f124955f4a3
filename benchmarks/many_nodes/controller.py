"""Benchmark `controller`: what a clock and a tick cost the controller, by the number of nodes.

The nodes are virtual (`virtual_nodes`); the controller and its shell are real. Seconds are those of the process's
CPU, so that other programs beside it hardly change them. A clock is all that follows from every node's report of its
last one: the reports, the common clock, the dispatches, the replication round, and the delivery of all messages.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.many_nodes.virtual_nodes import VirtualCluster

NODES = (64, 128, 256, 512, 1024, 2048, 4096)
#: Aims for `_AIM_NODES` nodes, in seconds, and for the slope of log time over log nodes.
_AIM_NODES, CLOCK_AIM_S, TICK_AIM_S, SLOPE_AIM = 1024, 0.3, 0.05, 1.1
_WARM, _CLOCKS, _TICKS = 2, 5, 5


@dataclass(frozen=True)
class ControllerTimes:
    """CPU seconds of the controller for each clock and each tick of a job on `nodes` nodes."""

    nodes: int
    clocks: list[float]
    ticks: list[float]


def run(scratch: Path, nodes: tuple[int, ...] = ()) -> list[Figure]:
    """Measure every number of nodes, bulk synchronous, and with a staleness of 1."""
    del scratch
    figures: list[Figure] = []
    for staleness in (0, 1):
        found = []
        for n in nodes or NODES:
            found.append(asyncio.run(times(n, staleness)))
            figures += _of(found[-1], staleness)
        if len(found) > 1:
            figures += _slopes(found, staleness)
    return figures


async def times(n: int, staleness: int = 0) -> ControllerTimes:
    """Return the times of one job."""
    cluster = VirtualCluster(n, staleness=staleness)
    await cluster.start()
    clocks, ticks = [], []
    try:
        for number in range(_WARM + _CLOCKS):
            reports = cluster.reports(await cluster.instructions())
            gc.collect()  # of the nodes' side
            before = cluster.shell.controller.job.history.common
            began = process_time()
            for event, moved in reports:
                await cluster.shell.event(event, event.address, moved)
            received = await cluster.instructions()
            cluster.inbox += received  # for the next clock
            if number >= _WARM:
                clocks.append(process_time() - began)
            if cluster.shell.controller.job.history.common != before + 1:
                raise RuntimeError(f"clock {before + 1} of {n} virtual nodes did not end")
        for _ in range(_TICKS):
            began = process_time()
            await cluster.tick()
            ticks.append(process_time() - began)
    finally:
        await cluster.shell.close()
    return ControllerTimes(n, clocks, ticks)


def slope(nodes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of log seconds over log nodes, by least squares."""
    return float(np.polyfit([math.log(n) for n in nodes], [math.log(s) for s in seconds], 1)[0])


def _of(found: ControllerTimes, staleness: int) -> list[Figure]:
    what = f"controller, {found.nodes} nodes of 4 partitions, staleness {staleness}"
    part = found.nodes / _AIM_NODES
    aim = f"aim, in proportion to that of {_AIM_NODES:,} nodes"
    return [
        figure("controller", f"{what}: CPU of {name}", "s", seconds, [part * aim_s], aim)
        for name, seconds, aim_s in (("a clock", found.clocks, CLOCK_AIM_S), ("a tick", found.ticks, TICK_AIM_S))
    ]


def _slopes(found: Sequence[ControllerTimes], staleness: int) -> list[Figure]:
    nodes = [one.nodes for one in found]
    what = f"controller, {nodes[0]} to {nodes[-1]} nodes, staleness {staleness}"
    by_name = {"a clock": [median(one.clocks) for one in found], "a tick": [median(one.ticks) for one in found]}
    return [
        figure("controller", f"{what}: slope of {name}", "log/log", [slope(nodes, seconds)], [SLOPE_AIM], "at most")
        for name, seconds in by_name.items()
    ]
