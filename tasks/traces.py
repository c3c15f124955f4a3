"""What the price files hold, and how they are made and turned into one another."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np

from bidding.auctions import AuctionClimate
from bidding.catalog import Catalog
from bidding.generator import LIVELY, TYPICAL, MarketClimate, generate
from bidding.model import Market
from bidding.money import Micros, to_dollars
from bidding.traces import Int64s, Trace, TraceSet
from infra.catalogs import read_catalog, write_catalog
from infra.errors import InputError
from infra.plots import plot_prices
from infra.price_list import read_price_list
from infra.prices import check_price_name, read_prices, write_prices

__all__ = [
    "CLIMATES",
    "FileSummary",
    "MarketSummary",
    "convert_price_list",
    "convert_prices",
    "describe",
    "draw",
    "generate_file",
    "open_traces",
]

#: What a generated market is like.
CLIMATES: Mapping[str, AuctionClimate | MarketClimate] = {"typical": TYPICAL, "lively": LIVELY}
_DAY_S = 86_400
_MOST_DAYS = 3653.0
_REGION = re.compile(r"[a-z]+(?:-[a-z]+)+-\d+")

#: Says how far something is: what is done, of how many, and what comes next.
Report = Callable[[int, int, str], None]


def _quiet(done: int, of: int, what: str) -> None:
    """Tell nobody."""


# Describe


@dataclass(frozen=True)
class MarketSummary:
    """The prices of one market in figures.

    Attributes
    ----------
    events : int
        Rows of the file, of several in one second the last.
    from_s, until_s : int
        Times of the first and the last event.
    mean_usd : float
        By time, from the first event to the end of the file (the last price holds on).
    min_usd, max_usd : float
    on_demand_usd : float or None
        The type's on-demand price at the end of the file; None where the catalogue has none.
    share_above : float or None
        Share of the time, among that in which the on-demand price is known, in which the price was above it.
    spikes : int or None
        How often the price rose above on-demand.
    largest_gap_s : int
        Longest time from one event to the next.
    """

    market: str
    events: int
    from_s: int
    until_s: int
    mean_usd: float
    min_usd: float
    max_usd: float
    on_demand_usd: float | None
    share_above: float | None
    spikes: int | None
    largest_gap_s: int


@dataclass(frozen=True)
class FileSummary:
    """A price file in figures; `silence_s` is the longest time in which no market had an event, from `silent_from_s`."""

    file: str
    events: int
    from_s: int
    until_s: int
    silence_s: int
    silent_from_s: int
    markets: tuple[MarketSummary, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the figures for machines."""
        return asdict(self)


def open_traces(
    source: str,
    *,
    catalog: str | None = None,
    region: str | None = None,
    product: str | None = None,
    wanted: Sequence[str] = (),
) -> tuple[TraceSet, Catalog]:
    """Return the traces of a price file and the catalogue that goes with them.

    Parameters
    ----------
    catalog : the catalogue's file; then every type must be in it. Without one, the shipped catalogue for what it knows.
    region : the region of the catalogue to take; without one, that of the file's zones where the catalogue has several.
    wanted : keep these markets alone, written ``type/zone``; all where there are none.

    Raises
    ------
    InputError
        If a file cannot be used, or a wanted market is not in it.
    """
    traces = read_prices(source, product=product)
    if wanted:
        traces = TraceSet({market: traces[market] for market in _wanted(source, traces, wanted)})
    if catalog is None:
        return traces, read_catalog()
    return traces, _checked_catalog(source, traces, catalog, region, product, bool(wanted))


def _wanted(source: str, traces: TraceSet, wanted: Iterable[str]) -> Iterator[Market]:
    for text in wanted:
        try:
            market = Market.parse(text)
        except ValueError as error:
            raise InputError(f"--market: {error}") from None
        if market not in traces:
            raise InputError(f"--market {text}: has no prices in {source}")
        yield market


