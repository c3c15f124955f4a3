"""The verb `proteus market`."""

from collections.abc import Callable
from pathlib import Path

import click

from proteus_spot.bidding.facts.known import SHOWN_H, DatedFigure, MarketKnown
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import usd
from proteus_spot.flows.cli.options import json_option, state_options
from proteus_spot.flows.terminal.output import notes, write_json
from proteus_spot.flows.terminal.run_view import clock_time
from proteus_spot.flows.terminal.tables import Column, show_lines, show_table

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
    Column("last refusal", 6),
    Column("directory", 7),
)


@click.command(short_help="Show what is known of markets: grants, survival, prices, each with its age.")
@click.argument("markets", nargs=-1, metavar="[TYPE/ZONE]...")
@click.option("--advisor", type=click.Path(path_type=Path),
              help="File of EC2's spot advisor: its bands are recorded first, for all jobs here.")  # fmt: skip
@state_options
@json_option()
def market(
    markets: tuple[str, ...],
    advisor: Path | None,
    database: str | None,
    directory: Path | None,
    json_target: str | None,
) -> None:
    """Show what is known of the markets of all jobs, or of the named ones; how old a figure is stands behind it.

    granted: share of the machines asked for. next request: the chance that it gets some, and the share that it gets
    then. lives: the share of machines that live so long. score: EC2's placement score, 1 to 10. taken a month: by the
    spot advisor.

    The databases are those that `proteus jobs` lists.
    """
    from proteus_spot.tasks.market.facts.showing import list_markets

    lines, left_out = list_markets(markets, database, directory, advisor)
    notes(left_out)
    write_json(json_target, {"markets": [line.to_record() for line in lines]})
    if json_target == "-":
        return
    if not lines:
        show_lines("no markets: no job was opened for bidding here; name some, as TYPE/ZONE")
        return
    rows = [(*_cells(line.known), line.directory or "") for line in lines]
    show_table(_COLUMNS, rows, caption="in brackets: how long ago, in market time")


def _cells(known: MarketKnown) -> tuple[str, ...]:
    def aged(figure: DatedFigure | None, form: Callable[[float], str]) -> str:
        if figure is None:
            return ""
        age_s = figure.age_s(known.at_s)
        return form(figure.value) + ("" if age_s is None else f" ({clock_time(age_s)})")

    refused = known.refused
    return (
        str(known.market),
        aged(known.share_granted, "{:.0%}".format),
        f"{known.grant.chance:.0%}, {known.grant.size:.0%}",
        *(f"{known.survival.lives(hours * HOUR_S):.0%}" for hours in SHOWN_H),
        aged(known.price_micros, _dollars),
        aged(known.on_demand_micros, _dollars),
        aged(known.score, "{:.0f}".format),
        aged(known.monthly_share, "{:.0%}".format),
        "" if refused is None else f"{refused[0]} ({clock_time(known.at_s - refused[1])})",
    )


def _dollars(micros: float) -> str:
    return usd(int(micros))
