"""The process entry and the controller's client, as far as one process can show it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from infra.cluster import ControllerClient, ControllerUnreachable, wait_rendezvous
from infra.errors import InputError
from infra.node import main, parse
from tests.support.engine import LocalCluster, digits_job


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--tier", "gold"), "invalid choice"),
        (("--threads", "0"), "must be at least 1"),
        (("--poll-s", "0"), "above 0"),
    ],
)
def test_bad_options_end_with_code_2(change: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    good = ["--job", "j", "--blob", "memory://b", "--name", "i-1", "--tier", "reliable"]
    assert parse(good).controller is False
    with pytest.raises(SystemExit) as end:
        main([*good, *change])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_a_controller_that_is_not_there_is_told_at_once() -> None:
    client = ControllerClient("tcp://127.0.0.1:1", timeout_s=0.3)
    began = time.monotonic()
    with pytest.raises(ControllerUnreachable, match=r"tcp://127\.0\.0\.1:1: no answer to proteus_status"):
        client.status()
    assert time.monotonic() - began < 2


def test_a_rendezvous_that_never_comes_is_told(tmp_path: Path) -> None:
    with pytest.raises(ControllerUnreachable, match="no controller wrote"):
        wait_rendezvous(tmp_path.as_uri(), "job", 0.2)


@pytest.mark.e2e
def test_a_controller_lives_and_ends_by_itself(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:
        assert cluster.client.status()["state"] == "starting"
        job = digits_job(cluster, features=0, clocks=1)
        with pytest.raises(InputError, match="job job: app 'mlp' is not known"):
            cluster.client.start(job.to_dict() | {"app": "mlp"})
        cluster.client.start(job.to_dict())
        with pytest.raises(InputError, match="runs job 'job', not 'other'"):
            cluster.client.start(job.to_dict() | {"job_id": "other"})
        assert cluster.client.stop("no nodes")["state"] == "stopped"
        cluster.start_node("t1")
        cluster.wait(lambda s: len(s["nodes"]) == 1, "the node")
        assert cluster.terminate("controller") == 0
        with pytest.raises(ControllerUnreachable):
            wait_rendezvous(cluster.blob_url, "job", 0.1)  # it took its address back
        cluster.start_controller()
        cluster.wait(lambda s: len(s["nodes"]) == 1, "the node to find the new controller")
        assert cluster.terminate("t1") == 0


class Metadata(BaseHTTPRequestHandler):
    """Wants a token, and says 404 until `marked`."""

    marked = threading.Event()
    asked = threading.Event()

    def do_PUT(self) -> None:
        self.answer(200, "token")

    def do_GET(self) -> None:
        if self.headers["X-aws-ec2-metadata-token"] != "token":
            self.answer(401, "")
        elif self.marked.is_set():
            at = (datetime.now(UTC) + timedelta(seconds=20)).strftime("%Y-%m-%dT%H:%M:%SZ")
            self.answer(200, json.dumps({"action": "terminate", "time": at}))
        else:
            self.answer(404, "")
            self.asked.set()

    def answer(self, code: int, body: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def metadata() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.e2e
def test_a_notice_on_the_node_drains_it(tmp_path: Path, metadata: str) -> None:
    with LocalCluster(tmp_path) as cluster:
        cluster.start_node("r1", "reliable")
        cluster.start_node("t1", metadata_url=metadata)
        cluster.wait(lambda s: len(s["nodes"]) == 2, "both nodes")
        cluster.client.start(digits_job(cluster, features=2000, clocks=None, max_seconds=60.0).to_dict())
        cluster.wait(lambda s: s["clock"] >= 3 and s["micro_tasks_done"]["transient"] > 0, "some clocks")
        assert Metadata.asked.wait(10)
        assert cluster.client.status()["notices"] == []
        Metadata.marked.set()
        status = cluster.wait(lambda s: any(n["state"] == "drained" for n in s["nodes"]), "the node to be drained")
        (notice,) = status["notices"]
        assert (notice["node"], notice["seq"]) == ("t1", 1)
        assert 15 < notice["seconds_left"] <= 20
        assert next(n for n in status["nodes"] if n["name"] == "r1")["partitions"] == list(range(12))
        assert cluster.client.stop("seen enough")["repeated_micro_tasks"] == 0
        cluster.wait_state("stopped")
