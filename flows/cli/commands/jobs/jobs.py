"""The verb `proteus jobs`."""

from dataclasses import asdict

import click
from rich.console import Console

from bidding.market.money import usd
from flows.cli.options import json_option
from flows.terminal.output import plain_table, write_json
from flows.terminal.run_view import clock_time


@click.command()
@json_option()
def jobs(json_target: str | None) -> None:
    """List the jobs of the state database, oldest first."""
    from tasks.reports.job_list import job_lines

    lines = job_lines()
    write_json(json_target, {"jobs": [asdict(line) for line in lines]})
    if json_target == "-":
        return
    table = plain_table("", "job", "state", "market time", "clock", "loss", "machines", "evictions", "spent", "why")
    for line in lines:
        loss = "" if line.loss is None else f"{line.loss:.4f}"
        table.add_row(
            *(line.job_id, line.state, clock_time(line.market_s), str(line.clock), loss, str(line.machines)),
            *(str(line.evictions), usd(line.spent_micros), line.why),
        )
    Console().print(table if lines else "no jobs")
