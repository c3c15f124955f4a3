"""The verb `proteus check`."""

from typing import Any

import click

from proteus_spot.flows.cli.job_options import (
    JobCommand,
    application_options,
    faults_by_option,
    job_option,
    job_options,
)
from proteus_spot.flows.cli.options import json_option
from proteus_spot.flows.terminal.interrupts import explain_interrupt
from proteus_spot.flows.terminal.output import write_json
from proteus_spot.infra.errors import ProteusError


@click.command(cls=JobCommand, short_help="Check an application before it is trained.")
@click.argument("app", metavar="APP")
@application_options
@job_option(
    "training.partitions",
    type=click.IntRange(2, 64),
    default=None,
    show_default="4; a net has as many as it has workers",
)
@job_options("training.seed")
@json_option("the faults")
def check(json_target: str | None, app: str, job: dict[str, Any]) -> None:
    """Run each task of APP twice, in two processes, and compare the bits; nothing is bought or kept.

    A line for each fault: other bits the second time or in another process, `data` or `params` that were written to,
    an update of another shape or type than its table's rows or of an unknown table, numbers that are not finite, rows
    of a table with own=True that two partitions share, rows that a task reads without naming their writer in `after`,
    and what a method raises. Exit code 1 if there is one.

    \b
    Examples:
      proteus check mine:App --data points.csv
      proteus check kmeans:KMeans --code docs/examples/kmeans.py --param k=10
    """  # noqa: D301 - click reads the control character
    from proteus_spot.tasks.local_nodes.two_process_check import checked_training, find_faults

    with faults_by_option("training."):
        training = checked_training(app, job["training"])
    with explain_interrupt("nothing was kept"):
        faults, notes = find_faults(training)
    write_json(json_target, {"app": app, "faults": list(faults), "notes": list(notes)})
    for fault in faults if json_target != "-" else ():
        click.echo(f"{app}: {fault}")
    if faults:
        raise ProteusError(f"check {app}: {len(faults)} fault{'s' * (len(faults) > 1)}; fix what the lines above name")
    if json_target != "-":
        click.echo(
            f"{app}: no fault found; {training.partitions} partitions gave the same bits twice, in two processes"
        )
        for note in notes:
            click.echo(f"{app}: {note}")
