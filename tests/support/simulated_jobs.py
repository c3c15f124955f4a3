"""Jobs on a simulated cluster: run one until it ends, and hold its model against that of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from proteus_spot.nets.application import NetApplication
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.state import ENDED
from proteus_spot.psengine.single_process import initial, train_alone
from proteus_spot.psengine.tables.update_rules import drop_optimizer_state
from tests.support.controller_invariants import check_invariants
from tests.support.simulated_cluster import WiredCluster
from tests.support.small_apps import PARTITIONS, TOPICS
from tests.support.virtual_time import run_virtual

CLOCKS, SHARDS = 25, 3
#: Seconds of virtual time after which a job is taken to hang.
LIMIT_S = 100_000.0

Meanwhile = Callable[[WiredCluster], Awaitable[None]]


def job(app: str, **config: object) -> JobConfig:
    """Return the configuration of one of the small applications, or of `module:Class`."""
    fields = {"n_partitions": PARTITIONS, "n_shards": SHARDS, "clocks": CLOCKS, "start_patience_s": 5.0} | config
    return JobConfig("job", app if ":" in app else f"tests.support.small_apps:{app}", **fields)


def run_job(
    cluster: WiredCluster,
    config: JobConfig,
    nodes: Sequence[str],
    meanwhile: Meanwhile | None = None,
    limit_s: float = LIMIT_S,
) -> None:
    """Run a job until it ends.

    `nodes` are the names of its first nodes: reliable if they begin with "r", else transient. `meanwhile` runs once the
    job has started; the job is then left to end.
    """

    async def story() -> None:
        cluster.open()
        try:
            for name in nodes:
                cluster.start(name, "reliable" if name.startswith("r") else "transient")
            await cluster.shell.start(config.to_dict())
            if meanwhile is not None:
                await meanwhile(cluster)
            await ended(cluster)
        finally:
            await cluster.close()

    run_virtual(story(), limit_s)


async def started(cluster: WiredCluster) -> None:
    """Wait until the job trains."""
    while cluster.shell.controller.job.progress.started_s is None:
        await asyncio.sleep(0.1)


async def reached(cluster: WiredCluster, clock: int) -> None:
    """Wait until `clock` is complete."""
    while (tasks := cluster.shell.controller.job.tasks) is None or tasks.common < clock:
        await asyncio.sleep(0.02)


async def ended(cluster: WiredCluster) -> None:
    """Wait until the job has ended; the controller's invariants hold at each look."""
    while cluster.shell.controller.job.state not in ENDED:
        await asyncio.sleep(1.0)
        check_invariants(cluster.shell.controller.job)


def finished(cluster: WiredCluster) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the model and the result of a job that has finished without a fault or a lost update."""
    controller, store = cluster.shell.controller, cluster.store
    assert cluster.faults == []
    assert controller.job.state == "finished", controller.job.reason
    assert store.model is not None
    assert store.result is not None
    assert store.result["lost_micro_tasks"] == 0
    return store.model, store.result


def groups_of(app_name: str) -> int:
    """Return the number of groups that a job of a small application has."""
    app = resolve(job(app_name).app, {})
    return app.net.calendar.groups(CLOCKS) if isinstance(app, NetApplication) else CLOCKS


@cache
def undisturbed(app_name: str) -> dict[str, bytes]:
    """Return the bits of each table of a small application, trained in one process."""
    app = resolve(job(app_name).app, {})
    parts = [app.prepare({"x": np.int64(p)}) for p in range(PARTITIONS)]
    tables = drop_optimizer_state(app.tables(), train_alone(app, parts, initial(app, 0, SHARDS), groups_of(app_name)))
    return {name: table.tobytes() for name, table in tables.items()}


def check(cluster: WiredCluster, app: str) -> None:
    """Check that the job of a small application has finished, with the model of one process unless reads were stale."""
    model, result = finished(cluster)
    config = cluster.shell.controller.job.config
    if config is not None and config.staleness:
        topics = model["assigned"][:, 0]
        assert topics.min() > 0, "every token has a topic"
        assert model["topics"][:, 0].tolist() == np.bincount(topics - 1, minlength=TOPICS).tolist()
    else:
        assert {name: table.tobytes() for name, table in model.items()} == undisturbed(app)
    assert sum(result["micro_tasks_done"].values()) == groups_of(app) * PARTITIONS
    assert all(sorted(shards) == list(range(SHARDS)) for shards in cluster.store.shards.values()), (
        "each checkpoint is whole"
    )
