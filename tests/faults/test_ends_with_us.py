"""Interrupted tests: their nodes end with them, also stopped and cut-off ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_process import processes_of, wait_gone

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="the kernel's leash")]

STARTS = """
import os, signal, sys, time
from pathlib import Path
from tests.support.local_cluster import LocalCluster

with LocalCluster(Path(sys.argv[1]), troubled=True) as cluster:
    cluster.start_nodes(1, 2)
    cluster.cut(("t1", "controller"), ("controller", "t1"))
    os.kill(cluster.processes["t2"].pid, signal.SIGSTOP)
    print("there", flush=True)
    time.sleep(600)
"""


def test_nodes_end_when_the_test_that_has_them_is_killed(tmp_path: Path) -> None:
    test = subprocess.Popen(
        [sys.executable, "-c", STARTS, str(tmp_path)], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
    )
    try:
        assert test.stdout is not None
        assert test.stdout.readline() == b"there\n"
        assert len(processes_of(tmp_path)) >= 5  # the test, a controller, three nodes
    finally:
        test.kill()
        test.communicate()
    wait_gone(tmp_path)
