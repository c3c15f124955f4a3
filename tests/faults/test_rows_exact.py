"""Partition-local rows on real processes: after kills and notices the model has the bits of a bare loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.storage.job_paths import HELD_OUT, JobPaths, part_name
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.single_process import initial, train_alone
from tests.faults.test_bsp_exact import kill_at_work, node, past
from tests.support.local_cluster import LocalCluster
from tests.support.row_training import PARTITIONS, SHARDS, Wanderers

pytestmark = [pytest.mark.e2e]

CLOCKS = 150


def test_a_kill_and_a_notice_leave_rows_of_their_own_as_they_would_have_been(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:
        folder = JobPaths(cluster.job_id).data
        for p in range(PARTITIONS):
            cluster.blobs.write_npz(f"{folder}/{part_name(p)}", {"x": np.array(p)})
        cluster.blobs.write_npz(f"{folder}/{HELD_OUT}", {"x": np.array(0)})
        config = JobConfig(
            cluster.job_id,
            "tests.support.row_training:Wanderers",
            data_url=cluster.blobs.url_of(folder),
            n_partitions=PARTITIONS,
            n_shards=SHARDS,
            clocks=CLOCKS,
            n_reliable=2,
        )
        cluster.start_nodes(2, 2)
        cluster.client.start(config.to_dict())
        cluster.wait(past(CLOCKS // 4), "the second quarter")
        kill_at_work(cluster, "t1")
        cluster.start_node("t3")
        cluster.wait(lambda s: any(n["name"] == "t3" and n["partitions"] for n in s["nodes"]), "t3 to work")
        assert cluster.client.notice("r2", 30.0) == {"known": True}  # its shards move
        cluster.client.drain(["r2"], 30.0)
        assert cluster.client.status()["clock"] < CLOCKS
        cluster.wait(lambda s: node(s, "r2")["state"] == "drained", "r2 to be drained")
        status = cluster.wait_state("finished")
        assert status["repeated_micro_tasks"] > 0
        assert status["lost_micro_tasks"] == 0
        model = cluster.model()
        app = Wanderers()
        alone = train_alone(app, list(range(PARTITIONS)), initial(app, config.seed, SHARDS), CLOCKS)
        for name, table in alone.items():
            assert model[name].tobytes() == table.tobytes(), name
