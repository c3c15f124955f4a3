"""States that leave nodes have links to themselves: half of the nodes are released once these have carried them."""

import asyncio
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.config import JobConfig, TableSpec
from proteus_spot.psengine.controller.state import ENDED
from tests.support import simulated_cluster
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import finished, reached, run_job
from tests.support.virtual_time import InTurn

NODES, PARTITIONS, CLOCKS = 6, 12, 20
STATE_BYTES, RATE, KERNEL_S, SLOW_S = 400_000, 200_000.0, 1.0, 3.0
#: Seconds in which the leaving nodes' links carry the states of their partitions.
STATES_S = STATE_BYTES * PARTITIONS / NODES / RATE


class Heavy:
    """Partitions with large states: each task adds 1 to its state, and to the table."""

    def tables(self) -> tuple[TableSpec, ...]:
        rows = PARTITIONS * STATE_BYTES // 400
        return TableSpec("table", 8, 1), TableSpec("state", rows, 100, own=True)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        return np.zeros((rows[1] - rows[0], table.n_cols), np.float32)

    def prepare(self, arrays: Any) -> int:
        return int(arrays["x"])

    def rows(self, data: int, clock: int) -> dict[str, slice]:
        rows = STATE_BYTES // 400
        return {"state": slice(data * rows, (data + 1) * rows), "table": slice(0, 8)}

    def run(self, data: int, params: Any, clock: int) -> Work:
        return Work({name: np.ones_like(rows) for name, rows in params.items()}, 0.0, 1)

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        return {}


@pytest.mark.parametrize("round_under_way", [False, True])
def test_half_of_the_nodes_leave_in_little_more_than_the_time_of_their_states_on_the_links(
    round_under_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulated_cluster, "KERNEL_S", KERNEL_S)
    cluster = WiredCluster(0, Trouble(rate=RATE))

    async def befalls(cluster: WiredCluster) -> None:
        controller = cluster.shell.controller
        rounds, loop = controller.job.tiers.backups, asyncio.get_running_loop()
        while not (rounds.under_way if round_under_way else rounds.group):
            assert controller.job.state not in ENDED
            await asyncio.sleep(0.05)
        cluster.nodes["r1"].agent._runner._kernel_threads.pool = InTurn(
            SLOW_S
        )  # the links idle while others wait for it
        assert controller.job.tasks is not None
        await reached(cluster, controller.job.tasks.common + 1)
        assert rounds.under_way == round_under_way
        began_s, going = loop.time(), ["r4", "r5", "r6"]
        await cluster.shell.drain(going, 600.0)
        while any(controller.job.members.nodes[name].state != "drained" for name in going):
            await asyncio.sleep(0.05)
        assert loop.time() - began_s <= KERNEL_S + 1.2 * STATES_S
        for name in going:
            await cluster.kill(name)
        before = rounds.group or 0
        while (rounds.group or 0) <= before:
            assert controller.job.state not in ENDED, "the replicas that went are copied again"
            await asyncio.sleep(0.05)

    names = [f"r{i + 1}" for i in range(NODES)]
    config = JobConfig(
        "job",
        f"{__name__}:Heavy",
        {},
        n_partitions=PARTITIONS,
        n_shards=NODES,
        clocks=CLOCKS,
        n_reliable=NODES,
        stage=1,
    )
    run_job(cluster, config, names, befalls)
    model, result = finished(cluster)
    assert result["bytes_moved"]["hand_over"] < 1.1 * STATE_BYTES * PARTITIONS / 2, "the others stay where they are"
    assert (model["state"].min(), model["state"].max(), model["table"].max()) == (CLOCKS, CLOCKS, CLOCKS * PARTITIONS)
    assert not cluster.shell.controller.job.rollbacks
