"""Seconds of a clock on one, two, four and eight nodes, for eight workers whose steps wait a given time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.nets.waiting import WaitingNet
from proteus_spot.benchmarks.training.through_engine import trained

WORKERS, COUNTS, CLOCKS = 8, (1, 2, 4, 8), 6
#: Seconds of a worker's steps in a clock.
TASK_S = 2.5
_SIZE, _LOCAL_STEPS = 100_000, 5
#: Share of the ideal speed that is asked.
_ASKED = 0.95
_APP = f"{WaitingNet.__module__}:{WaitingNet.__name__}"


def run(
    scratch: Path, counts: Sequence[int] = COUNTS, clocks: int = CLOCKS, task_s: float = TASK_S
) -> Iterator[Figure]:
    """Measure."""
    params = {"size": _SIZE, "workers": WORKERS, "local_steps": _LOCAL_STEPS, "step_s": task_s / _LOCAL_STEPS}
    for count in counts:
        nodes = [("r1", "reliable"), *((f"t{number}", "transient") for number in range(1, count))]
        parts = [{"x": np.zeros((64, 1), np.float32)} for _ in range(WORKERS)]
        result, _ = trained(
            scratch / str(count), _APP, params, parts, parts[0], clocks, n_shards=2, kind="arrays", nodes=nodes
        )
        what = f"a clock of {WORKERS} workers on {count} nodes"
        seconds = result["seconds_by_clock"][1:]  # the first one begins before all nodes have read the model
        yield figure(
            "nets", what, "s", seconds, [task_s * WORKERS / count], "the ideal", "simulated steps", most=1 / _ASKED
        )
