"""A small price file and backtest options for it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.synthetic.renewal_market import LIVELY, TYPICAL, generate
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.market_data.price_files import write_prices
from proteus_spot.studies.backtest.backtest_spec import BacktestSpec, backtest_spec

#: 2016-06-01T00:00:00Z
T0 = 1464739200
DAYS = 9
DAY_S = 86_400
MARKETS = (Market("c4.xlarge", "us-east-1a"), Market("m4.xlarge", "us-east-1a"), Market("m4.xlarge", "us-east-1b"))
#: Few jobs, short ones.
SMALL: dict[str, Any] = {"hours": [1, 2], "starts": 12}


def small_traces(*, lively: bool = True) -> TraceSet:
    """Three markets over nine days, in which hardly an hour goes by without an eviction, if they are lively."""
    types = read_catalog().at(datetime.fromtimestamp(T0, UTC).date(), "us-east-1")
    prices = {market: types[market.instance_type].on_demand_micros for market in MARKETS}
    climate = LIVELY if lively else TYPICAL
    return generate(prices, T0, T0 + DAYS * DAY_S, np.random.default_rng(5), climate=climate)


def small_file(path: Path) -> Path:
    """Write the small market to `path`."""
    write_prices(path, small_traces())
    return path


def small_spec(prices: Path, **fields: Any) -> BacktestSpec:
    """Ask for a small backtest of a price file."""
    return backtest_spec(**{"prices": str(prices), **SMALL, **fields})


def quiet(done: int, of: int, what: str) -> None:
    """Tell nobody how far it is."""
