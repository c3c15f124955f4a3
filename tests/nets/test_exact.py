"""Nets have the bits of bare DiLoCo in one process, whatever happens to the nodes."""

from __future__ import annotations

import struct
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.single_process import initial, train_alone
from proteus_spot.psengine.tables.allowed_values import WrongValue
from proteus_spot.psengine.tables.tree_sum import tree_sum
from tests.psengine.whole_engine.test_wires import WEATHERS, train
from tests.support import numpy_net
from tests.support.lossy_network import Trouble
from tests.support.numpy_net import EXAMPLES, Small
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import CLOCKS as JOB_CLOCKS
from tests.support.simulated_jobs import check, finished, job, reached, run_job, started
from tests.support.simulated_storm import WiredStorm

NETS = [f"{numpy_net.__name__}:{name}" for name in ("Small", "Forgetful", "Rounded", "Ill")]
K, H, WARM, CLOCKS = Small.workers, Small.local_steps, Small.warm_steps, 12
GROUPS = WARM + CLOCKS - WARM // H
SEEDS = [seed if seed in (1, 3) else pytest.param(seed, marks=pytest.mark.storm) for seed in range(100)]


def leaf(changes: list[Any], part: tuple[int, int]) -> Any:
    return changes[part[0]] if part[1] - part[0] == 1 else None


def bf16(array: np.ndarray) -> np.ndarray:
    return np.array([struct.unpack(">f", nearest(float(each)))[0] for each in array.flat], np.float32).reshape(
        array.shape
    )


def nearest(value: float) -> bytes:
    """The upper half of one value, to the even one of the nearest, as the bytes of a float."""
    (bits,) = struct.unpack(">I", struct.pack(">f", value))
    upper, lower = divmod(bits, 1 << 16)
    upper += lower > 1 << 15 or (lower == 1 << 15 and upper % 2)
    return struct.pack(">I", upper << 16)


def bare_diloco(net: Small) -> tuple[dict[str, np.ndarray], Counter[tuple[int, int, int]]]:
    """Return the tables after the clocks, by a loop of its own, and how often (worker, epoch, example) was used."""
    trainer, lr, momentum = net.trainer(), np.float32(net.outer.lr), np.float32(net.outer.momentum)
    tables = trainer.layout.flat(trainer.first())
    counts = tables["counts"]
    velocity = np.zeros_like(tables["parameters"])
    moments: list[dict[str, np.ndarray]] = [{} for _ in range(K)]
    used: Counter[tuple[int, int, int]] = Counter()
    done = 0
    gradients: dict[str, np.ndarray] = {}
    for group in range(1, GROUPS + 1):
        warm = group <= WARM
        steps = 1 if warm else H - done % H
        changes: list[dict[str, np.ndarray]] = []
        missing = 0
        for worker in range(K):
            seed = int(np.random.default_rng([0, group, worker]).integers(1 << 62))
            trainer.begin(tables, moments[worker], {"x": np.int64(worker)}, seed)
            if gradients:
                trainer.step_by(done - 1, gradients)
            for step in range(done, done + steps):
                places = range(step * 4, step * 4 + 4)
                rows = []
                for place in places:
                    epoch, at = divmod(place, EXAMPLES)
                    rows.append(int(np.random.default_rng([0, worker, epoch]).permutation(EXAMPLES)[at]))
                    used[worker, epoch, rows[-1]] += 1
                batches = np.split(np.array(rows), 2)
                if warm:
                    own = trainer.gradients(step, batches)[1]
                else:
                    trainer.step(step, batches)
            ill = any((worker, step) in getattr(net, "ill", ()) for step in range(done, done + steps))
            missing += ill
            after, kept = trainer.end()
            if not ill or warm:
                moments[worker] = kept if warm or net.moments == "keep" else {}
            if warm:
                plain = after["parameters"] - tables["parameters"]
            if ill:
                changes.append({})
                continue
            share = {name: (after[name] - tables[name]) for name in after}
            shares = {name: share[name] / np.float32(K) for name in ("parameters", "buffers")}
            if warm:
                shares["gradients"] = own["gradients"] / np.float32(K)
            changes.append(shares if net.pushes == "fp32" else {name: bf16(each) for name, each in shares.items()})
            if worker == 0:
                counts = after["counts"]
        total: Any = tree_sum((0, K), partial(leaf, changes))
        of_all = np.float32(K / (K - missing))
        gradients = {"gradients": total["gradients"] * of_all} if warm else {}
        if warm:
            moved = plain
        else:
            change = total["parameters"] * of_all
            velocity = momentum * velocity - change
            moved = -(lr * (momentum * velocity - change))
        tables = {
            "parameters": tables["parameters"] + moved,
            "buffers": tables["buffers"] + total["buffers"],
            "counts": counts,
        }
        done += steps
    return tables, used


