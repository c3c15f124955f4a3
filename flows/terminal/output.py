"""Results for machines, on a file or on standard output; notes for their reader, on standard error."""

import json
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console


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


def notes(texts: Iterable[str]) -> None:
    """Say on standard error what the reader of the figures must know."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for text in texts:
        console.print(f"note: {text}", markup=False)
