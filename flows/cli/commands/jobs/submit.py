"""The verb `proteus submit`."""

from pathlib import Path

import click

from flows.cli.options import json_option
from flows.terminal.interrupts import explain_interrupt
from flows.terminal.output import write_json


@click.command(short_help="Submit a job file (YAML) to the Prefect server.")
@click.argument("job_file", type=click.Path(path_type=Path))
@json_option()
def submit(job_file: Path, json_target: str | None) -> None:
    """Submit the job described by JOB_FILE (YAML) to the Prefect server at PREFECT_API_URL.

    Submitting the same job id again attaches to the job.
    """
    from tasks.training.submit import read_job
    from tasks.training.submit import submit as submit_job

    spec = read_job(job_file)
    with explain_interrupt(f"whether job {spec.job_id} was submitted is not known; submit it again, and it attaches"):
        done = submit_job(spec)
    write_json(json_target, done)
    if json_target != "-":
        click.echo(f"job {done['job']} was submitted as flow run {done['flow_run']} ({done['flow_run_id']})")
