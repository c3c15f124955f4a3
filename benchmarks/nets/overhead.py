"""Seconds of a clock beyond its local steps, and the bytes that travel, on two nodes of one task at a time.

The steps are waits (`waiting`), so that the figure does not depend on how many cores a machine has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.nets.waiting import WaitingNet
from proteus_spot.benchmarks.training.through_engine import NODES, trained

#: (parameters, asked share of a clock).
SIZES = ((1_000_000, 0.01), (10_000_000, 0.10))
CLOCKS = 8
_APP = f"{WaitingNet.__module__}:{WaitingNet.__name__}"


def run(scratch: Path, sizes: Sequence[tuple[int, float]] = SIZES, clocks: int = CLOCKS) -> Iterator[Figure]:
    """Measure."""
    for size, asked in sizes:
        yield from _of(scratch / str(size), size, asked, clocks)


def _of(scratch: Path, size: int, asked: float, clocks: int) -> Iterator[Figure]:
    net = WaitingNet(size=size)
    parts = [{"x": np.zeros((64, 1), np.float32)} for _ in range(net.workers)]
    result, _ = trained(scratch, _APP, {"size": size}, parts, parts[0], clocks, n_shards=2, kind="arrays")
    steps_s = net.workers / len(NODES) * net.local_steps * net.step_s
    # The first clock begins before all nodes have read the model.
    beyond = [each - steps_s for each in result["seconds_by_clock"][1:]]
    what = f"a clock beyond its local steps, {size:,} parameters, {net.workers} workers on {len(NODES)} nodes"
    yield figure("nets", what, "s", beyond, [steps_s], "the local steps", "waits of a given time", most=asked)
    moved = result["bytes_moved"]
    every_step = 8 * size * net.local_steps * clocks * len(NODES)
    yield figure(
        "nets",
        f"read and pushed, {size:,} parameters, H = {net.local_steps}",
        "MB",
        [(moved.get("read", 0) + moved.get("push", 0)) / 1e6],
        [every_step / 1e6],
        "8 bytes a parameter, step and node",
        f"1/H is {1 / net.local_steps:g}; what a node has itself does not travel",
    )
