"""Real SIGKILLs of ActivePS processes: the job rolls back to one clock, and the model is the undisturbed one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.local_cluster import LocalCluster
from tests.support.tiers import CLOCKS, active, node, run, servers, whole

pytestmark = [pytest.mark.e2e]


def test_an_active_server_is_killed_and_all_go_back_to_what_is_kept(tmp_path: Path, undisturbed: bytes) -> None:
    with LocalCluster(tmp_path) as cluster:
        run(cluster, 1, 4)
        before = active(cluster)
        assert before["stage"] == 2
        assert {shard["backup"] for shard in before["shards"]} == {"r1"}
        victim = min(servers(before))
        cluster.kill(victim)
        status = cluster.wait(lambda s: s["went_back"], "all to go back")
        (back,) = status["went_back"]
        assert back["clock"] >= before["backup_clock"]
        status = whole(cluster, undisturbed)
        assert len(status["went_back"]) == 1, "once"
        assert status["repeated_micro_tasks"] > 0
        assert {n["name"] for n in status["nodes"] if n["gone"]} == {victim}, "the others keep their processes"


def test_all_transient_nodes_are_killed_at_once_and_the_backups_serve(tmp_path: Path, undisturbed: bytes) -> None:
    with LocalCluster(tmp_path) as cluster:
        run(cluster, 1, 4)
        active(cluster)
        for name in ("t1", "t2", "t3", "t4"):
            cluster.kill(name)
        cluster.wait(lambda s: s["stage"] == 1 and servers(s) == {"r1"}, "the reliable node to serve")
        status = whole(cluster, undisturbed)
        assert all(back["clock"] > 0 for back in status["went_back"])


def test_active_servers_that_are_told_hand_over_and_nobody_goes_back(tmp_path: Path, undisturbed: bytes) -> None:
    with LocalCluster(tmp_path) as cluster:
        cluster.client.hold(CLOCKS // 2)
        run(cluster, 1, 4)
        first = min(servers(active(cluster)))
        rest = {"t1", "t2", "t3", "t4"} - {first}
        for names in ({first}, rest):  # in two waves: one of the servers, and then everybody else
            for name in names:
                cluster.client.notice(name, 30.0)
                cluster.client.drain([name], 30.0)  # at once: it could work on for most of that time
            cluster.wait(
                lambda s, names=names: all(node(s, name)["state"] == "drained" for name in names), "them to be drained"
            )
            for name in names:
                cluster.kill(name)
        cluster.client.hold(None)
        status = whole(cluster, undisturbed)
        assert (status["repeated_micro_tasks"], status["went_back"]) == (0, [])


def test_in_stage_3_only_transient_nodes_work(tmp_path: Path, undisturbed: bytes) -> None:
    with LocalCluster(tmp_path) as cluster:
        run(cluster, 1, 3, stage_3_above=2.0)
        before = cluster.wait(lambda s: s["stage"] == 3 and not node(s, "r1")["partitions"], "stage 3")
        worked = before["micro_tasks_done"]["reliable"]
        status = whole(cluster, undisturbed)
        assert status["micro_tasks_done"]["reliable"] <= worked + 12, "but for the clock that was under way"


def test_a_reliable_server_is_lost_and_the_job_goes_on_from_its_checkpoint(tmp_path: Path, undisturbed: bytes) -> None:
    with LocalCluster(tmp_path) as cluster:
        run(cluster, 1, 1)
        cluster.wait(lambda s: s["clock"] >= 20, "some clocks")
        kept = cluster.client.checkpoint()
        cluster.kill("r1")
        status = cluster.wait(lambda s: s["state"] == "waiting", "the loss to be seen")
        assert "node r1 was lost with the shards it served" in status["reason"]
        assert [back["clock"] for back in status["went_back"]] == [kept["clock"]]
        cluster.start_node("r2", "reliable")
        whole(cluster, undisturbed)
