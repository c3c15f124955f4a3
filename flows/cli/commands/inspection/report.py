"""The verb `proteus report`."""

from pathlib import Path

import click

from proteus_spot.flows.cli.options import state_options


@click.command(short_help="Write the HTML report of a job to one file.")
@click.argument("job")
@click.option(
    "--out",
    "output",
    type=click.Path(path_type=Path),
    help="The file. Default: runs/JOB/report.html, if runs/JOB exists.",
)
@state_options
def report(job: str, output: Path | None, database: str | None, directory: Path | None) -> None:
    """Write the HTML report of JOB to one file, which any browser shows without a network.

    It has prices and bids, footprint, loss, stage, evictions and dollars on one time axis, every decision with its
    reasons, and the ledger. The last line printed is the file's path.
    """
    from proteus_spot.tasks.reports.job_report import write_report

    click.echo(write_report(job, output=output, database=database, directory=directory))