def _checked_catalog(
    source: str, traces: TraceSet, catalog: str, region: str | None, product: str | None, narrowed: bool
) -> Catalog:
    found = _REGION.match(traces.markets[0].zone)
    try:
        known = read_catalog(catalog, region)
    except InputError:
        if region is not None or found is None:
            raise
        known = read_catalog(catalog, found[0])  # fails as before where the regions are not what is wrong
    unknown = [market.instance_type for market in traces if market.instance_type not in known.names]
    if unknown and not narrowed:
        read_prices(source, product=product, catalog=known)  # names the row
    if unknown:
        raise InputError(f"{catalog}: has no {unknown[0]}; give a --catalog that has it")
    return known


def describe(source: str, traces: TraceSet, catalog: Catalog) -> FileSummary:
    """Return the figures of `traces`; `source` is what the file is called in them."""
    end_s = traces.last_s
    moments = np.unique(np.concatenate([trace.times_s for trace in traces.values()]))
    gaps = np.diff(moments)
    widest = int(gaps.argmax()) if gaps.size else 0
    on_demand = _on_demand(catalog, traces)
    return FileSummary(
        file=source,
        events=sum(map(len, traces.values())),
        from_s=traces.first_s,
        until_s=end_s,
        silence_s=int(gaps[widest]) if gaps.size else 0,
        silent_from_s=int(moments[widest]),
        markets=tuple(
            _market_summary(market, trace, on_demand.get(market.instance_type), end_s)
            for market, trace in traces.items()
        ),
    )


def _on_demand(catalog: Catalog, traces: TraceSet) -> dict[str, Trace]:
    """Return the on-demand price of each type over the time of `traces`, from the day on that the catalogue knows it."""
    names = sorted({market.instance_type for market in traces})
    changes: dict[str, list[tuple[int, Micros]]] = {name: [] for name in names}
    day, last = (datetime.fromtimestamp(at_s, UTC).date() for at_s in (traces.first_s, traces.last_s))
    while day <= last:
        on_sale = catalog.at(day)
        at_s = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
        for name in names:
            held = changes[name]
            if name in on_sale and (not held or held[-1][1] != on_sale[name].on_demand_micros):
                held.append((at_s, on_sale[name].on_demand_micros))
        day += timedelta(days=1)
    return {
        name: Trace(np.array([at_s for at_s, _ in held]), np.array([price for _, price in held]))
        for name, held in changes.items()
        if held
    }


def _market_summary(market: Market, trace: Trace, on_demand: Trace | None, end_s: int) -> MarketSummary:
    prices = trace.prices_micros
    share_above, spikes = (None, None) if on_demand is None else _above(trace, on_demand, end_s)
    gaps = np.diff(trace.times_s)
    return MarketSummary(
        market=str(market),
        events=len(trace),
        from_s=int(trace.times_s[0]),
        until_s=int(trace.times_s[-1]),
        mean_usd=_mean(prices, _held_s(trace.times_s, end_s)) / 1e6,
        min_usd=to_dollars(int(prices.min())),
        max_usd=to_dollars(int(prices.max())),
        on_demand_usd=None if on_demand is None else to_dollars(int(on_demand.prices_micros[-1])),
        share_above=share_above,
        spikes=spikes,
        largest_gap_s=int(gaps.max()) if gaps.size else 0,
    )


def _held_s(times_s: Int64s, end_s: int) -> Int64s:
    """Return how long each event's price held."""
    return np.diff(times_s, append=end_s)


def _mean(values: Any, weights_s: Int64s) -> float:
    """Return the mean by time; the last value where no time has passed."""
    return float(np.average(values, weights=weights_s)) if weights_s.sum() > 0 else float(values[-1])


