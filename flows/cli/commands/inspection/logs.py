"""The verb `proteus logs`."""

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.cli.options import json_option, state_options
from flows.terminal.interrupts import Interrupted, explain_interrupt
from flows.terminal.output import write_json
from flows.terminal.tables import Column, show_lines, show_table

if TYPE_CHECKING:
    from tasks.reports.node_logs import LogLine

_COLUMNS = (
    *(Column("node"), Column("role", 2), Column("began (UTC)", 1), Column("bytes", 3, right=True)),
    Column("last line", 4, least=16, cut=True),
)


@click.command()
@click.argument("job")
@click.argument("node", required=False)
@click.option("--incarnation", metavar="BEGAN", help="Of NODE only the process that began then, as the table has it.")
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Print what comes, too, until the job has ended or Ctrl-C; without NODE, of all nodes, from their last lines on.",
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
    """List what the nodes of JOB have said, one line a process, or show the logs of one NODE in order.

    The logs are in the blob store, at most two seconds behind, and outlive the machines.

    \b
    proteus logs my-job                    which processes there were, and how each log ends
    proteus logs my-job --follow           the last lines of all nodes, and what comes
    proteus logs my-job i-0abc --follow    what this machine said, and says
    """  # noqa: D301 - click reads the control character
    from tasks.reports.node_logs import JobLogs

    if node is None and incarnation is not None:
        raise click.UsageError("--incarnation is about one node: name it behind the job")
    if json_target is not None and (node is not None or follow):
        raise click.UsageError("--json writes the table of all nodes: leave NODE and --follow out")
    found = JobLogs(job, database, directory)
    if node is None and not follow:
        lines = found.lines()
        write_json(json_target, {"job": job, "logs": [asdict(line) for line in lines]})
        if json_target != "-":
            _show(lines)
        return
    try:
        with explain_interrupt(f"job {job} is no longer followed here; it goes on as it was"):
            if node is None:
                _tell(found.follow_all())
            else:
                _tell(found.follow(node, incarnation) if follow else found.text(node, incarnation))
    except (KeyboardInterrupt, Interrupted) as error:
        if not follow or getattr(error, "exit_code", 130) != 130:  # Ctrl-C is how following ends
            raise
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(pieces: Iterable[tuple[str, str]]) -> None:
    """Print pieces of text, each under its process's name where that changes."""
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
            # What another program wrote is text and nothing else.
            "".join(character for character in line.last_line if character.isprintable()),
        )
        for line in lines
    ]
    show_table(_COLUMNS, rows)
