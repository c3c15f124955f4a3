"""The upper limit on two cores: an application's kernel in two processes of one thread each, without the engine."""

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from time import perf_counter
from typing import Any

import numpy as np

from proteus_spot.benchmarks.training.through_engine import Arrays

_PATIENCE_S = 60.0
_ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


def bare_seconds(
    app: str, params: Mapping[str, Any], parts: Sequence[Arrays], clocks: int, in_step: bool = False
) -> float:
    """Return the seconds that two processes take for all clocks, each over its half of the partitions.

    Each has private tables, and sums a clock's updates as nodes do.

    Parameters
    ----------
    app : an application whose initial tables are zeros, and whose micro-tasks read and write all of them.
    in_step : whether each clock begins in both processes together.
    """
    context = multiprocessing.get_context("spawn")  # BLAS reads its thread count when it is loaded
    barrier = context.Barrier(2) if in_step else None
    middle = len(parts) // 2
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(_ONE_THREAD)
    try:
        pipes = [context.Pipe() for _ in range(2)]
        workers = [
            context.Process(target=_loop, args=(app, params, half, clocks, pipe[1], barrier), daemon=True)
            for half, pipe in zip((parts[:middle], parts[middle:]), pipes, strict=True)
        ]
        for worker, (_, far) in zip(workers, pipes, strict=True):
            worker.start()
            far.close()  # so that the death of the process is detected
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    try:
        for near, _ in pipes:
            near.recv()  # it has loaded its partitions
        began = perf_counter()
        for near, _ in pipes:
            near.send("go")
        for near, _ in pipes:
            near.recv()
        return perf_counter() - began
    finally:
        for worker in workers:
            worker.join(_PATIENCE_S)
            worker.kill()


def _leaf(steps: Sequence[Any], block: tuple[int, int]) -> Any:
    return steps[block[0]] if block[1] - block[0] == 1 else None


def _loop(
    name: str, params: Mapping[str, Any], raw: Sequence[Arrays], clocks: int, far: Connection, barrier: Barrier | None
) -> None:
    from proteus_spot.infra.nodes.malloc import retain_freed_memory
    from proteus_spot.psengine.apps.base import Application
    from proteus_spot.psengine.apps.registry import resolve
    from proteus_spot.psengine.tables.row_updates import added
    from proteus_spot.psengine.tables.tree_sum import tree_sum

    retain_freed_memory()  # as nodes do
    app = resolve(name, params)
    assert not isinstance(app, Application), "its task is a step on a partition"
    parts = [app.prepare(dict(part)) for part in raw]
    tables: dict[str, Any] = {spec.name: np.zeros((spec.n_rows, spec.n_cols), np.float32) for spec in app.tables()}
    app.run(parts[0], tables, 1)
    far.send("ready")
    far.recv()
    for clock in range(1, clocks + 1):
        steps = [app.run(part, tables, clock).updates for part in parts]
        total = tree_sum((0, len(steps)), partial(_leaf, steps))
        tables |= {name: added(tables[name], update) for name, update in (total or {}).items()}
        if barrier is not None:
            barrier.wait()
    far.send("done")