@pytest.mark.parametrize("name", NETS)
def test_a_job_is_bare_diloco_bit_for_bit_and_uses_each_example_once_an_epoch(name: str) -> None:
    app = resolve(name, {})
    parts = [app.prepare({"x": np.int64(worker), "ids": np.zeros(1)}) for worker in range(K)]
    trained = train_alone(app, parts, initial(app, 0, 3), GROUPS)
    bare, used = bare_diloco(getattr(numpy_net, name.partition(":")[2])())
    assert {each: trained[each].tobytes() for each in bare} == {each: bare[each].tobytes() for each in bare}
    assert set(used.values()) == {1}
    assert len(used) == K * CLOCKS * H * 4
    skipped = 4 if name.endswith("Ill") else 0  # by worker 0
    assert int(trained["counts"][0, 0]) == CLOCKS * H - skipped


def test_a_loss_that_is_no_number_fails_the_job_with_worker_clock_and_step_or_is_skipped_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = [{"x": np.int64(worker)} for worker in range(K)]
    app = resolve(NETS[-1], {"nan": "fail"})
    with pytest.raises(WrongValue, match=r"^worker 1, clock 1, step 2: the loss is nan; want a lower rate, clip_norm"):
        train_alone(app, parts, initial(app, 0), GROUPS)
    app = resolve(NETS[-1], {})
    train_alone(app, parts, initial(app, 0), GROUPS)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(numpy_net.Ill.ill)
    assert lines[0] == "worker 1, clock 1, step 2: the loss is nan; the mean of the others is taken"


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("seed", SEEDS)
def test_in_a_storm_a_net_has_the_bits_of_one_process(seed: int, name: str) -> None:
    train(seed, WEATHERS[seed % len(WEATHERS)], 15, name)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_storm_that_takes_the_controller_too_leaves_the_bits(seed: int, name: str) -> None:
    cluster = WiredCluster(seed, Trouble(lost=0.003, doubled=0.02, late=0.01))
    storm = WiredStorm(cluster)
    storm.names = 3
    config = job(name, n_reliable=2, checkpoint_s=[0.3, 2.0][seed % 2])

    async def meanwhile(cluster: WiredCluster) -> None:
        await started(cluster)
        await storm.run(1 + seed % 7)
        await cluster.lose_controller(config)
        await started(cluster)
        await storm.run(6)

    try:
        run_job(cluster, config, ("r1", "r2", "t1", "t2", "t3"), meanwhile)
        check(cluster, name)
    except BaseException:
        print(f"seed {seed}:", *storm.told, sep="\n  ")
        raise


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
    assert names == {"parameters", "parameters:velocity", "buffers", "counts", "gradients", "notes"}


@pytest.mark.parametrize("every", [5, None])
def test_a_job_is_evaluated_by_clocks_of_the_same_steps(every: int | None) -> None:
    cluster = WiredCluster(3, Trouble())
    marks = []

    async def seen(cluster: WiredCluster) -> None:
        await reached(cluster, 2)
        marks.append(cluster.nodes["r1"].agent.server.mark_every)

    run_job(cluster, job(NETS[0], n_reliable=1, evaluate_every=every), ("r1", "t1"), seen)
    result = finished(cluster)[1]
    assert result["clocks"] == len(result["losses"]) == len(result["seconds_by_clock"]) == JOB_CLOCKS
    assert [clock for clock, _ in result["metrics_by_clock"]] == ([5, 10, 15, 20, 25] if every else [JOB_CLOCKS])
    assert marks == [1 if every else None], "a marked state is memory: none is kept where nothing is evaluated"
