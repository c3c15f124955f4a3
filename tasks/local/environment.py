"""A world of one's own for a run on this machine: the market's file, the servers, and the way into it."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bidding.market.model import Market
from bidding.market.money import Micros
from bidding.market.traces import Trace, TraceSet
from bidding.synthetic.renewal_market import QUIET, RUSH_HOURS, generate
from infra.clock import ScaledClock, SystemClock
from infra.errors import InputError
from infra.local.environment import STILL, LocalWorld, clock_file, market_file, own_directory
from infra.market_data.capacity_files import read_availabilities
from infra.market_data.price_files import read_catalog, read_prices, write_prices
from infra.runtime import forget_runtime
from infra.simulated_ec2.snapshot import read_state
from infra.state.store import Store

__all__ = [
    "LocalWorld",
    "MarketFile",
    "ScaledClock",
    "SystemClock",
    "check_availability",
    "forget_claims",
    "generated_market",
    "given_market",
    "goes_on_at",
    "local_world",
    "make_database",
    "own_directory",
    "surroundings",
    "write_generated",
]

#: The generated market: small machines of four types in two zones.
TYPES = ("c4.large", "c4.xlarge", "m4.large", "r3.large")
ZONES = ("us-east-1a", "us-east-1b")
#: When a generated market's history begins; the days of real prices that it looks like.
BEGIN = datetime(2016, 6, 1, tzinfo=UTC)
#: When the first rush comes, in seconds from the run's start: after the first hour's end was decided, long before two hours.
_FIRST_RUSH_S = (68 * 60, 80 * 60)
_DAY_S = 86_400
_HOUR_S = 3600


@dataclass(frozen=True)
class MarketFile:
    """A price file that a run replays: where, which markets, and the market time at which the run begins.

    `smallest_vcpus` are the vCPUs of the smallest machine in these markets.
    """

    path: Path
    markets: tuple[Market, ...]
    start_s: int
    smallest_vcpus: int


def generated_market(path: Path, wanted: tuple[str, ...], catalog: Path | None, history_days: float) -> MarketFile:
    """Return the market that `write_generated` writes; nothing is written yet.

    Raises
    ------
    InputError
        If a wanted market is not in it, or a type has no on-demand price.
    """
    known = [Market(name, zone) for name in TYPES for zone in ZONES]
    for text in wanted:
        if text not in map(str, known):
            names = ", ".join(map(str, known))
            raise InputError(f"--market {text}: the generated market has {names}; name one of these, or give --prices")
    start_s = int(BEGIN.timestamp() + history_days * _DAY_S)
    # The whole market is written, with a price that follows the on-demand one, so all its types must be on sale.
    smallest = _smallest_vcpus(known, catalog, start_s, "the generated market")
    return MarketFile(path, tuple(sorted(known)), start_s, smallest)


def write_generated(
    market: MarketFile, catalog: Path | None, seed: int, hours: float, *, bids_decide: bool = True
) -> None:
    """Write the market of `seed` to its file: the history, then `hours` and a day more; quiet where bids decide nothing."""
    types = read_catalog(catalog).at(datetime.fromtimestamp(market.start_s, UTC).date())
    prices = {each: types[each.instance_type].on_demand_micros for each in market.markets}
    begin_s, until_s = int(BEGIN.timestamp()), market.start_s + int(hours * _HOUR_S) + _DAY_S
    rng = np.random.default_rng(seed)
    if bids_decide:
        traces = generate(prices, begin_s, until_s, rng, climate=RUSH_HOURS)
        traces = _with_a_rush_at(market.start_s + int(rng.uniform(*_FIRST_RUSH_S)), traces, prices, market.start_s)
    else:
        traces = generate(prices, begin_s, until_s, rng, climate=QUIET)
    write_prices(market.path, traces)


def _with_a_rush_at(at_s: int, traces: TraceSet, on_demand: Mapping[Market, Micros], after_s: int) -> TraceSet:
    """Return the traces moved in time, so that the first of them that rises above on-demand after `after_s` does so at `at_s`."""
    rises = [traces[market].first_above(on_demand[market], after_s) for market in traces]
    by_s = at_s - min(rise for rise in rises if rise is not None)
    return TraceSet({name: Trace(trace.times_s + by_s, trace.prices_micros) for name, trace in traces.items()})


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
        raise InputError(f"{path}: ends before {hours:g} hours have passed; give a longer file, or less --hours")
    for market in markets:
        if traces[market].price_at(start_s) is None:
            begin = datetime.fromtimestamp(start_s, UTC).isoformat()
            raise InputError(f"{path}: {market} has no price at {begin}, when the run begins; leave it out by --market")
    return MarketFile(path, markets, start_s, _smallest_vcpus(markets, catalog, start_s, str(path)))


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
            raise InputError(f"--availability: {each} is no market of this run; write TYPE/ZONE=FILE, of {names}")


def _smallest_vcpus(markets: Sequence[Market], catalog: Path | None, at_s: int, place: str) -> int:
    """Return the vCPUs of the smallest machine; `InputError` names the first type without an on-demand price."""
    book = read_catalog(catalog)
    on_sale = book.at(datetime.fromtimestamp(at_s, UTC).date())
    for market in markets:
        kind = market.instance_type
        if kind not in on_sale:
            day = datetime.fromtimestamp(at_s, UTC).date()
            what = f"has no on-demand price on {day} in" if kind in book.names else "is not in"
            shown = "the shipped catalogue" if catalog is None else str(catalog)
            raise InputError(f"{place}: instance type {kind} {what} {shown}; give --catalog, or other --market")
    return min(on_sale[market.instance_type].vcpu for market in markets)


def _parse(text: str, traces: TraceSet, path: Path) -> Market:
    try:
        market = Market.parse(text)
    except ValueError as error:
        raise InputError(f"--market: {error}") from None
    if market not in traces:
        raise InputError(f"--market {text}: has no prices in {path}; name one that has, or another file")
    return market


def goes_on_at(
    directory: Path, url: str, job_id: str, scale: float | None, market_stays: bool
) -> tuple[float, float | None]:
    """Return the market time at which a job's world goes on, that of the last thing that is known of it, and at which scale.

    Parameters
    ----------
    scale : the scale that is asked for; None for that at which it ran, which is None where it never did.
    market_stays : whether the market stood still meanwhile; the time of one that did not has gone on with the clock.

    Raises
    ------
    InputError
        If it ran at another scale: the training's hours are measured in that.
    """
    clock = clock_file(directory)
    before = ScaledClock(clock).scale if clock.exists() else STILL
    if scale is not None and before not in (scale, STILL):
        raise InputError(f"--scale {scale:g}: job {job_id} was begun at {before:g}; give that")
    state = read_state(market_file(directory))
    with closing(Store.open(url)) as store:
        seen = store.last_seen_s(job_id)
        known = [store.job(job_id).created_at_s, *([] if seen is None else [seen])]
    if not market_stays and clock.exists():
        known.append(ScaledClock(clock).now_s())
    at_s = max([*known, *([] if state is None else [float(state.now_s)])])
    return at_s, scale if before == STILL else before


def forget_claims(url: str) -> None:
    """Give up what the processes of an earlier life of a run had claimed: they are gone, and nobody else has its database."""
    with closing(Store.open(url)) as store:
        store.release_all()


def make_database(url: str) -> None:
    """Make the state database where there is none."""
    Store.open(url).close()


def _send_what_waits() -> None:
    """Hand Prefect's waiting log lines and events to the server, while there is one."""
    if "prefect" not in sys.modules:
        return  # it failed before a flow was run, and nothing waits
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    APILogWorker.drain_all(timeout=5)
    EventsWorker.drain_all(timeout=5)


@contextmanager
def surroundings(variables: Mapping[str, str]) -> Iterator[None]:
    """Give this process `variables`, and a world that follows them, for as long as the context lasts."""
    before = _put(variables)
    try:
        yield
    finally:
        _put(before)


@contextmanager
def local_world(world: LocalWorld, variables: Mapping[str, str]) -> Iterator[ScaledClock]:
    """Open `world` and put this process into it for as long as the context lasts; yield its clock.

    After an error the variables stay: the process is about to end, and a flow of which a thread is still under way must
    not fall back to the world of the user.
    """
    with world:
        before = _put({**world.environment, **variables})
        yield world.clock
        _send_what_waits()
        _put(before)


def _put(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Set variables (None: unset) and have the world opened anew; return what they were."""
    before = {name: os.environ.get(name) for name in variables}
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    forget_runtime()
    return before
