"""An exception in any part of the program ends the job with one line, and a rerun goes on from the checkpoint."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.support.local_cluster import DEADLINE_S, LocalCluster, digits_job

pytestmark = [pytest.mark.e2e]

CLOCKS = 30
REASONS = {
    "handle": r"a fault in the controller \(BatchDone\): KeyError: 'planted'",
    "driver": r"the driver failed: KeyError: 'planted'",
    "run": r"partition \d, clock \d+, on node \w+: KeyError: 'planted'",
    "server": r"partition \d, clock \d+, on node \w+: KeyError: 'planted'",
}


def test_each_planted_exception_ends_in_one_line_and_a_rerun_mends_it(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, troubled=True) as cluster:
        job = digits_job(cluster, features=0, n_partitions=4, n_shards=2, clocks=CLOCKS, checkpoint_s=0.01)
        clock = 0
        for at in (*REASONS, None):
            for name in list(cluster.processes):
                cluster.kill(name)
            cluster.plant(at)
            cluster.start_controller()
            cluster.start_nodes(1, 1)
            cluster.client.start(job.to_dict())
            end_s = time.monotonic() + DEADLINE_S
            while (status := cluster.client.status())["state"] not in ("finished", "failed"):
                assert time.monotonic() < end_s, f"{at}: {status}"
            if at is None:
                break
            assert status["state"] == "failed"
            assert re.fullmatch(REASONS[at], status["reason"])
            assert status["checkpoint_clock"] >= clock
            clock = status["checkpoint_clock"]
        assert status["state"] == "finished"
        assert 0 < clock < CLOCKS
        assert status["result"]["lost_micro_tasks"] == 0
        assert [done for done, _ in status["result"]["losses"]] == list(range(1, CLOCKS + 1))
        assert sum(status["micro_tasks_done"].values()) == CLOCKS * 4
