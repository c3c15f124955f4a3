from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from proteus_spot.infra.settings import Settings
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.rules.behaviour import Ec2Behaviour
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.doctor.setup import Setup
from tests.support.market_servers import T0, TRACES, ManualClock, credentials, served, sold


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Setup, SimSpotMarket]]]:
    """Serve simulated markets; each call makes one, of a behaviour and for a job, and returns its set-up."""
    credentials(monkeypatch)
    with ExitStack() as stack:

        def serve(job: JobSpec | None = None, **behaviour: Any) -> tuple[Setup, SimSpotMarket]:
            sim = SimSpotMarket(TRACES, sold, ManualClock(T0 + 10).now_s, behaviour=Ec2Behaviour(**behaviour))
            server = stack.enter_context(served(sim, ManualClock(T0 + 10), tmp_path / "machines"))
            return Setup(Settings(ec2_endpoint_url=server.url), job), sim

        yield serve


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve moto's EC2, which has networks and images; yield its URL."""
    credentials(monkeypatch)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        yield url
    finally:
        server.stop()
