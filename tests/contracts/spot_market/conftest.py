"""Every implementation of `SpotMarket`: the simulated one, and boto3 on the endpoint in front of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proteus_spot.bidding.evictions.fit_capacity import capacity_trace
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.rules.behaviour import Ec2Behaviour
from tests.support.market_cases import DOWN_AT, SCARCE, MarketCase
from tests.support.market_servers import T0, TRACES, A, ManualClock, client, credentials, served, sold


@contextmanager
def opened(
    kind: str, sim: SimSpotMarket, clock: ManualClock, directory: Path, patch: pytest.MonkeyPatch
) -> Iterator[MarketCase]:
    """Yield the simulated market itself, or boto3 on an endpoint in front of it."""
    if kind != "boto3":
        yield MarketCase(sim, sim, clock)
        return
    credentials(patch)
    with served(sim, clock, directory / "machines") as endpoint:
        yield MarketCase(client(endpoint.url, attempts=2), sim, clock)


@pytest.fixture(params=["simulated", "boto3", "scarce"])
def case(request, tmp_path, monkeypatch):
    clock = ManualClock(T0 + 10)
    scarce = SCARCE if request.param == "scarce" else {}
    sim = SimSpotMarket(TRACES, sold, clock.now_s, notice_s=120, capacity=scarce)
    with opened(request.param, sim, clock, tmp_path, monkeypatch) as market_case:
        yield market_case


@pytest.fixture(params=["simulated", "boto3"])
def scarce(request, tmp_path, monkeypatch):
    """A market without spot machines of A for ten minutes, whatever is bid; time is a while before that."""
    clock = ManualClock(T0 + DOWN_AT.start - 1000)
    sim = SimSpotMarket(TRACES, sold, clock.now_s, notice_s=120, capacity=SCARCE)
    with opened(request.param, sim, clock, tmp_path, monkeypatch) as market_case:
        yield market_case


@pytest.fixture(params=["simulated", "boto3"])
def counted(request, tmp_path, monkeypatch):
    """A market of today: A has three spot machines, from a quarter of an hour on one, and five later."""
    clock = ManualClock(T0 + 510)  # both markets have a price
    sim = SimSpotMarket(TRACES, sold, clock.now_s, notice_s=120, capacity={A: capacity_trace([3, 1, 5], 900, T0)})
    with opened(request.param, sim, clock, tmp_path, monkeypatch) as market_case:
        yield market_case


@pytest.fixture(params=["simulated", "boto3"])
def behaving(request, tmp_path, monkeypatch):
    """Return what opens a market of another behaviour."""

    def market(**behaviour):
        clock = ManualClock(T0 + 10)
        sim = SimSpotMarket(TRACES, sold, clock.now_s, notice_s=120, behaviour=Ec2Behaviour(**behaviour))
        return opened(request.param, sim, clock, tmp_path, monkeypatch)

    return market
