"""The verb `proteus logs`."""

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proteus_spot.flows.cli.options import json_option, state_options
from proteus_spot.flows.terminal.interrupts import Interrupted, explain_interrupt
from proteus_spot.flows.terminal.output import notes, write_json
from proteus_spot.flows.terminal.tables import Column, show_lines, show_table

if TYPE_CHECKING:
    from proteus_spot.tasks.reports.log_lines import LogLine

_COLUMNS = (
    *(Column("node"), Column("role", 2), Column("began (UTC)", 1), Column("bytes", 3, right=True)),
    Column("last line", 4, least=16, cut=True),
)


@click.command(short_help="List the logs of a job's nodes, or print and follow them.")
@click.argument("job")
@click.argument("node", required=False)
@click.option("--incarnation", metavar="BEGAN", help="Only the process of NODE that began then, as in the table.")
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Keep printing new lines until the job ends or Ctrl-C; without NODE, of all nodes, beginning with their last "
    "lines.",
)
@json_option("the table")
@state_options
def logs(
    job: str,
    node: str | None,
    incarnation: str | None,
    follow: bool,
    json_target: str | None,
    database: str | None,
    directory: Path | None,
) -> None:
    """List the logs of JOB's nodes, one line per process, or print the logs of one NODE in order.

    The logs are in the blob store, at most two seconds behind, and outlive the machines.

    \b
    proteus logs my-job                    all processes, and the last line of each log
    proteus logs my-job --follow           the last lines of all nodes, then new lines
    proteus logs my-job i-0abc --follow    the logs of this machine, then new lines
    """  # noqa: D301 - click reads the control character
    from proteus_spot.tasks.reports.log_lines import JobLogs

    if node is None and incarnation is not None:
        raise click.UsageError("--incarnation is about one node: name it after the job")
    if json_target is not None and (node is not None or follow):
        raise click.UsageError("--json writes the table of all nodes: leave NODE and --follow out")
    found = JobLogs(job, database, directory)
    if node is None and not follow:
        lines, alarms = found.lines(), found.alarms()
        notes(alarms)
        write_json(json_target, {"job": job, "logs": [asdict(line) for line in lines], "alarms": alarms})
        if json_target != "-":
            _show(lines)
        return
    try:
        with explain_interrupt(f"job {job} is no longer followed here; it continues"):
            if node is None:
                _print_pieces(found.follow_all())
            else:
                _print_pieces(found.follow(node, incarnation) if follow else found.text(node, incarnation))
    except (KeyboardInterrupt, Interrupted) as error:
        if not follow or getattr(error, "exit_code", 130) != 130:  # Ctrl-C is how following ends
            raise
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_pieces(pieces: Iterable[tuple[str, str]]) -> None:
    """Print pieces of text, with the name of the process above where it changes."""
    last = None
    for name, text in pieces:
        if name != last:
            click.echo(f"== {name}")
        last = name
        click.echo(text, nl=not text.endswith("\n"))


def _show(lines: "list[LogLine]") -> None:
    if not lines:
        show_lines("no node has left a log yet")
        return
    rows = [
        (
            *(line.node, line.role, line.incarnation.partition("-")[0], str(line.bytes)),
            # A log line of another program may have control characters, which must not reach the terminal.
            "".join(character for character in line.last_line if character.isprintable()),
        )
        for line in lines
    ]
    show_table(_COLUMNS, rows)
