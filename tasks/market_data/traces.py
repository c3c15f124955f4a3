"""What the price files hold, and how they are made and turned into one another."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime

import numpy as np

from bidding.market.catalog import Catalog
from bidding.market.model import DAY_S, Market
from bidding.market.traces import Trace, TraceSet
from bidding.synthetic.auction_market import AuctionClimate
from bidding.synthetic.renewal_market import LIVELY, RUSH_HOURS, TYPICAL, MarketClimate, generate
from infra.errors import InputError
from infra.market_data.aws_price_list import read_price_list
from infra.market_data.catalogs import read_catalog, write_catalog
from infra.market_data.price_files import check_price_name, read_prices, write_prices
from reports.pictures.prices import plot_prices
from tasks.market_data.trace_summary import on_demand_prices

#: What a generated market is like.
CLIMATES: Mapping[str, AuctionClimate | MarketClimate] = {
    "typical": TYPICAL,
    "lively": LIVELY,
    "rush-hours": RUSH_HOURS,
}
_MOST_DAYS = 3653.0
_ZONE = re.compile(r"[\w.-]+")
_REGION = re.compile(r"[a-z]+(?:-[a-z]+)+-\d+")

#: Says how far something is: what is done, of how many, and what comes next.
Report = Callable[[int, int, str], None]


def _quiet(done: int, of: int, what: str) -> None:
    """Tell nobody."""


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
        traces = TraceSet({market: traces[market] for market in (market_of(text, traces, source) for text in wanted)})
    if catalog is None:
        return traces, read_catalog()
    return traces, _checked_catalog(source, traces, catalog, region, product, bool(wanted))


def market_of(text: str, traces: TraceSet, source: str) -> Market:
    """Return the market that a user names, written ``type/zone``.

    Raises
    ------
    InputError
        If it is written otherwise, or the prices of `source` lack it.
    """
    try:
        market = Market.parse(text)
    except ValueError as error:
        raise InputError(f"--market: {error}") from None
    if market not in traces:
        raise InputError(f"--market {text}: has no prices in {source}; name one that has, or another file")
    return market


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


def draw(target: str, title: str, traces: TraceSet, catalog: Catalog) -> None:
    """Draw `traces` into the picture `target`, the on-demand prices beside them."""
    plot_prices(target, title, traces, on_demand_prices(catalog, traces))


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
        raise InputError(f"--climate {climate}: want one of {', '.join(CLIMATES)}")
    if not 0 < days <= _MOST_DAYS:
        raise InputError(f"--days {days:g}: want more than 0, at most {_MOST_DAYS:g}")
    on_sale = read_catalog(catalog, region).at(begin)
    for name in types:
        if name not in on_sale:
            raise InputError(
                f"--types {name}: is not on sale on {begin} in the catalogue; it has {', '.join(sorted(on_sale))}"
            )
    for zone in zones:
        if not _ZONE.fullmatch(zone):
            raise InputError(f"--zones {zone!r}: want names of zones, as in us-east-1a,us-east-1b")
    if not types or not zones:
        raise InputError("--types and --zones: want at least one of each")
    on_demand = {Market(name, zone): on_sale[name].on_demand_micros for name in types for zone in zones}
    vcpus = {name: on_sale[name].vcpu for name in types}
    from_s = int(datetime(begin.year, begin.month, begin.day, tzinfo=UTC).timestamp())
    until_s = from_s + max(1, round(days * DAY_S))
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
