"""The group of verbs `proteus sweep …`, and those of its verbs that are a call."""

from pathlib import Path

import click

from proteus_spot.flows.cli.commands.jobs.stop import stop as stop_job
from proteus_spot.flows.cli.commands.sweeps.local import local
from proteus_spot.flows.cli.commands.sweeps.run_sweep import run
from proteus_spot.flows.cli.commands.sweeps.show import show
from proteus_spot.flows.cli.commands.sweeps.submit_sweep import submit
from proteus_spot.flows.cli.options import state_options

#: That of jobs, which ends sweeps as well.
stop = click.Command(
    "stop",
    callback=stop_job.callback,
    params=stop_job.params,
    help=(
        "End a sweep: nothing more is bought, its trials save their states, and the machines go.\n\n"
        "Ticks carry this out. JOB is the sweep's id, and may be a local run in another terminal. The same id goes on "
        "with the sweep. Exit code 1: machines that were to end at once may still live."
    ),
    short_help="End a sweep: its trials save their states, and its machines go.",
)


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


#: The verbs, in the order of the help: `run`, `local`, `submit`, `show`, `stop`, `report`.
VERBS: tuple[click.Command, ...] = (run, local, submit, show, stop, report)


@click.group(short_help="Search hyper-parameters on spot machines.")
def sweep() -> None:
    """Train many settings of a model on spot machines, each on a machine of its own, and keep the best.

    A sweep is described by a file, sweep.yaml (docs/sweeps.md).
    """


for verb in VERBS:
    sweep.add_command(verb)
