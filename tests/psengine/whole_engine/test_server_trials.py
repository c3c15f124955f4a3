"""Other numbers of servers are tried during a training, and nodes are lost meanwhile: the model has the same bits."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from psengine.apps.registry import resolve
from psengine.controller.state import ENDED
from psengine.single_process import initial, train_alone
from psengine.tiers import server_count
from tests.support.controller_invariants import check_invariants
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import finished, job, run_job
from tests.support.small_apps import PARTITIONS

APP, CLOCKS, SHARDS = "Descent", 60, 6


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.storm) for seed in range(1, 10))])
def test_trials_change_the_servers_and_not_the_model(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_count, "LEAST_S", 0.0)  # clocks of simulated nodes are short
    cluster, seen = WiredCluster(seed, Trouble()), set[int]()
    config = job(APP, clocks=CLOCKS, n_shards=SHARDS, stage=2)

    async def meanwhile(cluster: WiredCluster) -> None:
        controller, lost = cluster.shell.controller, False
        while controller.state not in ENDED:
            await asyncio.sleep(0.02)
            check_invariants(controller)
            if controller.stage == 2 and controller.tiers.settled:
                seen.add(len({owner.node for owner in controller.shards.owners}))
            if controller.tiers.servers.trying and not lost:
                lost = True
                await cluster.kill("t3")
                cluster.start("t3", "transient")

    run_job(cluster, config, ["r1", *(f"t{n}" for n in range(1, 7))], meanwhile)
    model, _ = finished(cluster)
    app = resolve(config.app, {})
    parts = [app.prepare({"x": np.int64(p)}) for p in range(PARTITIONS)]
    alone = train_alone(app, parts, initial(app, 0, SHARDS), CLOCKS)
    assert {name: array.tobytes() for name, array in model.items()} == {n: a.tobytes() for n, a in alone.items()}
    assert {1, 3} <= seen
    assert not cluster.shell.controller.tiers.servers.trying
