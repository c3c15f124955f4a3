"""The engine beside its own kernel: `mlr` on the digits, bulk synchronous, on two nodes of one thread each.

What stands beside it is the same kernel over the same partitions in a bare loop, in two processes of one thread each
that never speak to one another: nobody who trains on two cores can be faster with this kernel.
"""

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.figure import Figure, figure
from infra.blobs import Blobs
from infra.clock import SystemClock
from infra.cluster import ControllerClient, wait_rendezvous
from infra.datasets import part_name, prepare
from infra.processes import Child
from psengine.model import JobConfig

CLOCKS = 60
#: As in `proteus run`.
FEATURES, PARTITIONS, SHARDS = 8192, 16, 4
_JOB = "bench"
_ROUNDS = 3
_PATIENCE_S = 60.0
_ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


def run(scratch: Path) -> list[Figure]:
    """Measure; engine and bare loop take turns."""
    ours, bare, outside = [], [], []
    for number in range(_ROUNDS):
        result, config = _engine(scratch / f"round-{number}")
        ours.append(1e3 * result["seconds"] / CLOCKS)
        outside.append(1e3 * (result["seconds"] - result["kernel_seconds"]) / CLOCKS)
        bare.append(1e3 * _bare(config) / CLOCKS)
    what = f"a clock of mlr, {PARTITIONS} partitions, {FEATURES} features"
    nodes = "1 reliable and 1 transient node"
    told = "the clock less the kernels of the node that had the most"
    return [
        figure("engine", what, "ms", ours, bare, "the bare kernel in 2 processes", nodes),
        figure("engine", "overhead of a clock", "ms", outside, ours, "the clock", told),
    ]


def _engine(path: Path) -> tuple[dict[str, Any], JobConfig]:
    """Return what the engine says of one job, and the job."""
    blobs = Blobs((path / "blobs").as_uri())
    data = prepare(blobs, _JOB, "digits", PARTITIONS, 0)
    params = {
        "n_inputs": data.features,
        "n_classes": data.classes,
        "n_examples": data.rows,
        "features": FEATURES,
        "gamma": 0.1,
        "step": 4.0,
    }
    config = JobConfig(
        job_id=_JOB,
        app="mlr",
        app_params=params,
        data_url=data.data_url,
        n_partitions=PARTITIONS,
        n_shards=SHARDS,
        clocks=CLOCKS,
    )
    children: list[Child] = []
    try:
        children.append(_node(path, blobs.url, "controller", "reliable", "--controller"))
        client = ControllerClient(wait_rendezvous(blobs.url, _JOB, _PATIENCE_S))
        children.append(_node(path, blobs.url, "r1", "reliable"))
        children.append(_node(path, blobs.url, "t1", "transient", "--no-notices"))
        _until(client, children, lambda status: len(status["nodes"]) == 2)
        client.start(config.to_dict())
        status = _until(client, children, lambda status: status["state"] in ("finished", "failed"))
    finally:
        for child in children:
            child.stop()
    if status["state"] == "failed":
        raise RuntimeError(status["reason"])
    return status["result"], config


def _node(path: Path, blob_url: str, name: str, tier: str, *more: str) -> Child:
    command = [sys.executable, "-m", "infra.node", "--job", _JOB, "--blob", blob_url, "--name", name, "--tier", tier]
    return Child([*command, "--host", "127.0.0.1", *more], path / f"{name}.log", {**os.environ, **_ONE_THREAD}).start()


def _until(client: ControllerClient, children: list[Child], done: Any) -> dict[str, Any]:
    clock = SystemClock()
    deadline_s = clock.now_s() + _PATIENCE_S
    while True:
        status = client.status(since_clock=CLOCKS)
        if done(status):
            return status
        for child in children:
            child.check()
        if clock.now_s() > deadline_s:
            raise TimeoutError(f"the engine did not get there: {status}")
        clock.wait_until(clock.now_s() + 0.2)  # seldom: the nodes have both cores


def _bare(config: JobConfig) -> float:
    """Return the seconds that two processes take for all clocks, each over its half of the partitions."""
    context = multiprocessing.get_context("spawn")  # BLAS reads its thread count when it is loaded
    halves = [range(side, config.n_partitions, 2) for side in (0, 1)]
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(_ONE_THREAD)
    try:
        pipes = [context.Pipe() for _ in halves]
        workers = [
            context.Process(target=_loop, args=(config, list(half), pipe[1]), daemon=True)
            for half, pipe in zip(halves, pipes, strict=True)
        ]
        for worker in workers:
            worker.start()
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


def _loop(config: JobConfig, partitions: list[int], far: Connection) -> None:
    import numpy as np

    from psengine.apps.base import resolve

    app = resolve(config.app, config.app_params)
    blobs = Blobs(config.data_url)
    parts = [app.prepare(blobs.read_npz(part_name(p))) for p in partitions]
    (table,) = app.tables()
    weights: Any = np.zeros((table.n_rows, table.n_cols), np.float32)
    app.run(parts[0], {"weights": weights}, 1)
    far.send("ready")
    far.recv()
    for clock in range(1, CLOCKS + 1):
        steps = [app.run(part, {"weights": weights}, clock).updates["weights"] for part in parts]
        for step in steps:
            weights = weights + step
    far.send("done")
