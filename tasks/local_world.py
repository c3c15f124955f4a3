"""A world of one's own for a run on this machine: the market's file, the servers, and the way into it."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bidding.generator import LIVELY, generate
from bidding.model import Market
from bidding.traces import TraceSet
from infra.clock import ScaledClock, SystemClock
from infra.errors import InputError
from infra.local_world import LocalWorld
from infra.prices import read_catalog, read_prices, write_prices
from infra.runtime import forget_runtime
from infra.settings import Settings

__all__ = [
    "LocalWorld",
    "MarketFile",
    "ScaledClock",
    "SystemClock",
    "check_market_names",
    "check_settings",
    "generated_market",
    "given_market",
    "local_world",
]

#: The generated market: small machines of four types in two zones.
TYPES = ("c4.large", "c4.xlarge", "m4.large", "r3.large")
ZONES = ("us-east-1a", "us-east-1b")
#: When a generated market's history begins; the days of real prices that it looks like.
BEGIN = datetime(2016, 6, 1, tzinfo=UTC)
_DAY_S = 86_400
_HOUR_S = 3600


@dataclass(frozen=True)
class MarketFile:
    """A price file that a run replays: where, which markets, and the market time at which the run begins."""

    path: Path
    markets: tuple[Market, ...]
    start_s: int


def generated_market(path: Path, seed: int, hours: float, history_days: float) -> MarketFile:
    """Write the market of `seed` to `path`: the history, then `hours` and a day more."""
    types = read_catalog().at(BEGIN.date())
    markets = {Market(name, zone): types[name].on_demand_micros for name in TYPES for zone in ZONES}
    from_s = int(BEGIN.timestamp())
    start_s = from_s + int(history_days * _DAY_S)
    until_s = start_s + int(hours * _HOUR_S) + _DAY_S
    traces = generate(markets, from_s, until_s, np.random.default_rng(seed), climate=LIVELY)
    write_prices(path, traces)
    return MarketFile(path, traces.markets, start_s)


def given_market(path: Path, wanted: tuple[str, ...], catalog: Path | None, hours: float) -> MarketFile:
    """Return the market of a price file; the run begins when half of the file's time, at most two weeks, has passed.

    Raises
    ------
    InputError
        If the file cannot be used, or a wanted market is not in it, or a type has no on-demand price.
    """
    traces = read_prices(path)
    markets = tuple(_parse(text, traces, path) for text in wanted) or traces.markets
    start_s = traces.first_s + min((traces.last_s - traces.first_s) // 2, 14 * _DAY_S)
    if start_s + hours * _HOUR_S > traces.last_s + _DAY_S:
        raise InputError(f"{path}: ends before {hours:g} hours have passed; give a longer file, or --hours")
    on_sale = read_catalog(catalog).at(datetime.fromtimestamp(start_s, UTC).date())
    for market in markets:
        if market.instance_type not in on_sale:
            raise InputError(
                f"{path}: {market.instance_type} has no on-demand price in the catalogue; give --catalog, or --market"
            )
    return MarketFile(path, markets, start_s)


def _parse(text: str, traces: TraceSet, path: Path) -> Market:
    try:
        market = Market.parse(text)
    except ValueError as error:
        raise InputError(f"--market: {error}") from None
    if market not in traces:
        raise InputError(f"--market {text}: has no prices in {path}")
    return market


def check_market_names(wanted: tuple[str, ...]) -> None:
    """Refuse wanted markets that the generated market does not have."""
    known = [f"{name}/{zone}" for name in TYPES for zone in ZONES]
    for text in wanted:
        if text not in known:
            raise InputError(f"--market {text}: the generated market has {', '.join(known)}; or give --prices")


def check_settings(environment: Mapping[str, str], scale: float, flow_latency_s: float) -> None:
    """Refuse periods that cannot be kept at `scale`, and settings that cannot be read."""
    known = {name.removeprefix("PROTEUS_").lower(): value for name, value in environment.items()}
    fields = {name: value for name, value in known.items() if name in Settings.model_fields}
    Settings.model_validate(fields).check_cadence(scale, flow_latency_s)


def _send_what_waits() -> None:
    """Hand Prefect's waiting log lines and events to the server, while there is one."""
    if "prefect" not in sys.modules:
        return  # it failed before a flow was run, and nothing waits
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    APILogWorker.drain_all(timeout=5)
    EventsWorker.drain_all(timeout=5)


@contextmanager
def local_world(world: LocalWorld, variables: Mapping[str, str]) -> Iterator[ScaledClock]:
    """Open `world` and put this process into it for as long as the context lasts; yield its clock."""
    with world:
        inside = {**world.environment, **variables}
        before = {name: os.environ.get(name) for name in inside}
        os.environ.update(inside)
        forget_runtime()
        try:
            yield world.clock
        finally:
            _send_what_waits()
            forget_runtime()
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
