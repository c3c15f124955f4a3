"""A training in tiers on real processes, and checks of its result."""

from __future__ import annotations

from typing import Any

from tests.support.local_cluster import LocalCluster, digits_job

CLOCKS = 90


def node(status: dict[str, Any], name: str) -> dict[str, Any]:
    return next(n for n in status["nodes"] if n["name"] == name)


def servers(status: dict[str, Any]) -> set[str]:
    return {shard["node"] for shard in status["shards"]}


def run(cluster: LocalCluster, reliable: int, transient: int, **config: Any) -> None:
    cluster.start_nodes(reliable, transient)
    for name, value in {"features": 2000, "clocks": CLOCKS, "n_shards": 4}.items():
        config.setdefault(name, value)
    cluster.client.start(digits_job(cluster, **config).to_dict())


def active(cluster: LocalCluster, clock: int = 10) -> dict[str, Any]:
    """Wait until two transient nodes serve all shards, and the reliable ones have replicas; return the status."""
    return cluster.wait(
        lambda s: (
            len(servers(s)) == 2
            and all(name.startswith("t") for name in servers(s))
            and min(s["backup_clock"] or 0, s["clock"]) >= clock
        ),
        "shards on two transient nodes",
    )


def whole(cluster: LocalCluster, undisturbed: bytes) -> dict[str, Any]:
    """Wait for the end; check that the model is the undisturbed one and each clock counts once; return the status."""
    status = cluster.wait_state("finished")
    assert status["lost_micro_tasks"] == 0
    assert sum(status["micro_tasks_done"].values()) == CLOCKS * 12
    assert [clock for clock, _ in status["result"]["losses"]] == list(range(1, CLOCKS + 1))
    assert cluster.model()["weights"].tobytes() == undisturbed
    return status
