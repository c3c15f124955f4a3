"""A node that is alive and cut off: it is done without, may not write, and comes back as another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from psengine.heartbeats import SILENCE_S
from tests.support.engine import LocalCluster
from tests.support.patience import PATIENCE
from tests.support.tiers import active, node, run, servers, whole

pytestmark = [pytest.mark.e2e]


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
        assert "silent for" in status["went_back"][0]["reason"]
        assert node(status, victim)["gone"]
        cluster.cut()
        again = cluster.wait(lambda s: not node(s, victim)["gone"], "it to join anew")
        assert node(again, victim)["address"] != address
        cluster.client.hold(None)
        whole(cluster, undisturbed)
