"""Benchmark `endpoint`: the EC2-compatible endpoint, launches beside moto's server, prices beside the bare market."""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
import numpy as np
from botocore.config import Config

from proteus_spot.benchmarks.figure import Figure, figure, seconds
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.bidding.synthetic.renewal_market import MarketClimate, generate
from proteus_spot.infra.child_process import Child
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.market_data.price_files import write_prices
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.simulated_ec2.market import SimSpotMarket

INSTANCES = 60
ROWS = 5000
_ROUNDS = 3
_BEGIN = datetime(2016, 3, 1, tzinfo=UTC)
_MARKET = Market("c4.large", "us-east-1a")
_AWS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_EC2_METADATA_DISABLED": "true"}


def run(scratch: Path) -> list[Figure]:
    """Measure."""
    traces = _traces()
    write_prices(scratch / "endpoint.csv.gz", traces)
    with patch.dict(os.environ, _AWS), _endpoint(scratch) as url:
        return [*_launches(url), _history(url, traces)]


def _launches(url: str) -> list[Figure]:
    if find_spec("flask_cors") is None:
        print("endpoint: launches are skipped: moto's server needs Flask; pip install flask flask-cors")
        return []
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs every call
    moto.start()
    try:
        host, port = moto.get_host_and_port()
        ours = [seconds(partial(_launch_all, url, f"ours-{n}")) for n in range(_ROUNDS)]
        peer = [seconds(partial(_launch_all, f"http://{host}:{port}", f"moto-{n}")) for n in range(_ROUNDS)]
    finally:
        moto.stop()
    what = f"launch {INSTANCES} spot instances, one call each"
    return [figure("endpoint", what, "s", ours, peer, "moto's server, the same calls", "no user-data on either side")]


def _launch_all(url: str, name: str) -> None:
    client: Any = boto3.client(
        "ec2", region_name="us-east-1", endpoint_url=url, config=Config(retries={"total_max_attempts": 1})
    )
    for number in range(INSTANCES):
        client.run_instances(
            ImageId="ami-00000000",
            InstanceType=_MARKET.instance_type,
            MinCount=1,
            MaxCount=1,
            ClientToken=f"{name}-{number}",
            Placement={"AvailabilityZone": _MARKET.zone},
            InstanceMarketOptions={"MarketType": "spot", "SpotOptions": {"MaxPrice": "5.0"}},
        )


def _history(url: str, traces: TraceSet) -> Figure:
    market = Ec2SpotMarket(Settings(ec2_endpoint_url=url))
    catalog = read_catalog()
    bare = SimSpotMarket(traces, lambda market: catalog.find(market, _BEGIN.date()), SystemClock().now_s)
    markets = list(traces.markets)
    asked = (markets, traces.first_s, traces.last_s)
    assert len(market.price_history(*asked)) == len(bare.price_history(*asked)) == ROWS  # it also creates the client
    ours = [seconds(lambda: market.price_history(*asked)) for _ in range(_ROUNDS)]
    limit = [seconds(lambda: bare.price_history(*asked)) for _ in range(_ROUNDS)]
    what = f"read {ROWS:,} price rows in {-(-ROWS // 1000)} pages"
    return figure("endpoint", what, "s", ours, limit, "the market asked directly, no wire")


def _traces() -> TraceSet:
    """Return the traces of two markets with `ROWS` events in all."""
    types = read_catalog().at(_BEGIN.date(), "us-east-1")
    markets = [_MARKET, Market(_MARKET.instance_type, "us-east-1b")]
    on_demand = {market: types[market.instance_type].on_demand_micros for market in markets}
    from_s = int(_BEGIN.timestamp())
    made = generate(on_demand, from_s, from_s + 60 * 86_400, np.random.default_rng(0), climate=MarketClimate())
    each = ROWS // len(markets)
    return TraceSet({m: Trace(made[m].times_s[:each], made[m].prices_micros[:each]) for m in markets})


@contextmanager
def _endpoint(scratch: Path) -> Iterator[str]:
    announce = scratch / "endpoint.json"
    command = [
        *(
            sys.executable,
            "-m",
            "proteus_spot.infra.simulated_ec2.server",
            "--prices",
            str(scratch / "endpoint.csv.gz"),
        ),
        *("--work-dir", str(scratch / "machines"), "--announce", str(announce), "--parent-pid", str(os.getpid())),
    ]
    with Child(command, scratch / "endpoint.log") as child:
        _wait_for(announce.exists, child)
        announced = json.loads(announce.read_text())
        os.environ["AWS_ACCESS_KEY_ID"] = announced["access_key_id"]  # `run` restores it
        yield str(announced["url"])


def _wait_for(condition: Callable[[], bool], child: Child, timeout_s: float = 60.0) -> None:
    clock = SystemClock()
    deadline_s = clock.now_s() + timeout_s
    while not condition():
        child.check()
        if clock.now_s() > deadline_s:
            raise TimeoutError(f"the endpoint did not start: {child.tail()}")
        clock.wait_until(clock.now_s() + 0.02)
