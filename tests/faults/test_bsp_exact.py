"""Real processes, real SIGKILLs: the model is bit for bit the undisturbed one, and no effect is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import part_name
from proteus_spot.psengine.apps.mlr import MultinomialLogisticRegression
from proteus_spot.psengine.config import JobConfig
from tests.support.local_cluster import LocalCluster, digits_job

pytestmark = [pytest.mark.e2e]

CLOCKS = 120
FEATURES = 2000


def node(status: dict[str, Any], name: str) -> dict[str, Any]:
    return next(n for n in status["nodes"] if n["name"] == name)


def past(clock: int) -> Any:
    return lambda status: status["clock"] >= clock


def kill_at_work(cluster: LocalCluster, name: str) -> dict[str, Any]:
    """SIGKILL a node while the controller waits for its work: it is stopped first, so that it cannot finish before."""
    process = cluster.processes[name]
    for _ in range(200):
        os.killpg(process.pid, signal.SIGSTOP)
        cluster.client.status()  # whatever it had sent is handled before the next answer
        status = cluster.client.status()
        if node(status, name)["running"]:
            cluster.kill(name)
            return status
        os.killpg(process.pid, signal.SIGCONT)
        now = status["clock"]
        cluster.wait(lambda s, now=now: s["clock"] > now, "the next clock")
    raise AssertionError(f"{name} was never caught at work")


def run(cluster: LocalCluster, reliable: int, transient: int, **config: Any) -> dict[str, Any]:
    cluster.start_nodes(reliable, transient)
    config.setdefault("features", FEATURES)
    config.setdefault("clocks", CLOCKS)
    cluster.client.start(digits_job(cluster, **config).to_dict())
    return cluster.client.status()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], np.ndarray]:
    with LocalCluster(tmp_path_factory.mktemp("undisturbed"), anew=True) as cluster:
        run(cluster, 1, 3, n_shards=2)
        status = cluster.wait_state("finished")
        assert status["repeated_micro_tasks"] == 0
        return status["result"], cluster.model()["weights"]


def test_two_notices_a_join_and_a_kill_leave_the_model_as_it_would_have_been(
    tmp_path: Path, undisturbed: tuple[dict[str, Any], np.ndarray]
) -> None:
    with LocalCluster(tmp_path) as cluster:
        cluster.client.hold(CLOCKS // 2)  # until both have left, should that take so long
        run(cluster, 1, 3, n_shards=2)
        cluster.start_node("t4")
        cluster.wait(past(CLOCKS // 3), "the middle third")
        before = cluster.client.status()
        assert all(node(before, name)["partitions"] for name in ("t1", "t2", "t3"))

        assert cluster.client.notice("t1", 60.0) == {"known": True}
        assert node(cluster.client.status(), "t1")["state"] == "leaving", "there is time, and it works on"
        assert cluster.client.drain(["t1"], 30.0) == {"draining": ["t1"], "refused": []}
        cluster.wait(lambda s: node(s, "t1")["state"] == "drained", "t1 to be drained")
        cluster.kill("t1")
        assert cluster.client.notice("t2", 30.0) == {"known": True}
        assert cluster.client.drain(["t2", "r1"], 30.0) == {"draining": ["t2"], "refused": ["r1"]}
        cluster.wait(lambda s: node(s, "t2")["state"] == "drained", "t2 to be drained")
        cluster.kill("t2")
        assert cluster.client.status()["repeated_micro_tasks"] == 0  # with notice nothing is done twice
        cluster.client.hold(None)

        at_kill = kill_at_work(cluster, "t3")
        assert CLOCKS // 3 <= at_kill["clock"] < CLOCKS
        status = cluster.wait_state("finished")

        model = cluster.model()["weights"]
        result = status["result"]
        assert [n["node"] for n in status["notices"]] == ["t1", "t2"]
        assert node(status, "t3")["state"] == "lost"
        assert node(status, "t4")["partitions"]
        assert status["repeated_micro_tasks"] == result["repeated_micro_tasks"] > 0
        assert status["lost_micro_tasks"] == result["lost_micro_tasks"] == 0
        assert sum(status["micro_tasks_done"].values()) == CLOCKS * 12
        assert model.tobytes() == undisturbed[1].tobytes()
        assert [tuple(p) for p in result["losses"]] == [tuple(p) for p in undisturbed[0]["losses"]]
        assert set(cluster.shutdown().values()) == {0}


def test_reliable_nodes_alone_make_the_same_model(
    tmp_path: Path, undisturbed: tuple[dict[str, Any], np.ndarray]
) -> None:
    with LocalCluster(tmp_path) as cluster:
        run(cluster, 2, 0, n_shards=2, n_reliable=2)
        status = cluster.wait_state("finished")
        assert status["micro_tasks_done"]["transient"] == 0
        assert cluster.model()["weights"].tobytes() == undisturbed[1].tobytes()
        assert status["result"]["accuracy"] >= 0.95


def bare_loop(cluster: LocalCluster, job: JobConfig, clocks: int) -> np.ndarray:
    """Return what the same kernel makes of the same partitions without any engine, summed in halves of halves."""
    app = MultinomialLogisticRegression(**job.app_params)
    data = Blobs(job.data_url)
    parts = [app.prepare(data.read_npz(part_name(p))) for p in range(job.n_partitions)]
    (table,) = app.tables()
    weights = np.zeros((table.n_rows, table.n_cols), np.float32)
    with threadpool_limits(1):
        for clock in range(1, clocks + 1):
            steps = [app.run(part, {"weights": weights}, clock).updates["weights"] for part in parts]
            weights = weights + halves(steps)
    return weights


def test_every_server_leaves_and_the_model_is_as_it_would_have_been(
    tmp_path: Path, undisturbed: tuple[dict[str, Any], np.ndarray]
) -> None:
    """Shards move while the training goes on: from r1 to r2, and from there to r3, which came later."""
    with LocalCluster(tmp_path) as cluster:
        cluster.client.hold(CLOCKS // 2)  # until the third one is there
        run(cluster, 2, 1, n_shards=2, n_reliable=2)
        cluster.wait(past(CLOCKS // 6), "some clocks")
        assert cluster.client.drain(["r1"], 30.0) == {"draining": ["r1"], "refused": []}
        cluster.wait(lambda s: node(s, "r1")["state"] == "drained", "r1 to be drained")
        cluster.kill("r1")
        assert cluster.client.drain(["r2"], 30.0) == {"draining": [], "refused": ["r2"]}, "nobody else could serve"
        cluster.start_node("r3", "reliable")
        cluster.wait(lambda s: any(n["name"] == "r3" and n["state"] == "ready" for n in s["nodes"]), "r3")
        assert cluster.client.drain(["r2"], 30.0) == {"draining": ["r2"], "refused": []}
        cluster.client.hold(None)
        cluster.wait(lambda s: node(s, "r2")["state"] == "drained", "r2 to be drained")
        cluster.kill("r2")
        status = cluster.wait_state("finished")
        assert (status["repeated_micro_tasks"], status["lost_micro_tasks"]) == (0, 0)
        assert cluster.model()["weights"].tobytes() == undisturbed[1].tobytes()


def halves(steps: list[np.ndarray]) -> np.ndarray:
    middle = len(steps) // 2
    return steps[0] if len(steps) == 1 else halves(steps[:middle]) + halves(steps[middle:])


def test_all_transient_nodes_are_lost_and_others_join(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:
        run(cluster, 1, 2, n_shards=2, clocks=None, max_seconds=600.0)
        cluster.wait(past(5), "some clocks")
        for name in ("t1", "t2"):
            cluster.kill(name)
        alone = cluster.wait(lambda s: len(node(s, "r1")["partitions"]) == 12, "the reliable node to take over")
        cluster.wait(past(alone["clock"] + 2), "clocks of the reliable node alone")
        cluster.start_node("t1")  # as its supervisor would, under the same name
        cluster.start_node("t3")
        status = cluster.wait(
            lambda s: (
                all(node(s, n)["partitions"] for n in ("t1", "t3") if any(m["name"] == n for m in s["nodes"]))
                and len(s["nodes"]) == 4
            ),
            "the new ones to work",
        )
        cluster.wait(past(status["clock"] + 2), "clocks with the new ones")
        cluster.client.stop("seen enough")
        status = cluster.wait_state("stopped")
        assert status["micro_tasks_done"]["transient"] > alone["micro_tasks_done"]["transient"]
        assert status["lost_micro_tasks"] == 0
        job = digits_job(cluster, features=FEATURES)
        assert cluster.model()["weights"].tobytes() == bare_loop(cluster, job, status["clock"]).tobytes()


@pytest.mark.storm  # tests/psengine/whole_engine has stale reads through kills in virtual time
def test_stale_reads_converge_through_a_kill(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:
        run(cluster, 1, 2, n_shards=3, staleness=2)
        cluster.wait(past(CLOCKS // 3), "some clocks")
        kill_at_work(cluster, "t1")
        status = cluster.wait_state("finished")
        assert status["clock"] == CLOCKS
        assert status["repeated_micro_tasks"] > 0
        assert status["lost_micro_tasks"] == 0
        assert status["result"]["accuracy"] >= 0.95
        losses = dict(status["losses"])
        assert losses[CLOCKS] < losses[1] / 2


def test_stop_saves_the_clock_under_way_and_a_new_controller_finds_it(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:
        run(cluster, 1, 1, clocks=None, max_seconds=600.0)
        cluster.wait(past(3), "some clocks")
        job = digits_job(cluster, features=FEATURES, clocks=None, max_seconds=600.0).to_dict()
        assert cluster.client.start(job)["clock"] >= 3  # attached, not begun anew
        cluster.client.stop("enough")
        status = cluster.wait_state("stopped")
        assert (status["reason"], status["lost_micro_tasks"]) == ("enough", 0)
        assert status["result"]["clocks"] == status["clock"] == status["losses"][-1][0]
        assert status["result"]["stopped"] == "enough"

        cluster.kill("controller")
        cluster.start_controller()
        found = cluster.client.start(job)
        assert (found["state"], found["reason"], found["clock"]) == ("stopped", "enough", status["clock"])
        assert found["result"]["stopped"] == "enough"
        assert found["result"]["accuracy"] == status["result"]["accuracy"]
        cluster.wait(lambda s: len([n for n in s["nodes"] if not n["gone"]]) == 2, "both nodes to find it")
        assert set(cluster.shutdown().values()) == {0}
