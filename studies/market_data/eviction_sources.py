"""Sources that eviction models are fitted to and checked on: the files, and a window of their time."""

from collections.abc import Mapping
from dataclasses import dataclass

from proteus_spot.bidding.evictions.fit_capacity import Band
from proteus_spot.bidding.market.catalog import Catalog, region_among
from proteus_spot.bidding.market.model import DAY_S, HOUR_S, Market
from proteus_spot.bidding.market.time_window import TimeWindow
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.capacity_files import read_advisor, read_availabilities
from proteus_spot.studies.market_data.trace_files import open_traces
from proteus_spot.studies.times import minute, moment_s


@dataclass(frozen=True)
class Sources:
    """The sources that a model is fitted to, or checked on; as the options of the command.

    Attributes
    ----------
    prices : a price file; `catalog`, `region`, `product`, `markets` are as for
    `studies.market_data.trace_files.open_traces`. advisor : an advisor file.
    availability : availability traces, each ``FILE`` or ``TYPE/ZONE=FILE``.
    begins : when the availability traces begin; they carry no date.
    """

    prices: str | None = None
    catalog: str | None = None
    region: str | None = None
    product: str | None = None
    markets: tuple[str, ...] = ()
    advisor: str | None = None
    availability: tuple[str, ...] = ()
    begins: str = "1970-01-01"


def bands_of(sources: Sources, advisor: str) -> Mapping[Market, Band]:
    """Return the band of each requested market that the advisor has."""
    if sources.prices is not None:
        markets = prices_of(sources, sources.prices)[0].markets
    else:
        markets = tuple(_market(text) for text in sources.markets)
    if not markets:
        raise InputError("--advisor: say which markets, by --market TYPE/ZONE (repeat) or by --prices FILE")
    bands_by_region = read_advisor(advisor)
    regions = {market: region_among(market.zone, bands_by_region) for market in markets}
    bands = {
        market: bands_by_region[region][market.instance_type]
        for market, region in regions.items()
        if region is not None and market.instance_type in bands_by_region[region]
    }
    if not bands:
        raise InputError(
            f"{advisor}: has no band for {markets[0]} nor any other market asked for; "
            f"it has {len(bands_by_region)} regions"
        )
    return bands


def availability(sources: Sources) -> TraceSet:
    """Return the availability traces, as prices; `InputError` if one cannot be used or two are of one market."""
    return read_availabilities(sources.availability, moment_s("--begins", sources.begins))


def _market(text: str) -> Market:
    try:
        return Market.parse(text)
    except ValueError as error:
        raise InputError(f"--market: {error}") from None


def prices_of(sources: Sources, prices: str) -> tuple[TraceSet, Catalog]:
    """Return the traces of the price file and its catalogue, as `studies.market_data.trace_files.open_traces` does."""
    return open_traces(
        prices, catalog=sources.catalog, region=sources.region, product=sources.product, wanted=sources.markets
    )


def window_of(traces: TraceSet, source: str, from_time: str | None, to_time: str | None) -> TimeWindow:
    """Return the window between two times, which ends with the last event of all at the latest.

    Raises
    ------
    InputError
        If a time is none, or the window begins outside the file or lasts less than an hour.
    """
    first_s, last_s = traces.first_s, traces.last_s
    from_s = first_s if from_time is None else moment_s("--from", from_time)
    if not first_s // DAY_S * DAY_S <= from_s <= last_s:
        raise InputError(
            f"--from {from_time}: begins outside {source}, which has {minute(first_s)} to {minute(last_s)}; give "
            "a time in it"
        )
    until_s = last_s if to_time is None else min(_end_s("--to", to_time), last_s)
    if until_s - from_s < HOUR_S:
        raise InputError(
            f"--from and --to: want at least an hour of {source}, not {minute(from_s)} to {minute(until_s)}"
        )
    return TimeWindow(from_s, until_s)


def _end_s(option: str, text: str) -> int:
    """Return the second after a time; a day lasts to its end."""
    whole_day = len(text.strip()) <= len("2016-05-01")
    return moment_s(option, text) + (DAY_S if whole_day else 0)
