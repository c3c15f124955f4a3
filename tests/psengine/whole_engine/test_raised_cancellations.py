"""Users' code that raises what an event loop takes for its own, or what ends a process: the job fails with its line."""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
from typing import Any

import pytest

from proteus_spot import Work
from proteus_spot.psengine.config import JobConfig
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import CLOCKS, SHARDS, run_job
from tests.support.small_apps import PARTITIONS, Descent

RAISED = {
    "asyncio": asyncio.CancelledError,
    "futures": concurrent.futures.CancelledError,
    "generator": GeneratorExit,
    "iteration": StopIteration,
    "time": TimeoutError,
    "exit": SystemExit,
    "interrupt": KeyboardInterrupt,
}


class Raising(Descent):
    """It raises an exception of a name at a place, as late as clock 3."""

    def __init__(self, what: str, where: str) -> None:
        self._what, self._where = RAISED[what], where

    def run(self, data: Any, params: Any, clock: int) -> Work:
        if self._where == "run" and clock == 3:
            raise self._what("enough")
        return super().run(data, params, clock)

    def rows(self, data: Any, clock: int) -> dict[str, Any]:
        if self._where == "rows" and clock == 3:
            raise self._what("enough")
        return {}

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        if self._where == "evaluate":
            raise self._what("enough")
        return {}


@pytest.mark.parametrize("where", ["run", "rows", "evaluate"])
@pytest.mark.parametrize("what", RAISED)
def test_the_job_fails_with_the_line(what: str, where: str) -> None:
    cluster = WiredCluster(0, Trouble())
    app = f"{__name__}:Raising"
    config = JobConfig(
        "job", app, {"what": what, "where": where}, n_partitions=PARTITIONS, n_shards=SHARDS, clocks=CLOCKS
    )
    run_job(cluster, config, ("r1", "t1"), limit_s=500.0)
    controller = cluster.shell.controller
    assert controller.job.state == "failed"
    assert re.search(rf"test_raised_cancellations\.py:\d+: .*{RAISED[what].__name__}: enough", controller.job.reason)
