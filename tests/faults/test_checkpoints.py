"""All processes of a job are killed; it continues from its checkpoint to bit for bit the undisturbed model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.local_cluster import LocalCluster, digits_job

pytestmark = [pytest.mark.e2e]

CLOCKS = 60
FEATURES = 2000


def train(cluster: LocalCluster, checkpoint_s: float | None) -> None:
    cluster.start_nodes(2, 2)
    job = digits_job(cluster, features=FEATURES, clocks=CLOCKS, n_shards=3, n_reliable=2, checkpoint_s=checkpoint_s)
    cluster.client.start(job.to_dict())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, list[list[float]]]:
    with LocalCluster(tmp_path_factory.mktemp("undisturbed")) as cluster:
        train(cluster, None)
        result = cluster.wait_state("finished")["result"]
        return cluster.model()["weights"], result["losses"]


@pytest.mark.parametrize("asked", [True, pytest.param(False, marks=pytest.mark.storm)])
def test_all_processes_die(tmp_path: Path, asked: bool, undisturbed: tuple[np.ndarray, list[list[float]]]) -> None:
    with LocalCluster(tmp_path) as cluster:
        train(cluster, None if asked else 0.1)
        if asked:
            cluster.wait(lambda s: s["clock"] >= CLOCKS // 3, "the first third")
            kept = cluster.client.checkpoint()["clock"]
            assert kept >= CLOCKS // 3
        else:
            kept = cluster.wait(lambda s: s["checkpoint_clock"] >= CLOCKS // 3, "a checkpoint")["checkpoint_clock"]
        for name in list(cluster.processes):
            cluster.kill(name)

        cluster.start_controller()
        train(cluster, None)
        status = cluster.client.status()
        assert status["checkpoint_clock"] >= kept
        result = cluster.wait_state("finished")["result"]
        assert result["lost_micro_tasks"] == 0
        assert sum(result["micro_tasks_done"].values()) == CLOCKS * 12
        assert result["losses"] == undisturbed[1]
        assert cluster.model()["weights"].tobytes() == undisturbed[0].tobytes()
