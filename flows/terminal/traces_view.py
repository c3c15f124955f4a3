"""Terminal output of price files: the markets, and statistics of their prices."""

from datetime import UTC, datetime
from math import isnan
from typing import TYPE_CHECKING

from proteus_spot.bidding.market.model import DAY_S, HOUR_S
from proteus_spot.flows.terminal.tables import Column, show_lines, show_table

if TYPE_CHECKING:
    from proteus_spot.bidding.market.trace_statistics import TraceStatistics
    from proteus_spot.studies.market_data.trace_summary import FileSummary, MarketSummary

#: Title and rank of the figures of a market.
_FIGURES = (
    *(("events", 6), ("span", 7), ("mean", 0), ("min", 3), ("max", 2), ("on demand", 1)),
    *(("above it", 4), ("spikes", 5), ("largest gap", 8)),
)
#: Columns of the statistics of prices: title, field of `TraceStatistics`, format.
_STATISTICS = (
    ("level", "level", ".3f"),
    ("p5", "low", ".2f"),
    ("p95", "high", ".2f"),
    ("changes/h", "changes_per_hour", ".2f"),
    ("rises", "share_rises", ".0%"),
    ("median rise", "median_rise", ".2%"),
    ("p90", "large_rise", ".1%"),
    ("before a rise", "rise_in_hour", ".1%"),
    ("10 min, young", "soon_if_young", ".1%"),
    ("10 min, old", "soon_if_old", ".1%"),
    ("busy after busy", "busy_after_busy", ".2f"),
    ("above", "share_above", ".2%"),
)


def _day(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d}"


def _minute(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M}"


def span(from_s: int, until_s: int) -> str:
    """Return the first and last day of a window, and its length in days."""
    return f"{_day(from_s)} to {_day(until_s)} ({(until_s - from_s) / DAY_S:.1f} days)"


def _length(seconds: int) -> str:
    if seconds < 2 * HOUR_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR_S:.1f} h" if seconds < 3 * DAY_S else f"{seconds / DAY_S:.1f} d"


def title(summary: "FileSummary") -> str:
    """Return the title of the picture of a file."""
    return f"{summary.file.rsplit('/', 1)[-1]}: {span(summary.from_s, summary.until_s)}, UTC"


def _row(summary: "MarketSummary") -> list[str]:
    return [
        summary.market,
        f"{summary.events:,}",
        f"{(summary.until_s - summary.from_s) / DAY_S:.1f} d",
        f"{summary.mean_usd:.4f}",
        f"{summary.min_usd:.4f}",
        f"{summary.max_usd:.4f}",
        "-" if summary.on_demand_usd is None else f"{summary.on_demand_usd:.4f}",
        "-" if summary.share_above is None else f"{summary.share_above:.2%}",
        "-" if summary.spikes is None else str(summary.spikes),
        _length(summary.largest_gap_s),
    ]


def show(summary: "FileSummary") -> None:
    """Show a file on standard output."""
    show_lines(
        f"{summary.file}: {len(summary.markets)} markets, {summary.events:,} events, "
        f"{span(summary.from_s, summary.until_s)}"
    )
    if summary.silence_s:
        silence = f"{_length(summary.silence_s)} from {_minute(summary.silent_from_s)} UTC"
        show_lines(f"longest time without any event: {silence}")
    columns = (Column("market"), *(Column(title, rank, right=True) for title, rank in _FIGURES))
    show_table(columns, [_row(market) for market in summary.markets], caption="dollars an hour; the mean is by time")
    show_lines(*(f"note: {note}" for note in summary.notes))
    if any(market.statistics is not None for market in summary.markets):
        _show_statistics(summary)


def _show_statistics(summary: "FileSummary") -> None:
    show_table(
        [Column("market"), *(Column(name, rank, right=True) for rank, (name, _, _) in enumerate(_STATISTICS))],
        [
            [market.market, *(_figure(market.statistics, name, form) for _, name, form in _STATISTICS)]
            for market in summary.markets
        ],
        title="what the prices do",
        caption=(
            "level: median, of on demand; p5 and p95: of the median; before a rise: share of minutes with one within "
            "the hour"
        ),
    )


def _figure(statistics: "TraceStatistics | None", name: str, form: str) -> str:
    value = float("nan") if statistics is None else getattr(statistics, name)
    return "-" if isnan(value) else f"{value:{form}}"
