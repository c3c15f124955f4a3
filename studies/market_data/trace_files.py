"""Price files: reading, generation and conversion."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime

import numpy as np

from proteus_spot.bidding.market.catalog import Catalog, named_region
from proteus_spot.bidding.market.model import DAY_S, InstanceType, Market
from proteus_spot.bidding.market.traces import Trace, TraceSet
from proteus_spot.bidding.synthetic.auction_market import AuctionClimate
from proteus_spot.bidding.synthetic.renewal_market import LIVELY, RUSH_HOURS, TYPICAL, MarketClimate, generate
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.aws_price_list import read_price_list
from proteus_spot.infra.market_data.catalogs import read_catalog, write_catalog
from proteus_spot.infra.market_data.price_files import check_price_name, read_prices, write_prices
from proteus_spot.reports.pictures.prices_pictures import plot_prices
from proteus_spot.studies.market_data.trace_summary import on_demand_prices

#: Climates of generated markets, by name.
CLIMATES: Mapping[str, AuctionClimate | MarketClimate] = {
    "typical": TYPICAL,
    "lively": LIVELY,
    "rush-hours": RUSH_HOURS,
}
_MOST_DAYS = 3653.0
_ZONE = re.compile(r"[\w.-]+")

#: Reports progress: units done, units in total, and the next step.
Report = Callable[[int, int, str], None]


def _quiet(done: int, of: int, what: str) -> None:
    """Report nothing."""


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
    catalog : the catalogue's file; then every type must be in it. Default: the shipped catalogue, for its types.
    region : keep only the markets of this region; those whose zones name no region count as lying in it. Default: all,
        each priced by the region of its zone.
    wanted : keep only these markets, written ``type/zone``; all if empty.

    Raises
    ------
    InputError
        If a file cannot be used, or a wanted market is not in it, or no market of the region.
    """
    traces = read_prices(source, product=product)
    known = read_catalog(catalog, region)
    if wanted:
        traces = TraceSet({market: traces[market] for market in (market_of(text, traces, source) for text in wanted)})
    if region is not None:
        traces = _of_region(source, traces, known, region)
    unknown = [market for market in traces if not known.rows(market)] if catalog is not None else []
    if unknown and not wanted and region is None:
        read_prices(source, product=product, catalog=known)  # names the row
    if unknown:
        raise InputError(f"{source}: {known.fault(unknown[0], name=str(catalog))}; give a --catalog that has it")
    return traces, known


def _of_region(source: str, traces: TraceSet, catalog: Catalog, region: str) -> TraceSet:
    found = TraceSet({market: traces[market] for market in traces if catalog.region_of(market.zone) == region})
    if not found:
        regions = sorted({named_region(market.zone) or market.zone for market in traces})
        raise InputError(
            f"--region {region}: {source} has no market in it; its markets lie in {', '.join(regions[:8])}"
        )
    return found


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
    for zone in zones:
        if not _ZONE.fullmatch(zone):
            raise InputError(f"--zones {zone!r}: want names of zones, as in us-east-1a,us-east-1b")
    if not types or not zones:
        raise InputError("--types and --zones: want at least one of each")
    known = read_catalog(catalog, region)
    kinds: dict[Market, InstanceType] = {}
    for market in (Market(name, zone) for name in types for zone in zones):
        kind = known.find(market, begin)
        if kind is None:
            sold = known.at(begin, known.region_of(market.zone) or "")
            more = (
                f"; it has {', '.join(sorted(sold))}"
                if sold
                else "; give another --from or --zones, or a --catalog that has it"
            )
            raise InputError(f"--types {market.instance_type}: {known.fault(market, begin)}{more}")
        kinds[market] = kind
    on_demand = {market: kind.on_demand_micros for market, kind in kinds.items()}
    from_s = int(datetime(begin.year, begin.month, begin.day, tzinfo=UTC).timestamp())
    until_s = from_s + max(1, round(days * DAY_S))
    rng = np.random.default_rng(seed)
    made: dict[Market, Trace] = {}
    # One market after another is the same as all at once: each takes the next generator of `rng`.
    for done, market in enumerate(sorted(on_demand)):
        report(done, len(on_demand), str(market))
        alone = {market: on_demand[market]}
        made |= generate(
            alone, from_s, until_s, rng, climate=CLIMATES[climate], vcpus={market.instance_type: kinds[market].vcpu}
        )
    report(len(on_demand), len(on_demand), f"writing {target}")
    traces = TraceSet(made)
    write_prices(target, traces)
    return traces


# Convert


def convert_prices(source: str, target: str, *, product: str | None = None, report: Report = _quiet) -> TraceSet:
    """Write the prices of `source` to `target` in the format of its file name extension; return them."""
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
