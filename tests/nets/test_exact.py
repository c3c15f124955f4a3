"""Nets have the bits of bare DiLoCo in one process, whatever happens to the nodes."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.single_process import initial, train_alone
from proteus_spot.psengine.tables.tree_sum import tree_sum
from tests.psengine.whole_engine.test_wires import WEATHERS, train
from tests.support import numpy_net
from tests.support.lossy_network import Trouble
from tests.support.numpy_net import EXAMPLES, Small
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import check, job, reached, run_job

NETS = [f"{numpy_net.__name__}:{name}" for name in ("Small", "Forgetful")]
K, H, WARM, CLOCKS = Small.workers, Small.local_steps, Small.warm_steps, 12
SEEDS = [seed if seed in (1, 3) else pytest.param(seed, marks=pytest.mark.storm) for seed in range(100)]


def leaf(changes: list[Any], part: tuple[int, int]) -> Any:
    return changes[part[0]] if part[1] - part[0] == 1 else None


def bare_diloco(net: Small) -> tuple[dict[str, np.ndarray], Counter[tuple[int, int, int]]]:
    """Return the tables after the clocks, by a loop of its own, and how often (worker, epoch, example) was used."""
    trainer, lr, momentum = net.trainer(), np.float32(net.outer.lr), np.float32(net.outer.momentum)
    tables = trainer.layout.flat(trainer.first())
    velocity = np.zeros_like(tables["parameters"])
    moments: list[dict[str, np.ndarray]] = [{} for _ in range(K)]
    used: Counter[tuple[int, int, int]] = Counter()
    done = 0
    for clock in range(1, CLOCKS + 1):
        steps = 1 if clock <= WARM else H
        changes: list[dict[str, np.ndarray]] = []
        for worker in range(K):
            seed = int(np.random.default_rng([0, clock, worker]).integers(1 << 62))
            trainer.begin(tables, moments[worker], {"x": np.int64(worker)}, seed)
            for step in range(done, done + steps):
                places = range(step * 4, step * 4 + 4)
                rows = []
                for place in places:
                    epoch, at = divmod(place, EXAMPLES)
                    rows.append(int(np.random.default_rng([0, worker, epoch]).permutation(EXAMPLES)[at]))
                    used[worker, epoch, rows[-1]] += 1
                trainer.step(step, np.split(np.array(rows), 2))
            after, kept = trainer.end()
            moments[worker] = kept if net.moments == "keep" else {}
            share = {name: (after[name] - tables[name]) for name in after}
            changes.append({name: share[name] / np.float32(K) for name in ("parameters", "buffers")})
            if worker == 0:
                counts = after["counts"]
        total: Any = tree_sum((0, K), partial(leaf, changes))
        velocity = momentum * velocity - total["parameters"]
        step_of_all = lr * (momentum * velocity - total["parameters"])
        tables = {
            "parameters": tables["parameters"] - step_of_all,
            "buffers": tables["buffers"] + total["buffers"],
            "counts": counts,
        }
        done += steps
    return tables, used


@pytest.mark.parametrize("name", NETS)
def test_a_job_is_bare_diloco_bit_for_bit_and_uses_each_example_once_an_epoch(name: str) -> None:
    app = resolve(name, {})
    parts = [app.prepare({"x": np.int64(worker), "ids": np.zeros(1)}) for worker in range(K)]
    trained = train_alone(app, parts, initial(app, 0, 3), CLOCKS)
    bare, used = bare_diloco(getattr(numpy_net, name.partition(":")[2])())
    assert {each: trained[each].tobytes() for each in bare} == {each: bare[each].tobytes() for each in bare}
    assert set(used.values()) == {1}
    steps = WARM + (CLOCKS - WARM) * H
    assert len(used) == K * steps * 4
    assert int(trained["counts"][0, 0]) == steps


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("seed", SEEDS)
def test_in_a_storm_a_net_has_the_bits_of_one_process(seed: int, name: str) -> None:
    train(seed, WEATHERS[seed % len(WEATHERS)], 15, name)


@pytest.mark.parametrize("nodes", [("r1",), ("r1", "t1"), ("r1", "t1", "t2", "t3")])
def test_one_two_and_four_nodes_have_the_same_bits(nodes: tuple[str, ...]) -> None:
    cluster = WiredCluster(3, Trouble())
    run_job(cluster, job(NETS[0], n_reliable=1), nodes)
    check(cluster, NETS[0])


def test_a_job_that_goes_on_from_a_checkpoint_on_fewer_nodes_has_the_same_bits() -> None:
    cluster = WiredCluster(3, Trouble())
    config = job(NETS[0], n_reliable=1, checkpoint_s=0.3)

    async def replaced(cluster: WiredCluster) -> None:
        await reached(cluster, 8)
        for name in ("r1", "t1", "t2"):
            await cluster.kill(name)
        cluster.start("r2", "reliable")
        await cluster.lose_controller(config)

    run_job(cluster, config, ("r1", "t1", "t2"), replaced)
    check(cluster, NETS[0])
    names = {name for shards in cluster.store.shards.values() for arrays in shards.values() for name in arrays}
    assert names == {"parameters", "parameters:velocity", "buffers", "counts"}
