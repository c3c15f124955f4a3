"""The verb `proteus sweep report`."""

from pathlib import Path

import click

from proteus_spot.flows.cli.options import state_options


@click.command(short_help="Write the HTML report of a sweep to one file.")
@click.argument("sweep")
@click.option(
    "--out",
    "output",
    type=click.Path(path_type=Path),
    help="The file. Default: report.html in the run's directory, if it has one.",
)
@state_options
def report(sweep: str, output: Path | None, database: str | None, directory: Path | None) -> None:
    """Write the HTML report of SWEEP to one file, which any browser shows without a network.

    It has the trials over time on one axis with prices, the curves with their predictions, the settings as parallel
    coordinates, the dollars of each trial, and tables of trials and machines. The last line printed is the file's path.
    """
    from proteus_spot.tasks.sweeps.sweep_page import write_sweep_report

    click.echo(write_sweep_report(sweep, output=output, database=database, directory=directory))
