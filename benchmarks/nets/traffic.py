"""Bytes of a clock, read, pushed and kept in other places, on two nodes of one worker each.

What a node has itself does not travel, so that the figures may be below what is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.nets.waiting import WaitingNet
from proteus_spot.benchmarks.training.through_engine import NODES, trained

SIZE, LOCAL_STEPS, CLOCKS = 1_000_000, 5, 8
#: Kinds of bytes that are asked about.
_KINDS = ("read", "push", "copy", "hand_over")
_APP = f"{WaitingNet.__module__}:{WaitingNet.__name__}"


def run(scratch: Path, size: int = SIZE, clocks: int = CLOCKS) -> Iterator[Figure]:
    """Measure."""
    nodes = workers = len(NODES)
    every_step = 8 * size * LOCAL_STEPS * clocks * nodes
    for pushes, moments, most in (
        ("fp32", "reset", 1 / LOCAL_STEPS),
        ("bf16", "reset", 0.75 / LOCAL_STEPS),
        ("fp32", "keep", (1 + 2 * workers / nodes) / LOCAL_STEPS),
    ):
        params: dict[str, Any] = {"size": size, "workers": workers, "local_steps": LOCAL_STEPS, "step_s": 0.05}
        params |= {"pushes": pushes, "moments": moments}
        parts = [{"x": np.zeros((64, 1), np.float32)} for _ in range(workers)]
        folder = scratch / f"{pushes}-{moments}"
        result, _ = trained(folder, _APP, params, parts, parts[0], clocks, n_shards=2, kind="arrays")
        moved = result["bytes_moved"]
        ours = sum(moved.get(kind, 0) for kind in _KINDS)
        by_kind = ", ".join(f"{kind} {moved.get(kind, 0) / 1e6:.1f}" for kind in _KINDS)
        yield figure(
            "nets",
            f"bytes, pushes {pushes}, moments {moments}, H = {LOCAL_STEPS}, {size:,} parameters",
            "MB",
            [ours / 1e6],
            [every_step / 1e6],
            "8 bytes a parameter, step and node",
            f"MB: {by_kind}; {median(result['seconds_by_clock'][1:]):.3f} s a clock",
            most=most,
        )
