"""Tests are broken off, too: their nodes end with them, also those that are frozen or cut off."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.endpoint import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="the kernel's leash")]

STARTS = """
import json, os, signal, sys, time
from pathlib import Path
from tests.support.engine import LocalCluster

with LocalCluster(Path(sys.argv[1]), troubled=True) as cluster:
    cluster.start_nodes(1, 2)
    cluster.cut(("t1", "controller"), ("controller", "t1"))
    os.kill(cluster.processes["t2"].pid, signal.SIGSTOP)
    print(json.dumps([process.pid for process in cluster.processes.values()]), flush=True)
    time.sleep(600)
"""


def test_nodes_end_when_the_test_that_has_them_is_killed(tmp_path: Path) -> None:
    test = subprocess.Popen(
        [sys.executable, "-c", STARTS, str(tmp_path)], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
    )
    try:
        assert test.stdout is not None
        pids = json.loads(test.stdout.readline())
        assert len(pids) == 4
        assert all(psutil.pid_exists(pid) for pid in pids)
    finally:
        test.kill()
        test.communicate()
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids), "all of them to be gone")
