"""The verb `proteus sweep stop`: that of jobs, which ends sweeps as well."""

import click

from proteus_spot.flows.cli.commands.jobs.stop import stop as stop_job

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
