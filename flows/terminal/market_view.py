"""Terminal output of what is known of markets."""

from collections.abc import Callable, Sequence

from proteus_spot.bidding.facts.known import SHOWN_H, DatedFigure
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import usd
from proteus_spot.flows.terminal.run_view import clock_time
from proteus_spot.flows.terminal.tables import Column, show_table
from proteus_spot.tasks.market.facts.showing import MarketLine

_COLUMNS = (
    Column("market"),
    Column("granted", right=True),
    Column("next request", right=True),
    Column("lives 1 h", right=True),
    Column("6 h", 1, right=True),
    Column("24 h", 1, right=True),
    Column("price", 2, right=True),
    Column("on demand", 3, right=True),
    Column("score", 4, right=True),
    Column("taken a month", 5, right=True),
    Column("speed", 5),
    Column("last refusal", 6),
    Column("rebalance", 7, right=True),
    Column("directory", 8),
)


def show_markets(lines: Sequence[MarketLine]) -> None:
    """Show a row for each market."""
    rows = [(*_cells(line), line.directory or "") for line in lines]
    show_table(_COLUMNS, rows, caption="in brackets: how long ago, in market time")


def _cells(line: MarketLine) -> tuple[str, ...]:
    known = line.known

    def aged(figure: DatedFigure | None, form: Callable[[float], str]) -> str:
        if figure is None:
            return ""
        age_s = figure.age_s(known.at_s)
        return form(figure.value) + ("" if age_s is None else f" ({clock_time(age_s)})")

    refused = known.refused
    speeds = (f"{app} {of.value:.2f} ({clock_time(of.age_s(known.at_s))})" for app, of in line.speeds.items())
    return (
        str(known.market),
        aged(known.share_granted, "{:.0%}".format),
        f"{known.grant.chance:.0%}, {known.grant.size:.0%}",
        *(f"{known.survival_now.lives(hours * HOUR_S):.0%}" for hours in SHOWN_H),
        aged(known.price_micros, _dollars),
        aged(known.on_demand_micros, _dollars),
        aged(known.score, "{:.0f}".format),
        aged(known.monthly_share, "{:.0%}".format),
        ", ".join(speeds),
        "" if refused is None else f"{refused[0]} ({clock_time(known.at_s - refused[1])})",
        aged(known.rebalances, "{:.0f}".format),
    )


def _dollars(micros: float) -> str:
    return usd(int(micros))
