"""The verb `proteus market`."""

from pathlib import Path

import click

from proteus_spot.flows.cli.options import json_option, state_options
from proteus_spot.flows.terminal.output import notes, write_json
from proteus_spot.flows.terminal.tables import show_lines


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
    spot advisor. speed: of a vCPU (or GPU) as applications were measured, 1 as usual.

    The databases are those that `proteus jobs` lists.
    """
    from proteus_spot.flows.terminal.market_view import show_markets
    from proteus_spot.tasks.market.facts.showing import list_markets

    lines, left_out = list_markets(markets, database, directory, advisor)
    notes(left_out)
    write_json(json_target, {"markets": [line.to_record() for line in lines]})
    if json_target == "-":
        return
    if not lines:
        show_lines("no markets: no job was opened for bidding here; name some, as TYPE/ZONE")
        return
    show_markets(lines)
