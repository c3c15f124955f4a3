"""Standard output: results for machines, and the console that readers see."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table


def write_json(target: str | None, result: dict[str, Any]) -> None:
    """Write `result` to the file `target`; `-` is standard output, None is nowhere."""
    if target is not None:
        write_text(target, json.dumps(result, indent=2) + "\n")


def write_text(target: str, text: str) -> None:
    """Write `text` to the file `target`, whole or not at all; `-` is standard output."""
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()  # what is wrong with it is said now, not when the process ends
        return
    from tasks.output_files import write_file

    write_file(target, text.encode())


def output_console(piped_width: int) -> Console:
    """Return the console on standard output: as wide as the terminal, or of `piped_width` columns elsewhere.

    Elsewhere than on a terminal a line is as long as it must be, so that no figure is cut.
    """
    return Console(highlight=False, width=None if sys.stdout.isatty() else piped_width)


def plain_table(title: str, *columns: str) -> Table:
    """Return a table without lines; its first two columns are text, the others numbers."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right")
    return table
