"""The staleness that a task meets reaches the application, and is that of what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.apps.residents import as_application
from proteus_spot.psengine.config import JobConfig, TableSpec
from proteus_spot.psengine.tables.row_sets import RowBlock
from proteus_spot.psengine.worker.task_parameters import TaskParameters
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import finished, run_job

PARTITIONS, CLOCKS, STALENESS = 6, 30, 2


class Meets:
    """Counts completed tasks by clock, and tasks by the staleness that they met."""

    def tables(self) -> tuple[TableSpec, ...]:
        return TableSpec("done", CLOCKS + 1, 1, "int64"), TableSpec("met", CLOCKS, 1, "int64")

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        return np.zeros((rows[1] - rows[0], 1), np.int64)

    def prepare(self, arrays: Mapping[str, Any]) -> None:
        return None

    def run(self, data: None, params: Mapping[str, Any], clock: int, staleness: int) -> Work:
        whole = params["done"][1 : clock - staleness, 0]
        assert (whole == PARTITIONS).all(), f"clock {clock} was told a staleness of {staleness}: {whole}"
        done, met = np.zeros((CLOCKS + 1, 1), np.int64), np.zeros((CLOCKS, 1), np.int64)
        done[clock] = met[staleness] = 1
        return Work({"done": done, "met": met}, 1.0, 1)

    def evaluate(self, params: Mapping[str, Any], heldout: Mapping[str, Any]) -> dict[str, float]:
        return {}


@pytest.mark.parametrize("staleness", [0, STALENESS])
def test_a_task_is_told_how_stale_what_it_reads_may_be(staleness: int) -> None:
    cluster = WiredCluster(0, Trouble(usual_s=0.05), lambda partition: {}, {})
    app = f"{__name__}:Meets"
    job = JobConfig("job", app, {}, n_partitions=PARTITIONS, n_shards=2, clocks=CLOCKS, staleness=staleness)
    run_job(cluster, job, ("r1", "t1", "t2"), limit_s=500.0)
    model, _ = finished(cluster)
    met = model["met"][:, 0]
    assert met.sum() == PARTITIONS * CLOCKS
    assert met[staleness + 1 :].sum() == 0
    assert (met[1:].sum() > 0) == (staleness > 0)


@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("aware", [False, True])
def test_steps_of_mlr_are_divided_by_one_and_the_staleness(batch: int, aware: bool) -> None:
    rng = np.random.default_rng(0)
    part = {"x": rng.standard_normal((4, 3)).astype(np.float32), "y": np.array([0, 1, 1, 0])}
    sizes = {"n_inputs": 3, "n_classes": 2, "n_examples": 4, "batch": batch, "staleness_aware": aware}
    app = resolve("mlr", sizes)
    data = app.prepare(part)
    weights = np.zeros((4, 2), np.float32)
    executor = as_application(app, lambda table, rows: weights).executor(data, 0, 1)
    spec = app.tables()[0]

    def step(read_group: int) -> Any:
        params = TaskParameters(
            9, {"weights": spec}, {}, {"weights": RowBlock(None, weights)}, _none, read_group=read_group
        )
        executor.run(None, params, rng)
        return params.updates()["weights"]

    fresh, stale = step(8), step(6)
    assert np.abs(fresh).max() > 0
    assert np.allclose(stale, fresh / 3 if aware else fresh, rtol=1e-5)


def _none(table: str, rows: Any) -> RowBlock:
    raise AssertionError(f"all of {table} was read")
