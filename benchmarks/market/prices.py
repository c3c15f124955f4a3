"""Benchmark `prices`: reading a price file beside pyarrow's `read_csv`, which neither checks nor sorts."""

import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.csv as pa_csv

from proteus_spot.benchmarks.figure import Figure, figure, seconds
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.synthetic.renewal_market import MarketClimate, generate
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.market_data.price_files import read_prices, write_prices

#: A file of real spot prices, some 430,000 rows.
_REAL = "us-east-1-2016-spring.csv.gz"
_BEGIN = datetime(2016, 3, 1, tzinfo=UTC)
_DAYS = 90
_ROUNDS = 5


def price_file(scratch: Path) -> tuple[Path, str]:
    """Return a price file of some 430,000 rows and its description: real from PROTEUS_TRACES, else generated."""
    folder = os.environ.get("PROTEUS_TRACES")
    if folder and (real := Path(folder) / _REAL).exists():
        return real, f"real prices, {real.name}"
    types = read_catalog().at(_BEGIN.date(), "us-east-1")
    zones = ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d")
    names = sorted(types)[:7]
    on_demand = {Market(name, zone): types[name].on_demand_micros for name in names for zone in zones}
    from_s = int(_BEGIN.timestamp())
    made = generate(on_demand, from_s, from_s + _DAYS * 86_400, np.random.default_rng(0), climate=MarketClimate())
    path = scratch / "generated.csv.gz"
    write_prices(path, TraceSet(made))
    return path, "generated prices; PROTEUS_TRACES names no folder of real ones"


def run(scratch: Path) -> list[Figure]:
    """Measure."""
    path, note = price_file(scratch)
    rows = pa_csv.read_csv(path).num_rows  # and the file is in the page cache
    read_prices(path)
    ours, bare = [], []
    for _ in range(_ROUNDS):
        ours.append(seconds(lambda: read_prices(path)))
        bare.append(seconds(lambda: pa_csv.read_csv(path)))
    return [figure("prices", f"read {rows:,} price rows", "s", ours, bare, "pyarrow's bare read_csv", note)]
