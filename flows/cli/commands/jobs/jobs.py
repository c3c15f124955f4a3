"""The verb `proteus jobs`."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from proteus_spot.flows.cli.options import json_option, state_options
from proteus_spot.flows.terminal.output import notes, write_json
from proteus_spot.flows.terminal.run_view import clock_time, spent_text
from proteus_spot.flows.terminal.tables import Column, show_lines, show_table

_COLUMNS = (
    Column("job"),
    Column("kind", 11),
    Column("state"),
    Column("began", 6),
    Column("ended", 7),
    Column("took", 5, right=True),
    Column("clock", 2, right=True),
    Column("loss", 3, right=True),
    Column("machines", 4, right=True),
    Column("evictions", 8, right=True),
    Column("spent", right=True),
    Column("why", 1, least=20),
    Column("directory", 9),
    Column("page", 10),
)


@click.command(short_help="List the jobs and sweeps of the state database and the local runs.")
@state_options
@json_option()
def jobs(database: str | None, directory: Path | None, json_target: str | None) -> None:
    """List the jobs and sweeps of the state database and the local runs in runs/, oldest first.

    Of a sweep, clock is the steps of all its trials; the best value of its metric stands under why.

    With --dir or --database, list only the jobs of that run or database. Times are UTC of the market.
    """
    from proteus_spot.tasks.reports.job_list import list_jobs

    lines, left_out = list_jobs(database, directory)
    notes(left_out)
    write_json(json_target, {"jobs": [asdict(line) for line in lines]})
    if json_target == "-":
        return
    if not lines:
        show_lines("no jobs")
        return
    rows = [
        (
            line.job_id,
            line.kind,
            "paused" if line.paused else line.state,
            _moment(line.begun_s),
            "" if line.ended_s is None else _moment(line.ended_s),
            clock_time(line.market_s),
            str(line.clock),
            "" if line.loss is None or line.kind == "sweep" else f"{line.loss:.4f}",
            str(line.machines),
            str(line.evictions),
            spent_text(line.spent_micros, line.spent_is_known),
            line.why,
            line.directory or "",
            line.page or "",
        )
        for line in lines
    ]
    show_table(_COLUMNS, rows, caption="began and ended: UTC of the market")


def _moment(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M}"
