"""Nodes as local processes: one controller per job, nodes that run until let go or killed, none left over."""

from pathlib import Path

import pytest

import proteus_spot.tasks.local_nodes.local_nodes
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.nodes.controller_client import ControllerUnreachable
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.tasks.local_nodes.local_nodes import CONTROLLER, LocalNodes
from tests.support.cli_process import processes_of
from tests.support.local_cluster import LocalCluster
from tests.support.market_servers import wait_for

pytestmark = [pytest.mark.e2e]


def test_nodes_come_and_go_and_none_is_left(tmp_path: Path) -> None:
    blobs = Blobs((tmp_path / "blobs").as_uri())
    blobs.write_json(JobPaths("job").rendezvous, {"control": "tcp://127.0.0.1:9"})  # an earlier controller was killed
    with LocalNodes(tmp_path / "run", "job", blobs) as nodes:
        client = nodes.meet()
        for name, tier in (("r1", "reliable"), ("t1", "transient"), ("t2", "transient")):
            nodes.start(name, tier, 2)

        def there() -> set[str]:
            return {node["name"] for node in client.status()["nodes"] if not node["gone"]}

        wait_for(lambda: there() == {"r1", "t1", "t2"}, "the nodes", 60)
        assert {node["threads"] for node in client.status()["nodes"]} == {2}
        nodes.kill("t1")
        nodes.kill("t1")
        nodes.let_go("t2")
        wait_for(lambda: there() == {"r1"}, "their end", 60)
        nodes.start("t2", "transient", 1)  # under a name that is free again
        wait_for(lambda: there() == {"r1", "t2"}, "its return", 60)
        assert nodes.ended() == {}
        client.shutdown()
        ended: dict[str, str] = {}

        def all_ended() -> bool:
            ended.update(nodes.ended())
            return set(ended) == {CONTROLLER, "r1", "t2"}

        wait_for(all_ended, "the end of all", 60)
        assert nodes.ended() == {}, "each is told once"
        nodes.start("t3", "transient", 1)
        nodes.start("t4", "transient", 1)
        nodes.let_go("t4")
    assert processes_of(tmp_path) == []
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["logs"]
    assert sorted(path.stem for path in (tmp_path / "run" / "logs").iterdir()) == [
        *(CONTROLLER, "r1", "t1", "t2", "t3", "t4")
    ]


def test_a_job_that_somebody_else_trains_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proteus_spot.tasks.local_nodes.local_nodes, "_LINGER_S", 0.0)
    with LocalCluster(tmp_path) as cluster:
        meeting = cluster.blobs.read_json(JobPaths("job").rendezvous)
        with (
            LocalNodes(tmp_path / "run", "job", cluster.blobs) as nodes,
            pytest.raises(InputError, match=r"job job: is being trained by another process .* give another --job"),
        ):
            nodes.meet()
        assert cluster.blobs.read_json(JobPaths("job").rendezvous) == meeting
        assert not (tmp_path / "run").exists()


def test_a_controller_that_does_not_start_in_time_is_named_with_its_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in ("_STARTS_S", "_MEET_S"):
        monkeypatch.setattr(proteus_spot.tasks.local_nodes.local_nodes, seconds, 0.0)
    log = tmp_path / "run" / "logs" / f"{CONTROLLER}.log"
    with (
        LocalNodes(tmp_path / "run", "job", Blobs((tmp_path / "blobs").as_uri())) as nodes,
        pytest.raises(ControllerUnreachable, match=f"did not start within 0 s; its console: {log}"),
    ):
        nodes.meet()
