"""Tables with update rules: bit for bit those of one process, in storms and after a restored checkpoint."""

from __future__ import annotations

import asyncio

import pytest

from tests.psengine.whole_engine.test_wires import WEATHERS, train
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import check, job, run_job

APP = "Steered"
SEEDS = [seed if seed == 2 else pytest.param(seed, marks=pytest.mark.storm) for seed in range(100)]


@pytest.mark.parametrize("seed", SEEDS)
def test_in_a_storm_each_rule_has_the_bits_of_one_process(seed: int) -> None:
    train(seed, WEATHERS[seed % len(WEATHERS)], 15, APP)


def test_a_restored_checkpoint_holds_what_the_rules_remember() -> None:
    cluster = WiredCluster(3, Trouble())
    config = job(APP, n_reliable=1, checkpoint_s=0.3)

    async def replaced(cluster: WiredCluster) -> None:
        while cluster.store.newest is None or cluster.store.newest.group < 5:
            await asyncio.sleep(0.01)
        for name in ("r1", "t1"):
            await cluster.kill(name)
        cluster.start("r2", "reliable")
        cluster.start("t2")
        await cluster.lose_controller(config)

    run_job(cluster, config, ("r1", "t1"), replaced)
    check(cluster, APP)
    names = {name for shards in cluster.store.shards.values() for arrays in shards.values() for name in arrays}
    memory = {"weights:mean", "weights:square", "weights:count", "bias:velocity", "shift:velocity"}
    assert names == memory | {"weights", "bias", "scale", "shift", "seen"}
    assert cluster.store.model is not None
    assert not memory & set(cluster.store.model)
