"""The scale of `proteus run`: one that flows here cannot keep is refused, or lowered."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.server import Endpoint
from tests.support.cli_process import (
    proteus,
    running,
    wait_gone,
)
from tests.support.market_servers import SIGNED, TRACES, ManualClock, served, sold
from tests.support.run_markets import BEGIN_S

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
def slow_market(tmp_path: Path) -> Iterator[tuple[SimSpotMarket, Endpoint]]:
    """A market that takes its time, so that a tick takes longer than its period lasts at a scale of 60."""
    clock = ManualClock(float(BEGIN_S))
    market = SimSpotMarket(TRACES, sold, clock.now_s)
    market.add_fault(Fault(FaultKind.DELAY, operation="describe", delay_s=1.0))  # a flow looks once, a tick three times
    with served(market, clock, tmp_path / "machines") as endpoint:
        yield market, endpoint


def test_a_scale_that_flows_here_cannot_keep_is_refused(
    tmp_path: Path, home: Path, slow_market: tuple[SimSpotMarket, Endpoint]
) -> None:
    market, endpoint = slow_market
    options = ("--endpoint", endpoint.url, "--dir", str(tmp_path / "run"), "--scale", "100")
    outcome = proteus("run", *options, cwd=tmp_path, home=home, timeout_s=150, **SIGNED)
    assert outcome.code == 2, outcome
    refused = (
        r"PROTEUS_TICK_S: 120 s pass in 1\.20 s at scale 100, and a flow takes (\d+\.\d\d) s here; use a scale of at .*"
    )
    said = re.search(f"proteus: {refused}\n", outcome.err)
    assert said is not None, outcome
    assert float(said[1]) >= 3.0
    assert market.log() == []
    wait_gone(tmp_path / "run")


@pytest.mark.storm  # most of a minute
def test_a_scale_that_flows_here_can_keep_is_taken(tmp_path: Path, slow_market: tuple[SimSpotMarket, Endpoint]) -> None:
    _, endpoint = slow_market
    with running(tmp_path / "slower", "--endpoint", endpoint.url, "--job", "slower", **SIGNED) as run:
        run.wait_said(r"at a scale of \d+, not 60: a tick takes \d+\.\d\d s here")
        taken = re.search(r"at a scale of (\d+), not 60", run.text())
        assert taken is not None
        assert ScaledClock(run.directory / "clock.json").scale == float(taken[1]) < 60
        run.signal(signal.SIGINT)
    wait_gone(run.directory)
