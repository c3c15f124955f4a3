"""The verb `proteus stop`."""

import click

from flows.terminal.interrupts import explain_interrupt


@click.command()
@click.argument("job")
@click.option("--reason", default="asked to stop", show_default=True, help="Written into the job's result.")
def stop(job: str, reason: str) -> None:
    """End JOB at the clock under way; its model is saved, and its machines go."""
    from tasks.training.submit import stop as stop_job

    with explain_interrupt(
        f"whether job {job} was told to end is not known; `proteus jobs` shows it, and stop may be repeated"
    ):
        said = stop_job(job, reason)
    click.echo(said)
