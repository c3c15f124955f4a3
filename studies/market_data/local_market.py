"""The market of a run on this machine: a generated one, or a given price file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from proteus_spot.bidding.market.model import DAY_S, HOUR_S, InstanceType, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.bidding.synthetic.capacity_market import generate_capacity
from proteus_spot.bidding.synthetic.renewal_market import QUIET, RUSH_HOURS, generate
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.capacity_files import capacity_file, read_availabilities, write_capacities
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.market_data.price_files import read_prices, write_prices
from proteus_spot.studies.market_data.on_demand_prices import types_of
from proteus_spot.studies.market_data.trace_files import market_of

#: Range of the first rush, in seconds from the run's start: after the first renewal decision, long before two hours.
_FIRST_RUSH_S = (68 * 60, 80 * 60)

#: The generated market: small machines of four types in two zones.
TYPES = ("c4.large", "c4.xlarge", "m4.large", "r3.large")


ZONES = ("us-east-1a", "us-east-1b")


#: Begin of a generated market's history; real prices of these days look like it.
BEGIN = datetime(2016, 6, 1, tzinfo=UTC)


@dataclass(frozen=True)
class MarketFile:
    """A price file that a run replays: where, which markets, and the market time at which the run begins.

    `smallest_vcpus` are the vCPUs of the smallest machine in these markets; `until_s` is when the run must have ended,
    None for a market that is generated for it.
    """

    path: Path
    markets: tuple[Market, ...]
    start_s: int
    smallest_vcpus: int
    until_s: int | None = None

    def check_lasts(self, hours: float, fix: str = "less --hours") -> None:
        """Refuse a file that ends before a run of so many hours has; `fix` is what else helps, in the message."""
        if self.until_s is not None and self.start_s + hours * HOUR_S > self.until_s:
            raise InputError(f"{self.path}: ends before {hours:g} hours have passed; give a longer file, or {fix}")


def generated_market(path: Path, wanted: tuple[str, ...], catalog: Path | None, history_days: float) -> MarketFile:
    """Return the market that `write_generated` writes; nothing is written yet.

    Raises
    ------
    InputError
        If a wanted market is not in it, or a type has no on-demand price.
    """
    markets = [Market(name, zone) for name in TYPES for zone in ZONES]
    for text in wanted:
        if text not in map(str, markets):
            names = ", ".join(map(str, markets))
            raise InputError(f"--market {text}: the generated market has {names}; name one of these, or give --prices")
    start_s = int(BEGIN.timestamp() + history_days * DAY_S)
    # The whole market is written, with a price that follows the on-demand one, so all its types must be on sale.
    smallest = _smallest_vcpus(markets, catalog, start_s, "the generated market")
    return MarketFile(path, tuple(sorted(markets)), start_s, smallest)


def write_generated(
    market: MarketFile, catalog: Path | None, seed: int, hours: float, *, bids_decide: bool = True
) -> None:
    """Write the market of `seed` to its file: the history, then `hours` and a day more.

    The market is quiet if bids decide nothing.
    """
    types = _types_of(market.markets, catalog, market.start_s, "the generated market")
    prices = {each: types[each.instance_type].on_demand_micros for each in market.markets}
    begin_s, until_s = int(BEGIN.timestamp()), market.start_s + int(hours * HOUR_S) + DAY_S
    rng = np.random.default_rng(seed)
    if bids_decide:
        traces = generate(prices, begin_s, until_s, rng, climate=RUSH_HOURS)
        traces = _with_a_rush_at(market.start_s + int(rng.uniform(*_FIRST_RUSH_S)), traces, prices, market.start_s)
    else:
        traces = generate(prices, begin_s, until_s, rng, climate=QUIET)
    write_prices(market.path, traces)


def write_generated_capacity(market: MarketFile, folder: Path, seed: int, hours: float) -> tuple[str, ...]:
    """Write the capacity of `seed` from the run's start on; return the files as ``TYPE/ZONE=FILE``.

    The files of a run that goes on are left as they are.
    """
    if folder.exists():
        return tuple(f"{each}={capacity_file(folder, each)}" for each in market.markets)
    until_s = market.start_s + int(hours * HOUR_S) + DAY_S
    rng = np.random.default_rng(seed)
    return write_capacities(folder, generate_capacity(market.markets, market.start_s, until_s, rng))


def _with_a_rush_at(at_s: int, traces: TraceSet, on_demand: Mapping[Market, Micros], after_s: int) -> TraceSet:
    """Return the traces shifted so that the first rise above on-demand after `after_s` falls on `at_s`."""
    rises = [traces[market].first_above(on_demand[market], after_s) for market in traces]
    by_s = at_s - min(rise for rise in rises if rise is not None)
    return TraceSet({name: Trace(trace.times_s + by_s, trace.prices_micros) for name, trace in traces.items()})


def given_market(path: Path, wanted: tuple[str, ...], catalog: Path | None) -> MarketFile:
    """Return the market of a price file; the run begins when half of the file's time, at most two weeks, has passed.

    Raises
    ------
    InputError
        If the file cannot be used, or a wanted market is not in it, or a type has no on-demand price.
    """
    traces = read_prices(path)
    markets = tuple(market_of(text, traces, str(path)) for text in wanted) or traces.markets
    start_s = traces.first_s + min((traces.last_s - traces.first_s) // 2, 14 * DAY_S)
    for market in markets:
        if traces[market].price_at(start_s) is None:
            begin = datetime.fromtimestamp(start_s, UTC).isoformat()
            raise InputError(f"{path}: {market} has no price at {begin}, when the run begins; leave it out by --market")
    smallest = _smallest_vcpus(markets, catalog, start_s, str(path))
    return MarketFile(path, markets, start_s, smallest, traces.last_s + DAY_S)


def check_availability(given: Sequence[str], market: MarketFile, endpoint: str | None) -> None:
    """Refuse availability traces that cannot be read, or that are not of the run's own market.

    Raises
    ------
    InputError
        One line that names the trace.
    """
    if endpoint is not None:
        raise InputError(
            f"--availability: the market at --endpoint {endpoint} has its own capacity; give one of the two"
        )
    for each in read_availabilities(given):
        if each not in market.markets:
            names = ", ".join(map(str, market.markets[:8]))
            raise InputError(f"--availability: {each} is not a market of this run; write TYPE/ZONE=FILE, of {names}")


def _types_of(markets: Sequence[Market], catalog: Path | None, at_s: int, place: str) -> Mapping[str, InstanceType]:
    return types_of(
        read_catalog(catalog),
        markets,
        datetime.fromtimestamp(at_s, UTC).date(),
        where=f"{place}: ",
        name="the shipped catalogue" if catalog is None else str(catalog),
        fix="give --catalog, or other --market",
        choose=" by --market",
    )


def _smallest_vcpus(markets: Sequence[Market], catalog: Path | None, at_s: int, place: str) -> int:
    types = _types_of(markets, catalog, at_s, place)
    return min(types[market.instance_type].vcpu for market in markets)
