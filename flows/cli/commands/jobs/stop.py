"""The verb `proteus stop`."""

from pathlib import Path

import click

from flows.cli.options import state_options
from flows.terminal.interrupts import explain_interrupt


@click.command(short_help="End a job after its current clock and save the model.")
@click.argument("job")
@click.option("--reason", default="asked to stop", show_default=True, help="Written into the job's result.")
@state_options
def stop(job: str, reason: str, database: str | None, directory: Path | None) -> None:
    """End JOB after its current clock, save the model and terminate the machines.

    JOB may be a local run in another terminal.
    """
    from tasks.training.submit import stop_job

    with explain_interrupt(
        f"whether job {job} was told to end is not known; `proteus jobs` shows it, and stop may be repeated"
    ):
        outcome = stop_job(job, reason, database, directory)
    click.echo(outcome)