def _above(trace: Trace, on_demand: Trace, end_s: int) -> tuple[float, int]:
    """Return the share of the time above the on-demand price, and how often the price rose above it."""
    begin_s = max(int(trace.times_s[0]), int(on_demand.times_s[0]))
    times_s = np.union1d(trace.times_s, on_demand.times_s)
    times_s = times_s[(times_s >= begin_s) & (times_s <= end_s)]
    price, limit = (
        held.prices_micros[np.searchsorted(held.times_s, times_s, side="right") - 1] for held in (trace, on_demand)
    )
    above = price > limit
    rises = np.count_nonzero(above[1:] & ~above[:-1]) + int(above[0])
    return _mean(above, _held_s(times_s, end_s)), int(rises)


def draw(target: str, title: str, traces: TraceSet, catalog: Catalog) -> None:
    """Draw `traces` into the picture `target`, the on-demand prices beside them."""
    plot_prices(target, title, traces, _on_demand(catalog, traces))


# Generate


def generate_file(
    target: str,
    *,
    seed: int,
    days: float,
    types: Sequence[str],
    zones: Sequence[str],
    climate: str,
    begin: date,
    catalog: str | None = None,
    region: str | None = None,
    report: Report = _quiet,
) -> TraceSet:
    """Write the market of `seed` to `target`, from `begin` (midnight UTC) for `days`; return its traces.

    Raises
    ------
    InputError
        If a type is not on sale on that day, the climate is not one of `CLIMATES`, the time is too long, or the file
        cannot be written.
    """
    check_price_name(target)
    if climate not in CLIMATES:
        raise InputError(f"--climate {climate}: want {' or '.join(CLIMATES)}")
    if not 0 < days <= _MOST_DAYS:
        raise InputError(f"--days {days:g}: want more than 0, at most {_MOST_DAYS:g}")
    on_sale = read_catalog(catalog, region).at(begin)
    for name in types:
        if name not in on_sale:
            raise InputError(
                f"--types {name}: is not on sale on {begin} in the catalogue; it has {', '.join(sorted(on_sale))}"
            )
    for zone in zones:
        if not zone or "/" in zone or zone != zone.strip():
            raise InputError(f"--zones {zone!r}: want names of zones, as in us-east-1a,us-east-1b")
    if not types or not zones:
        raise InputError("--types and --zones: want at least one of each")
    on_demand = {Market(name, zone): on_sale[name].on_demand_micros for name in types for zone in zones}
    vcpus = {name: on_sale[name].vcpu for name in types}
    from_s = int(datetime(begin.year, begin.month, begin.day, tzinfo=UTC).timestamp())
    until_s = from_s + max(1, round(days * _DAY_S))
    rng = np.random.default_rng(seed)
    made: dict[Market, Trace] = {}
    # One market after another is the same as all at once: each takes the next generator of `rng`.
    for done, market in enumerate(sorted(on_demand)):
        report(done, len(on_demand), str(market))
        alone = {market: on_demand[market]}
        made |= generate(alone, from_s, until_s, rng, climate=CLIMATES[climate], vcpus=vcpus)
    report(len(on_demand), len(on_demand), f"writing {target}")
    traces = TraceSet(made)
    write_prices(target, traces)
    return traces


# Convert


def convert_prices(source: str, target: str, *, product: str | None = None, report: Report = _quiet) -> TraceSet:
    """Write the prices of `source` to `target` in the form that its name's ending says; return them."""
    check_price_name(target)
    report(0, 2, f"reading {source}")
    traces = read_prices(source, product=product)
    report(1, 2, f"writing {target}")
    write_prices(target, traces, product or "Linux/UNIX")
    return traces


def convert_price_list(
    source: str, target: str, *, region: str | None = None, report: Report = _quiet
) -> tuple[int, tuple[str, ...]]:
    """Write the catalogue of a price list of AWS; return how many types it has, and what was left out as ambiguous."""
    if not target.removesuffix(".gz").endswith(".csv"):
        raise InputError(f"{target}: a catalogue is a CSV; end its name with .csv or .csv.gz")
    report(0, 2, f"reading {source}")
    found = read_price_list(source, region)
    report(1, 2, f"writing {target}")
    write_catalog(target, found.rows)
    return len(found.rows), found.ambiguous
