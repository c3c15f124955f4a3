"""`proteus doctor --boot`: a machine boots, joins its own controller and is ended; nothing is left of it."""

import sys
from pathlib import Path

import pytest

from proteus_spot.bidding.market.model import InstanceState
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.runtime import forget_runtime
from proteus_spot.infra.settings import load_settings
from proteus_spot.tasks.doctor.boot import boot
from proteus_spot.tasks.doctor.setup import Setup, Wrong
from tests.support.market_servers import EndpointProcess, credentials
from tests.tasks.doctor.test_account import job

pytestmark = pytest.mark.e2e


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    credentials(monkeypatch)
    endpoint = EndpointProcess(tmp_path, "system")
    for name, value in {
        "EC2_ENDPOINT_URL": endpoint.url,
        "DATABASE_URL": f"sqlite:///{tmp_path}/state.db",
        "BLOB_URL": (tmp_path / "blobs").as_uri(),
        "NODE_PYTHON": sys.executable,
        "NODE_HOST": "127.0.0.1",
    }.items():
        monkeypatch.setenv(f"PROTEUS_{name}", value)
    forget_runtime()
    yield endpoint
    forget_runtime()
    endpoint.close()


def states(endpoint: EndpointProcess) -> list[str]:
    return [str(row["state"]) for row in endpoint.log()]


def test_a_node_joins_and_is_ended(endpoint: EndpointProcess, tmp_path: Path) -> None:
    said: list[str] = []
    assert "joined after" in boot(Setup(load_settings(), job()), 1_000_000, said.append)
    assert states(endpoint) == [InstanceState.TERMINATED]
    assert said[0].startswith("bought i-")
    assert not list((tmp_path / "blobs").rglob("doctor-*/*.json"))


def test_an_image_without_the_program_is_told_and_the_machine_ended(
    endpoint: EndpointProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTEUS_NODE_PYTHON", "/absent/python")
    monkeypatch.setenv("PROTEUS_JOIN_MINUTES", "0.05")
    forget_runtime()
    with pytest.raises(Wrong, match="did not join within") as found:
        boot(Setup(load_settings(), job()), 1_000_000, print)
    assert "PROTEUS_NODE_PYTHON" in found.value.fix
    assert states(endpoint) == [InstanceState.TERMINATED]


def test_nothing_is_bought_beyond_the_budget(endpoint: EndpointProcess) -> None:
    with pytest.raises(InputError, match="may cost"):
        boot(Setup(load_settings(), job()), 1, print)
    assert states(endpoint) == []
