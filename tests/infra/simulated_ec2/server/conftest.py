"""A simulated market behind its endpoint."""

import pytest

from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from tests.support.market_servers import T0, TRACES, EndpointProcess, ManualClock, credentials, ec2_client, served, sold


@pytest.fixture
def clock():
    return ManualClock(T0 + 10)


@pytest.fixture
def sim(clock):
    return SimSpotMarket(TRACES, sold, clock.now_s)


@pytest.fixture
def endpoint(sim, clock, tmp_path, monkeypatch):
    credentials(monkeypatch)
    with served(sim, clock, tmp_path / "machines") as endpoint:
        yield endpoint


@pytest.fixture
def ec2(endpoint):
    return ec2_client(endpoint.url)


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Start the endpoint as a command, with a clock that practically stands still."""
    credentials(monkeypatch)
    scaled = ScaledClock.create(tmp_path / "clock", T0 + 10, 1e-6)
    started = []

    def start(*options):
        started.append(EndpointProcess(tmp_path, str(tmp_path / "clock"), options))
        started[-1].clock = scaled
        return started[-1]

    yield start
    for one in started:
        one.close()
