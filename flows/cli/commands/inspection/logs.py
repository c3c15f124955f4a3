"""The verb `proteus logs`."""

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from flows.cli.options import json_option
from flows.terminal.interrupts import Interrupted
from flows.terminal.output import output_console, write_json

if TYPE_CHECKING:
    from tasks.reports.node_logs import LogLine


@click.command()
@click.argument("job")
@click.argument("node", required=False)
@click.option("--incarnation", metavar="BEGAN", help="Of NODE only the process that began then, as the table has it.")
@click.option("--follow", "-f", is_flag=True, help="Of NODE tell what comes, too, until the job has ended or Ctrl-C.")
@json_option("the table")
@click.option("--database", metavar="URL", help="State database. Default: the run's, else PROTEUS_DATABASE_URL.")
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Where the run kept its state.")
def logs(
    job: str,
    node: str | None,
    incarnation: str | None,
    follow: bool,
    json_target: str | None,
    database: str | None,
    directory: Path | None,
) -> None:
    r"""List what the nodes of JOB have said, one line a process, or show the logs of one NODE in order.

    The logs are in the blob store, at most two seconds behind, and outlive the machines.

    \b
    proteus logs my-job                    which processes there were, and how each log ends
    proteus logs my-job i-0abc --follow    what this machine said, and says
    """
    from tasks.reports.node_logs import JobLogs

    if node is None and (follow or incarnation is not None):
        raise click.UsageError("--follow and --incarnation are about one node: name it behind the job")
    if node is not None and json_target is not None:
        raise click.UsageError("--json writes the table of all nodes: leave NODE out")
    found = JobLogs(job, database, directory)
    if node is None:
        lines = found.lines()
        write_json(json_target, {"job": job, "logs": [asdict(line) for line in lines]})
        if json_target != "-":
            output_console(_width(lines)).print(_table(lines) if lines else "no node has left a log yet")
        return
    try:
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


def _width(lines: "list[LogLine]") -> int:
    """Return how wide the table is with every line whole: a file or a program gets that."""
    return 100 + max((len(line.node + line.last_line) for line in lines), default=0)


def _table(lines: "list[LogLine]") -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("node", "role", "began (UTC)", "bytes"):
        table.add_column(column, justify="right" if column == "bytes" else "left", no_wrap=True)
    table.add_column("last line")
    for line in lines:
        began = line.incarnation.partition("-")[0]
        # What somebody else's program wrote is text and nothing else.
        said = Text("".join(character for character in line.last_line if character.isprintable()))
        table.add_row(Text(line.node), line.role, began, str(line.bytes), said)
    return table
