"""Dask and the controller's port over TLS: forced on the loopback, where otherwise all is plain."""

import asyncio
import json
import socket
import ssl
from pathlib import Path

import pytest

from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.nodes.controller_client import ControllerClient, ControllerUnreachable, host_and_port
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.tls import job_keys
from proteus_spot.infra.tls.certificates import ensure_keys, make_keys
from proteus_spot.infra.tls.job_keys import CONTROLLER, HEAD, NODE, ROLES, server_context, uses_tls
from proteus_spot.psengine.shell.control_port import ControlPort
from tests.support.local_cluster import LocalCluster, digits_job
from tests.support.timeouts import PATIENCE

FORCED = Settings(tls="on", node_host="127.0.0.1")


def test_the_loopback_is_plain_unless_forced() -> None:
    assert not any(uses_tls(host, "auto") for host in ("127.0.0.1", "::1", "localhost"))
    assert uses_tls(None, "auto")
    assert uses_tls("10.0.0.7", "auto")
    assert uses_tls("127.0.0.1", "on")


def test_keys_are_made_once_and_the_authority_is_forgotten(tmp_path: Path) -> None:
    blobs, paths = Blobs(tmp_path.as_uri()), JobPaths("job")
    assert not ensure_keys(blobs, "job", Settings(node_host="127.0.0.1"))
    assert not blobs.list("jobs/job")
    assert ensure_keys(blobs, "job", FORCED)
    before = {role: blobs.read_json(paths.tls_key(role)) for role in ROLES}
    assert ensure_keys(blobs, "job", FORCED)
    assert {role: blobs.read_json(paths.tls_key(role)) for role in ROLES} == before
    assert sum(name.count("tls/") for name in blobs.list("jobs/job")) == len(ROLES)
    assert len({key["key"] for key in before.values()}) == len(ROLES)
    assert "PRIVATE" not in repr(job_keys.read_key(blobs, "job", NODE))


def test_a_node_that_found_half_of_the_keys_gets_them_anew(tmp_path: Path) -> None:
    blobs, paths = Blobs(tmp_path.as_uri()), JobPaths("job")
    blobs.write_json(paths.tls_key(NODE), make_keys("job", 0.0)[NODE].to_json())  # the writer died here
    ensure_keys(blobs, "job", FORCED)
    assert len({blobs.read_json(paths.tls_key(role))["ca"] for role in ROLES}) == 1


async def _port(key: job_keys.RoleKey) -> tuple[ControlPort, int]:
    async def status(since_clock: int) -> dict[str, int]:
        return {"since": since_clock}

    port = ControlPort({"status": status})
    return port, await port.open("127.0.0.1", server_context(key), HEAD)


@pytest.mark.parametrize("role", [HEAD, NODE, None])
def test_the_controllers_port_answers_the_head_alone(tmp_path: Path, role: str | None) -> None:
    blobs, paths = Blobs(tmp_path.as_uri()), JobPaths("job")
    keys = make_keys("job", SystemClock().now_s())
    strange = make_keys("job", SystemClock().now_s())
    blobs.write_json(paths.tls_key(HEAD), (strange[HEAD] if role is None else keys[role]).to_json())

    async def ask() -> object:
        port, number = await _port(keys[CONTROLLER])
        client = ControllerClient(f"tls://127.0.0.1:{number}/job", 5.0 * PATIENCE, blobs.url)
        try:
            return await asyncio.to_thread(client.status, 7)
        finally:
            port.close()

    if role == HEAD:
        assert asyncio.run(ask()) == {"since": 7}
    else:
        with pytest.raises(ControllerUnreachable):
            asyncio.run(ask())


def test_a_plain_port_elsewhere_is_not_spoken_to() -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        client = ControllerClient(f"tcp://127.0.0.2:{server.getsockname()[1]}", 5.0)
        with pytest.raises(ControllerUnreachable, match="ConnectionError"):
            client.status()
        peer, _ = server.accept()
        with peer:
            assert peer.recv(1) == b"", "nothing was sent"


def test_a_node_cannot_pass_for_the_controller(tmp_path: Path) -> None:
    blobs, keys = Blobs(tmp_path.as_uri()), make_keys("job", SystemClock().now_s())
    blobs.write_json(JobPaths("job").tls_key(HEAD), keys[HEAD].to_json())

    async def ask() -> object:
        port, number = await _port(keys[NODE])
        client = ControllerClient(f"tls://127.0.0.1:{number}/job", 5.0 * PATIENCE, blobs.url)
        try:
            return await asyncio.to_thread(client.status, 7)
        finally:
            port.close()

    with pytest.raises(ControllerUnreachable):
        asyncio.run(ask())


@pytest.mark.e2e
@pytest.mark.slow
def test_a_job_is_trained_over_tls_and_a_node_without_its_key_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTEUS_TLS", "on")
    cluster = LocalCluster(tmp_path, anew=True)
    ensure_keys(cluster.blobs, "job", FORCED)
    with cluster:
        meeting = cluster.blobs.read_json(JobPaths("job").rendezvous)
        assert meeting["address"].startswith("tls://")
        assert meeting["control"].startswith("tls://")
        cluster.start_nodes(1, 1)
        assert all(node["address"].startswith("tls://") for node in cluster.client.status()["nodes"])

        strange = Blobs((tmp_path / "strange").as_uri())
        ensure_keys(strange, "job", FORCED)
        strange.write_json(JobPaths("job").rendezvous, meeting)
        cluster.blob_url, own = strange.url, cluster.blob_url
        cluster.start_node("stranger")
        cluster.blob_url = own
        log = tmp_path / "stranger.log"
        cluster.wait(lambda _: "cannot join" in log.read_text(), "the stranger's refusal")

        cluster.client.start(digits_job(cluster, features=64, clocks=5).to_dict())
        status = cluster.wait_state("finished")
        assert {node["name"] for node in status["nodes"]} == {"r1", "t1"}
        for address in (meeting["address"], meeting["control"]):
            assert _without_a_key(address) == b""


def _without_a_key(address: str) -> bytes:
    """Return what a port answers to a client that has no key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, port = host_and_port(address)
    with socket.create_connection((host, int(port)), 10 * PATIENCE) as plain:
        try:
            with context.wrap_socket(plain) as connection:
                connection.sendall(json.dumps({"op": "status", "arguments": {}}).encode() + b"\n")
                return connection.recv(1)
        except OSError:
            return b""
