"""A node that is alive but cut off: it is excluded, may not write, and returns as another process.

A node that is stopped for only some seconds is waited for.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from proteus_spot.psengine.membership.failure_detector import SILENCE_S
from tests.support.local_cluster import LocalCluster
from tests.support.tiers import CLOCKS, active, node, run, servers, whole
from tests.support.timeouts import PATIENCE

pytestmark = [pytest.mark.e2e]

#: Seconds for which a server stands still.
STOPPED_S = 3.0


def test_a_server_that_only_the_controller_cannot_reach_is_lost_and_joins_anew(
    tmp_path: Path, undisturbed: bytes
) -> None:
    """The others still reach it, and it them: what it says and has is of an earlier generation."""
    with LocalCluster(tmp_path, troubled=True) as cluster:
        cluster.client.hold(60)
        run(cluster, 1, 4)
        before = active(cluster)
        victim = min(servers(before))
        address = node(before, victim)["address"]
        cluster.cut((victim, "controller"), ("controller", victim))
        status = cluster.wait(lambda s: s["went_back"], "its silence to be heard", (SILENCE_S + 60.0) * PATIENCE)
        assert "no heartbeat for" in status["went_back"][0]["reason"]
        assert node(status, victim)["gone"]
        cluster.cut()
        again = cluster.wait(lambda s: not node(s, victim)["gone"], "it to join anew")
        assert node(again, victim)["address"] != address
        cluster.client.hold(None)
        whole(cluster, undisturbed)


def test_a_server_that_stands_still_for_some_seconds_is_waited_for(tmp_path: Path, undisturbed: bytes) -> None:
    """It is not taken for dead: it keeps its process, and nobody goes back or does a thing twice."""
    with LocalCluster(tmp_path) as cluster:
        run(cluster, 1, 4)
        before = active(cluster)
        victim = min(servers(before))
        group = cluster.processes[victim].pid
        os.killpg(group, signal.SIGSTOP)
        until_s = cluster.client.status()["elapsed_s"] + STOPPED_S
        during = cluster.wait(lambda s: s["elapsed_s"] >= until_s, "some seconds to pass")
        assert victim in servers(during)
        assert during["clock"] < CLOCKS, "without it no clock ends"
        os.killpg(group, signal.SIGCONT)
        status = whole(cluster, undisturbed)
        assert (status["repeated_micro_tasks"], status["went_back"]) == (0, [])
        assert not any(there["gone"] for there in status["nodes"])
        assert node(status, victim)["address"] == node(before, victim)["address"]


@pytest.mark.storm
def test_of_two_nodes_that_are_cut_from_each_other_for_good_one_is_done_without(
    tmp_path: Path, undisturbed: bytes
) -> None:
    """The one that serves nothing: it joins anew, cannot reach the other one again, and is set aside."""
    with LocalCluster(tmp_path, troubled=True) as cluster:
        cluster.client.hold(2 * CLOCKS // 3)
        run(cluster, 1, 4)
        before = active(cluster)
        server, *_ = sorted(servers(before))
        other = next(name for name in ("t1", "t2", "t3", "t4") if name not in servers(before))
        cluster.cut((server, other), (other, server))
        status = cluster.wait(lambda s: s["went_back"] or node(s, other)["state"] == "unfit", "one to be set aside")
        assert node(status, other)["error"] == f"it and {server} do not reach each other"
        assert node(status, other)["address"] != node(before, other)["address"], "it was given a second try"
        cluster.client.hold(None)
        status = whole(cluster, undisturbed)
        assert status["went_back"] == [], "what nobody's shards were on is not a loss"
        assert node(status, server)["address"] == node(before, server)["address"]
