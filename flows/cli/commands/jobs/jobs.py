"""The verbs that look after jobs: `jobs`, `cost`, `submit`, `stop`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bidding.billing.spending import Use
from bidding.market.money import to_dollars, usd
from flows.terminal.interrupts import or_else
from flows.terminal.output import write_json
from flows.terminal.run_view import clock_time

_JSON = click.option(
    "--json", "json_target", metavar="FILE", help="Write the result for machines; - is standard output."
)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right")
    return table


@click.command()
@_JSON
def jobs(json_target: str | None) -> None:
    """List the jobs of the state database, oldest first."""
    from tasks.training.submit import job_lines

    lines = job_lines()
    write_json(json_target, {"jobs": [asdict(line) for line in lines]})
    if json_target == "-":
        return
    table = _table("", "job", "state", "market time", "clock", "loss", "machines", "evictions", "spent", "why")
    for line in lines:
        loss = "" if line.loss is None else f"{line.loss:.4f}"
        table.add_row(
            *(line.job_id, line.state, clock_time(line.market_s), str(line.clock), loss, str(line.machines)),
            *(str(line.evictions), usd(line.spent_micros), line.why),
        )
    Console().print(table if lines else "no jobs")


@click.command()
@click.argument("job", nargs=-1)
@_JSON
def cost(job: tuple[str, ...], json_target: str | None) -> None:
    """Show what jobs cost (all, or those named), by market, tier and use.

    useful: the machine worked; idle: it booted, or waited out its paid hour; hand-over: it gave its work to others;
    lost: its work was done again; refunded: the market gave the money back.
    """
    from tasks.market.costs import cost_rows

    rows = cost_rows(job)
    total: dict[str, Any] = {"spent_usd": to_dollars(sum(row.spent for row in rows))}
    records = [
        {
            "job": row.job_id,
            "market": row.market,
            "tier": row.tier,
            "machine_hours": row.machine_hours,
            "spent_usd": to_dollars(row.spent),
            **{f"{use.value.replace('-', '_')}_usd": to_dollars(row.uses.get(use, 0)) for use in Use},
        }
        for row in rows
    ]
    write_json(json_target, {"rows": records, **total})
    if json_target == "-":
        return
    table = _table("", "job", "market", "tier", "hours", "spent", *(str(use) for use in Use))
    for row in rows:
        uses = (usd(row.uses.get(use, 0)) for use in Use)
        table.add_row(row.job_id, row.market, row.tier, f"{row.machine_hours:g}", usd(row.spent), *uses)
    sums = (usd(sum(row.uses.get(use, 0) for row in rows)) for use in Use)
    table.add_row("all", "", "", f"{sum(row.machine_hours for row in rows):g}", usd(sum(r.spent for r in rows)), *sums)
    Console().print(table if rows else "nothing was spent")


@click.command()
@click.argument("job_file", type=click.Path(path_type=Path))
@_JSON
def submit(job_file: Path, json_target: str | None) -> None:
    """Submit the job that JOB_FILE (YAML) describes to the Prefect server that PREFECT_API_URL names.

    The same job id again attaches to the job.
    """
    from tasks.training.submit import read_job
    from tasks.training.submit import submit as submit_job

    spec = read_job(job_file)
    with or_else(f"whether job {spec.job_id} was submitted is not known; submit it again, and it attaches"):
        done = submit_job(spec)
    write_json(json_target, done)
    if json_target != "-":
        click.echo(f"job {done['job']} was submitted as flow run {done['flow_run']} ({done['flow_run_id']})")


@click.command()
@click.argument("job")
@click.option("--reason", default="asked to stop", show_default=True, help="Written into the job's result.")
def stop(job: str, reason: str) -> None:
    """End JOB at the clock under way; its model is saved, and its machines go."""
    from tasks.training.submit import stop as stop_job

    with or_else(f"whether job {job} was told to end is not known; `proteus jobs` shows it, and stop may be repeated"):
        said = stop_job(job, reason)
    click.echo(said)
