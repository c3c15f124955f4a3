"""The process entry and the controller's client, as far as one process can show it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.nodes import node_process as node
from proteus_spot.infra.nodes.controller_client import (
    NO_LOSSES,
    ControllerClient,
    ControllerUnreachable,
    wait_rendezvous,
)
from proteus_spot.infra.nodes.main import main, parse
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.storage import job_paths
from proteus_spot.infra.storage.blobs import BlobError, BlobMissing, Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.version import program_version
from proteus_spot.psengine.config import JOB_ID_PATTERN
from proteus_spot.psengine.protocol.protocol_version import PROTOCOL
from proteus_spot.studies.form_fields import JOB_ID_PATTERN as JOB_SPEC_PATTERN
from tests.support.local_cluster import LocalCluster, digits_job
from tests.support.timeouts import PATIENCE


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
    with pytest.raises(ControllerUnreachable, match=r"tcp://127\.0\.0\.1:1: no answer to status"):
        client.status()
    assert time.monotonic() - began < 2 * PATIENCE


def test_a_rendezvous_that_never_comes_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        ControllerUnreachable, match=r"no controller was met in 0\.2 s .*rendezvous\.json: is not there"
    ):
        wait_rendezvous(tmp_path.as_uri(), "job", 0.2)


def test_an_address_is_believed_when_the_controller_there_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(tmp_path.as_uri())
    blobs.write_json(JobPaths("job").rendezvous, {"control": "tcp://127.0.0.1:1", "protocol": PROTOCOL})
    with pytest.raises(ControllerUnreachable, match=r"no controller was met .*127\.0\.0\.1:1: no answer"):
        wait_rendezvous(blobs.url, "job", 0.2)

    asked = []

    def status(self: ControllerClient, since_clock: int = 0) -> dict[str, object]:
        asked.append((self.address, since_clock))
        return {"job_id": [None, "other", "job"][len(asked) % 3]}

    monkeypatch.setattr(ControllerClient, "status", status)
    assert wait_rendezvous(blobs.url, "job", 5.0) == "tcp://127.0.0.1:1"
    assert asked == [("tcp://127.0.0.1:1", NO_LOSSES)] * 2  # that of another job was not believed


class Blank:
    """A blob store in which nothing ever is; counts the looks."""

    def __init__(self, error: Exception) -> None:
        self.error, self.looks = error, 0

    def read_json(self, name: str) -> object:
        self.looks += 1
        raise self.error


@pytest.mark.parametrize("error", [BlobMissing("is not there"), BlobError("a bad second")])
def test_a_controller_that_does_not_come_is_looked_for_seldom(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "_LOOK_S", 0.01)
    monkeypatch.setattr(node, "_SOON_S", 0.2)
    blank = Blank(error)

    async def meet() -> str | None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(1.0, stop.set)
        return await node._meet(blank, "rendezvous", stop)  # type: ignore[arg-type]

    assert asyncio.run(meet()) is None
    assert 3 <= blank.looks <= 25  # not the hundred of one look every 0.01 s


@pytest.mark.parametrize(
    ("version", "shown"), [("9.9.9 (protocol 3)", "9.9.9 (protocol 3)"), ("", "of an unknown version")]
)
def test_a_node_does_not_join_a_controller_of_another_protocol(tmp_path: Path, version: str, shown: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as controller:
        meeting = {"address": f"tcp://127.0.0.1:{controller.getsockname()[1]}", "version": version}
        Blobs(tmp_path.as_uri()).write_json(JobPaths("job").rendezvous, meeting)
        options = ("--job", "job", "--blob", tmp_path.as_uri(), "--name", "i-1", "--tier", "transient", "--no-notices")
        done = subprocess.run(
            [sys.executable, "-m", "proteus_spot.infra.nodes.main", *options],
            check=False,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60 * PATIENCE,
        )
    assert done.returncode == 2
    assert (
        f"the controller at {meeting['address']} runs Proteus {shown}, and this node {program_version()}; "
        in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_a_bucket_is_reached_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def opened(settings: Settings) -> None:
        made.append((settings.blob_url, settings.region))
        raise BlobError("enough")

    monkeypatch.setattr("proteus_spot.infra.settings.load_settings", lambda: Settings(region="eu-west-1"))
    monkeypatch.setattr("proteus_spot.infra.storage.blobs.open_blobs", opened)
    monkeypatch.setattr(
        "proteus_spot.infra.nodes.controller_client.load_settings", lambda: Settings(region="eu-west-1")
    )
    monkeypatch.setattr("proteus_spot.infra.nodes.controller_client.open_blobs", opened)
    for use in (lambda: node._load("s3://b/data", 0), lambda: wait_rendezvous("s3://b/blobs", "job", 0.1)):
        with pytest.raises(BlobError):
            use()
    assert made == [("s3://b/data", "eu-west-1"), ("s3://b/blobs", "eu-west-1")]


def test_a_job_has_one_id_everywhere() -> None:
    assert job_paths._JOB_ID.pattern == JOB_ID_PATTERN
    characters, _, most = JOB_ID_PATTERN.rpartition("{0,")
    theirs, _, their_most = JOB_SPEC_PATTERN.removeprefix("^").removesuffix("$").rpartition("{0,")
    assert theirs == characters
    assert int(their_most.rstrip("}")) <= int(most.rstrip("}"))  # an order's id holds the job's, and EC2 limits it


@pytest.mark.e2e
def test_a_controller_lives_and_ends_by_itself(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, anew=True) as cluster:
        assert cluster.client.status()["state"] == "starting"
        job = digits_job(cluster, features=0, clocks=1)
        with pytest.raises(InputError, match="job job: app 'mlp' is not known"):
            cluster.client.start(job.to_dict() | {"app": "mlp"})
        cluster.client.start(job.to_dict())
        with pytest.raises(InputError, match="runs job 'job', not 'other'"):
            cluster.client.start(job.to_dict() | {"job_id": "other"})
        stopped = cluster.client.stop("no nodes")
        assert (stopped["state"], stopped["reason"]) == ("stopped", "no nodes")
        assert (stopped["result"]["clocks"], stopped["result"]["stopped"]) == (0, "no nodes")
        cluster.start_node("t1")
        cluster.wait(lambda s: len(s["nodes"]) == 1, "the node")
        assert cluster.terminate("controller") == 0
        with pytest.raises(ControllerUnreachable):
            wait_rendezvous(cluster.blob_url, "job", 0.1)  # it took its address back
        cluster.start_controller()
        cluster.wait(lambda s: len(s["nodes"]) == 1, "the node to find the new controller")
        assert cluster.terminate("t1") == 0


class Metadata(BaseHTTPRequestHandler):
    """Wants a token, and says 404 until `marked`; then the machine is taken in `LEFT_S` seconds."""

    LEFT_S = 8

    marked = threading.Event()
    asked = threading.Event()

    def do_PUT(self) -> None:
        self.answer(200, "token")

    def do_GET(self) -> None:
        if self.headers["X-aws-ec2-metadata-token"] != "token":
            self.answer(401, "")
        elif self.marked.is_set():
            at = (datetime.now(UTC) + timedelta(seconds=self.LEFT_S)).strftime("%Y-%m-%dT%H:%M:%SZ")
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
    with LocalCluster(tmp_path, anew=True) as cluster:
        cluster.start_node("r1", "reliable")
        cluster.start_node("t1", metadata_url=metadata)
        cluster.wait(lambda s: len(s["nodes"]) == 2, "both nodes")
        cluster.client.start(digits_job(cluster, features=2000, clocks=None, max_seconds=60.0).to_dict())
        cluster.wait(lambda s: s["clock"] >= 3 and s["micro_tasks_done"]["transient"] > 0, "some clocks")
        assert Metadata.asked.wait(10 * PATIENCE)
        assert cluster.client.status()["notices"] == []
        Metadata.marked.set()
        status = cluster.wait(lambda s: any(n["state"] == "drained" for n in s["nodes"]), "the node to be drained")
        (notice,) = status["notices"]
        assert (notice["node"], notice["seq"]) == ("t1", 1)
        assert Metadata.LEFT_S - 5 < notice["seconds_left"] <= Metadata.LEFT_S
        assert next(n for n in status["nodes"] if n["name"] == "r1")["partitions"] == list(range(12))
        assert cluster.client.stop("seen enough")["repeated_micro_tasks"] == 0
        cluster.wait_state("stopped")


def test_the_end_of_a_controller_is_no_loss_where_the_model_is_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blobs = Blobs(tmp_path.as_uri())
    with caplog.at_level(logging.INFO):
        node._log_loss(blobs, "job", "tcp://1.2.3.4:5")
        blobs.write_set(JobPaths("job").model, {"model.npz": b"model"})
        node._log_loss(blobs, "job", "tcp://1.2.3.4:5")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert caplog.messages[0] == "lost the controller at tcp://1.2.3.4:5; looking for it again"
