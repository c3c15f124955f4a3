"""What price files show on a terminal: the markets, and what their prices do."""

from datetime import UTC, datetime
from math import isnan
from typing import TYPE_CHECKING

from rich.table import Table

from bidding.market.model import DAY_S, HOUR_S
from flows.terminal.output import output_console

if TYPE_CHECKING:
    from bidding.market.trace_statistics import TraceStatistics
    from tasks.market_data.trace_summary import FileSummary, MarketSummary

#: Columns where there is no terminal.
_WIDTH = 160
#: Columns of what the prices do: title, field of `TraceStatistics`, form.
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
    """Return the days of a window, and how many."""
    return f"{_day(from_s)} to {_day(until_s)} ({(until_s - from_s) / DAY_S:.1f} days)"


def _length(seconds: int) -> str:
    if seconds < 2 * HOUR_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR_S:.1f} h" if seconds < 3 * DAY_S else f"{seconds / DAY_S:.1f} d"


def title(summary: "FileSummary") -> str:
    """Return what a picture of a file is called."""
    return f"{summary.file.rsplit('/', 1)[-1]}: {span(summary.from_s, summary.until_s)}, UTC"


def _row(of: "MarketSummary") -> list[str]:
    return [
        of.market,
        f"{of.events:,}",
        f"{(of.until_s - of.from_s) / DAY_S:.1f} d",
        f"{of.mean_usd:.4f}",
        f"{of.min_usd:.4f}",
        f"{of.max_usd:.4f}",
        "-" if of.on_demand_usd is None else f"{of.on_demand_usd:.4f}",
        "-" if of.share_above is None else f"{of.share_above:.2%}",
        "-" if of.spikes is None else str(of.spikes),
        _length(of.largest_gap_s),
    ]


def show(summary: "FileSummary") -> None:
    """Show a file on standard output."""
    console = output_console(_WIDTH)
    console.print(
        f"{summary.file}: {len(summary.markets)} markets, {summary.events:,} events, "
        f"{span(summary.from_s, summary.until_s)}",
        soft_wrap=True,
        markup=False,
    )
    if summary.silence_s:
        silence = f"{_length(summary.silence_s)} from {_minute(summary.silent_from_s)} UTC"
        console.print(f"longest time without any event: {silence}", soft_wrap=True)
    table = Table(
        box=None, padding=(0, 1, 0, 0), caption="dollars an hour; the mean is by time", caption_justify="left"
    )
    table.add_column("market", no_wrap=True)
    for name in ("events", "span", "mean", "min", "max", "on demand", "above it", "spikes", "largest gap"):
        table.add_column(name, justify="right", no_wrap=True)
    for of in summary.markets:
        table.add_row(*_row(of))
    console.print(table)
    for note in summary.notes:
        console.print(f"note: {note}", soft_wrap=True, markup=False)
    if any(of.statistics is not None for of in summary.markets):
        console.print(_statistics(summary))


def _statistics(summary: "FileSummary") -> Table:
    table = Table(
        title="what the prices do",
        title_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
        caption="level: median, of on demand; p5 and p95: of the median; before a rise: share of minutes with one within the hour",
        caption_justify="left",
    )
    table.add_column("market", no_wrap=True)
    for name, _, _ in _STATISTICS:
        table.add_column(name, justify="right", no_wrap=True)
    for of in summary.markets:
        table.add_row(of.market, *(_figure(of.statistics, name, form) for _, name, form in _STATISTICS))
    return table


def _figure(of: "TraceStatistics | None", name: str, form: str) -> str:
    value = float("nan") if of is None else getattr(of, name)
    return "-" if isnan(value) else f"{value:{form}}"
