"""The verb `proteus submit`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from proteus_spot.flows.cli.job_options import JobCommand, faults_by_option, job_option
from proteus_spot.flows.cli.options import json_option
from proteus_spot.flows.terminal.interrupts import Interrupted, explain_interrupt
from proteus_spot.flows.terminal.output import notes, write_json


@click.command(cls=JobCommand, short_help="Submit a job file (YAML) to the Prefect server.")
@click.argument("job_file", type=click.Path(path_type=Path))
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Directory of a running `proteus up`. Default: the server at PREFECT_API_URL, else runs/up.",
)
@job_option("budget_usd", show_default="the file's")
@job_option("deadline", show_default="the file's")
@job_option("queue", show_default="the file's")
@click.option("--follow", "-f", is_flag=True, help="Print the run's log until it ends, or Ctrl-C.")
@json_option()
def submit(
    job_file: Path,
    directory: Path | None,
    follow: bool,
    json_target: str | None,
    job: dict[str, Any],
) -> None:
    """Submit the job described by JOB_FILE (YAML) to a Prefect server: that of `proteus up`, or at PREFECT_API_URL.

    Submitting the same job id again attaches to the job. With --follow, the exit code is 1 if the run fails.
    """
    from proteus_spot.tasks.training.submission import follow_run, prefect_server, read_job, with_options
    from proteus_spot.tasks.training.submission import submit as submit_job

    with faults_by_option():
        spec = with_options(read_job(job_file), job)
    unknown = f"whether job {spec.job_id} was submitted is not known; submit it again, and it attaches"
    with explain_interrupt(unknown), prefect_server(directory) as server:
        finished = server.is_finished(spec.job_id)
        done = submit_job(spec)
        notes(server.warnings())
        write_json(json_target, done)
        if json_target != "-":
            if finished:
                click.echo(f"job {done['job']} is finished: its run shows the figures again, and buys nothing")
            click.echo(f"job {done['job']} was submitted as flow run {done['flow_run']} ({done['flow_run_id']})")
            click.echo(f"its run:  {done['run_url']}")
            click.echo(f"its page: {done['page_url']}")
            click.echo("\n".join(["next:", *(f"  {command}" for command in server.next_commands(spec.job_id))]))
        if follow:
            _follow(spec.job_id, follow_run(done["flow_run_id"]), to_stderr=json_target == "-")


def _follow(job_id: str, lines: Iterator[str], to_stderr: bool) -> None:
    try:
        with explain_interrupt(f"job {job_id} is no longer followed here; it continues"):
            for line in lines:
                click.echo(line, err=to_stderr)
    except (KeyboardInterrupt, Interrupted) as error:
        if getattr(error, "exit_code", 130) != 130:  # Ctrl-C is how following ends
            raise
