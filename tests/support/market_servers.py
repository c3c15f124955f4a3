"""Simulated markets for tests: one in this process with a clock that a test moves, one as the real command."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import httpx
import numpy as np

from proteus_spot.bidding.market.model import InstanceType, LaunchRequest, Market
from proteus_spot.bidding.market.money import to_micros
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket
from proteus_spot.infra.market_data.price_files import write_prices
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.simulated_ec2.held_instances import ACCOUNT
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket
from proteus_spot.infra.simulated_ec2.server import KEY_HEADER, Endpoint
from tests.support.timeouts import PATIENCE

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client

#: The access key id of the endpoint in this process, with its account, and another account's.
KEY = "test"
OTHER_KEY, OTHER_ACCOUNT = "other", "222222222222"
KEYS = {KEY: ACCOUNT, OTHER_KEY: OTHER_ACCOUNT}
#: What a process needs to call it.
SIGNED = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": "unchecked"}
#: The first second of the test market (2016-03-01T00:00:00Z).
T0 = 1456790400
A = Market("c4.large", "us-east-1a")
B = Market("c4.large", "us-east-1b")
_TYPES: Mapping[str, InstanceType] = {
    "c4.large": InstanceType("c4.large", 2, 3.75, to_micros("0.105")),
    "c4.xlarge": InstanceType("c4.xlarge", 4, 7.5, to_micros("0.209")),
}


@cache
def _session() -> boto3.session.Session:
    return boto3.session.Session(**{name.lower(): value for name, value in SIGNED.items()})  # type: ignore[arg-type]


def ec2_client(url: str | None = None) -> "EC2Client":
    """Return boto3's client. All are of one session: each session reads EC2's description anew, a tenth of a second."""
    return _session().client("ec2", region_name="us-east-1", endpoint_url=url)


def sold(market: Market) -> InstanceType | None:
    """Return the type of a market, at its on-demand price."""
    return _TYPES.get(market.instance_type)


#: A: 0.02, from 1000 s on 0.05, from 4000 s on 0.02 again. B: from 500 s on 0.03.
TRACES = TraceSet(
    {
        A: Trace(np.array([T0, T0 + 1000, T0 + 4000]), np.array([20_000, 50_000, 20_000])),
        B: Trace(np.array([T0 + 500]), np.array([30_000])),
    }
)


class ManualClock:
    """Market time that stands still until a test moves it."""

    scale = 1.0

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def now_s(self) -> float:
        return self.at_s

    def wait_until(self, at_s: float, wake: threading.Event | None = None) -> bool:
        raise AssertionError("nobody may wait for a clock that stands still")


def request(
    token: str,
    market: Market = A,
    count: int = 1,
    bid: str | None = "0.03",
    user_data: str = "",
    tags: Mapping[str, str] | None = None,
    **more: Any,
) -> LaunchRequest:
    """A purchase with the usual parameters."""
    bid_micros = None if bid is None else to_micros(bid)
    return LaunchRequest(token, market, count, bid_micros, user_data, dict(tags or {}), **more)


def client(url: str, **more: float) -> Ec2SpotMarket:
    """The boto3 market that talks to `url`. The environment must hold credentials (see `credentials`)."""
    return Ec2SpotMarket(Settings(ec2_endpoint_url=url), **more)  # type: ignore[arg-type]


def credentials(monkeypatch) -> None:
    """Let boto3 find the credentials of `served`, and no configuration of the user's."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_EC2", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@contextlib.contextmanager
def served(market: SimSpotMarket, clock: ManualClock, work_dir: Path) -> Iterator[Endpoint]:
    """Serve `market` from a thread of this process."""
    endpoint = Endpoint(market, clock, work_dir, KEYS)
    up = threading.Event()
    loop = asyncio.new_event_loop()
    main: list[asyncio.Task[None]] = []
    failed: list[BaseException] = []

    async def serve() -> None:
        main.append(asyncio.current_task())  # type: ignore[arg-type]
        await endpoint.start()
        try:
            up.set()
            await endpoint.run()
        finally:
            await endpoint.stop()

    def run() -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError), asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(serve())
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            failed.append(error)
        finally:
            up.set()

    thread = threading.Thread(target=run, name="endpoint")
    thread.start()
    try:
        assert up.wait(20 * PATIENCE), "the endpoint did not start"
        if failed:
            raise failed[0]
        yield endpoint
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(main[0].cancel)
        thread.join(20)
        assert not thread.is_alive(), "the endpoint did not stop"
        if failed:
            raise failed[0]


class EndpointProcess:
    """The endpoint as the command that a run starts."""

    def __init__(self, directory: Path, clock: str, options: Sequence[str] = (), traces: TraceSet = TRACES) -> None:
        self.work_dir = directory / "machines"
        self._announce = directory / "endpoint.json"
        prices = directory / "prices.csv"
        write_prices(prices, traces)
        self.process = subprocess.Popen(
            [
                *(
                    sys.executable,
                    "-m",
                    "proteus_spot.infra.simulated_ec2.server",
                    "--clock",
                    clock,
                    "--prices",
                    str(prices),
                ),
                *("--work-dir", str(self.work_dir), "--announce", str(self._announce), *options),
            ],
            start_new_session=True,
        )
        wait_for(lambda: self._announce.exists() or self.process.poll() is not None, "the endpoint's announcement")
        assert self.process.poll() is None, f"the endpoint ended with {self.process.returncode}"
        announced = json.loads(self._announce.read_text())
        self.url = announced["url"]
        self.metadata_url = announced["metadata_url"]
        self.key_id = announced["access_key_id"]
        os.environ["AWS_ACCESS_KEY_ID"] = self.key_id  # `credentials` restores it
        self.pid = announced["pid"]

    @property
    def credentials(self) -> dict[str, str]:
        """What a process needs to call it."""
        return {"AWS_ACCESS_KEY_ID": self.key_id, "AWS_SECRET_ACCESS_KEY": "unchecked"}

    def log(self) -> list[dict[str, object]]:
        """The market's own record."""
        answer = httpx.get(f"{self.url}/_market/log", headers={KEY_HEADER: self.key_id})
        answer.raise_for_status()
        return answer.json()

    def close(self) -> None:
        """End it, if it has not ended."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(20 * PATIENCE)


def wait_for(condition, what: str, within_s: float = 20.0) -> None:
    """Wait until `condition()` holds; fail naming `what` if it does not in time.

    It is looked at a hundred times a second, and ten times after a while: what it looks at needs the processors, too.
    """
    clock = SystemClock()
    begun_s = clock.now_s()
    while not condition():
        waited_s = clock.now_s() - begun_s
        assert waited_s < within_s * PATIENCE, f"waited {within_s * PATIENCE:g} s for {what}"
        clock.wait_until(clock.now_s() + min(max(waited_s / 20, 0.01), 0.1))
