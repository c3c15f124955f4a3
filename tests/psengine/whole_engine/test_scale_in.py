"""A job whose memory falls: servers merge, nodes are offered and let go, and the model has the bits of a calm run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.config import JobConfig, TableSpec
from proteus_spot.psengine.controller.state import ENDED
from proteus_spot.psengine.single_process import initial, train_alone
from proteus_spot.psengine.tables.row_sets import RowSet
from proteus_spot.psengine.tables.sparse_rows import SparseRows
from proteus_spot.psengine.telemetry.event_log import MemoryUsed
from tests.support.controller_invariants import check_invariants
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import finished
from tests.support.virtual_time import run_virtual

PARTITIONS, SHARDS, CLOCKS, ROWS, COLUMNS = 8, 4, 60, 96, 1200
APP = "tests.psengine.whole_engine.test_scale_in:Counts"


class Counts:
    """Each clock a partition adds to its block of rows of counts; with time only to the first few columns.

    Steps of `weights` depend on every bit of the counts that were read.
    """

    memory_falls = True

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec("counts", ROWS, COLUMNS, "int32"), TableSpec("weights", 1, 8))

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        if table.name == "weights":
            return np.ones((rows[1] - rows[0], 8), np.float32)
        return rng.integers(10**8, 10**9, (rows[1] - rows[0], COLUMNS)).astype(np.int32)

    def prepare(self, arrays: Any) -> int:
        return int(arrays["x"])

    def rows(self, data: int, clock: int) -> Mapping[str, RowSet]:
        block = (data + clock) % PARTITIONS
        return {"counts": slice(block * ROWS // PARTITIONS, (block + 1) * ROWS // PARTITIONS)}

    def run(self, data: int, params: Mapping[str, Any], clock: int) -> Work:
        counts, rng = params["counts"], np.random.default_rng([data, clock])
        kept = max(4, COLUMNS - 30 * clock)
        change = np.where(np.arange(COLUMNS) < kept, rng.integers(0, 5, counts.shape), -counts).astype(np.int32)
        near = np.float32(np.log1p(np.float32(counts.sum() % 1009)))
        step = (rng.standard_normal((1, 8)) * 0.01).astype(np.float32) * (near + params["weights"])
        return Work({"counts": change, "weights": step}, float(near), 1)

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        return {}


def job(scale_in: bool | None, stage: Literal[2] = 2) -> JobConfig:
    return JobConfig(
        "job", APP, n_partitions=PARTITIONS, n_shards=SHARDS, clocks=CLOCKS, stage=stage, stage_2_above=1.0,
        scale_in=scale_in,
    )  # fmt: skip


def train(config: JobConfig, release: bool) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Train on one reliable and six transient nodes; with `release`, nodes that are offered are drained and go."""
    cluster = WiredCluster(0, Trouble())
    seen: dict[str, Any] = {"released": [], "machines": None, "servers": set(), "sparse": False}

    async def story() -> None:
        cluster.open()
        for name in ("r1", *(f"t{n}" for n in range(1, 7))):
            cluster.start(name, "reliable" if name == "r1" else "transient")
        await cluster.shell.start(config.to_dict())
        controller = cluster.shell.controller
        while controller.job.state not in ENDED:
            await asyncio.sleep(0.02)
            check_invariants(controller.job)
            status = await cluster.shell.status()
            seen["machines"] = status["machines"]
            seen["servers"].add(len({shard["node"] for shard in status["shards"]}))
            for node in list(cluster.nodes.values()):
                for store in node.agent.server.stores.values() if node.address else ():
                    seen["sparse"] |= isinstance(store.committed["counts"], SparseRows)
            offered = [node["name"] for node in status["nodes"] if node["offered"]]
            if release and offered and status["state"] == "running":
                await cluster.shell.drain(offered, 20.0)
                while controller.job.members.in_state("draining", "leaving"):
                    await asyncio.sleep(0.02)
                for name in offered:
                    await cluster.kill(name)
                seen["released"] += offered
        seen["memory"] = [event.record() for event in controller.job.history.log.of(MemoryUsed)]
        assert not controller.job.rollbacks
        await cluster.close()

    run_virtual(story(), 600.0)
    model, _ = finished(cluster)
    return {name: array.tobytes() for name, array in model.items()}, seen


def test_a_job_that_lets_nodes_go_as_its_memory_falls_ends_with_the_same_bits() -> None:
    app = Counts()
    alone = train_alone(app, list(range(PARTITIONS)), initial(app, 0, SHARDS), CLOCKS)
    expected = {name: array.tobytes() for name, array in alone.items()}
    calm, off = train(job(False), release=True)
    assert calm == expected
    assert (off["released"], off["machines"], off["sparse"]) == ([], None, False)
    model, seen = train(job(None), release=True)  # as the application says
    assert model == expected
    assert seen["sparse"]
    assert 1 <= len(seen["released"]) <= 4, "as many stay as stage 2 needs"
    assert seen["machines"] == 6 - len(seen["released"])
    assert min(seen["servers"]) == 1 < max(seen["servers"]), "servers merge"
    tables = {entry[0]: entry[1] for entry in seen["memory"]}
    assert tables[CLOCKS] < tables[5] / 4
