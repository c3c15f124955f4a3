"""Statistics of a price history, market by market."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import isnan
from typing import Any

import numpy as np

from proteus_spot.bidding.market.catalog import Catalog
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import to_dollars
from proteus_spot.bidding.market.trace_statistics import TraceStatistics, statistics
from proteus_spot.bidding.market.traces import Int64s, Trace, TraceSet


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
    statistics : TraceStatistics or None
        Statistics of the market from its first event to the end of the file, relative to the on-demand price at that
        end; None if there is no such price, or too few events.
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
    statistics: TraceStatistics | None


@dataclass(frozen=True)
class FileSummary:
    """A price file in figures.

    Attributes
    ----------
    silence_s, silent_from_s : int
        Longest time in which no market had an event, and when it began.
    notes : tuple of str
        Zones whose region the catalogue lacks: their markets have no on-demand price.
    """

    file: str
    events: int
    from_s: int
    until_s: int
    silence_s: int
    silent_from_s: int
    markets: tuple[MarketSummary, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the figures as JSON-able values; unknown ones are None."""
        found = asdict(self)
        for market in found["markets"]:
            figures = market["statistics"]
            if figures is not None:
                market["statistics"] = {name: None if isnan(value) else value for name, value in figures.items()}
        return found


def describe(source: str, traces: TraceSet, catalog: Catalog) -> FileSummary:
    """Return the figures of `traces`; `source` is the name of the file in them."""
    end_s = traces.last_s
    moments = np.unique(np.concatenate([trace.times_s for trace in traces.values()]))
    gaps = np.diff(moments)
    widest = int(gaps.argmax()) if gaps.size else 0
    on_demand = on_demand_prices(catalog, traces)
    return FileSummary(
        file=source,
        events=sum(map(len, traces.values())),
        from_s=traces.first_s,
        until_s=end_s,
        silence_s=int(gaps[widest]) if gaps.size else 0,
        silent_from_s=int(moments[widest]),
        markets=tuple(_market_summary(market, trace, on_demand.get(market), end_s) for market, trace in traces.items()),
        notes=tuple(
            dict.fromkeys(
                f"{catalog.fault(market)}: no on-demand price; give a --catalog that has it"
                for market in traces
                if catalog.region_of(market.zone) is None
            )
        ),
    )


def on_demand_prices(catalog: Catalog, traces: TraceSet) -> dict[Market, Trace]:
    """Return the on-demand price of each market over the time of `traces`, from its first day in the catalogue."""
    first, last = (datetime.fromtimestamp(at_s, UTC).date() for at_s in (traces.first_s, traces.last_s))
    found = {}
    for market in traces:
        rows = [row for row in catalog.rows(market) if row.from_day is None or row.from_day <= last]
        days = [first if row.from_day is None else max(row.from_day, first) for row in rows]
        if rows:
            times_s = [int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) for day in days]
            prices = [row.instance_type.on_demand_micros for row in rows]
            found[market] = Trace(np.array(times_s), np.array(prices))  # the last of several on the first day counts
    return found


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
        statistics=_statistics(trace, on_demand, end_s),
    )


def _statistics(trace: Trace, on_demand: Trace | None, end_s: int) -> TraceStatistics | None:
    if on_demand is None:
        return None
    try:
        return statistics(trace, int(on_demand.prices_micros[-1]), int(trace.times_s[0]), end_s)
    except ValueError:  # too few events
        return None


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
