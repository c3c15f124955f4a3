"""JSON and text results to files or standard output; notes on standard error."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console


def write_json(target: str | None, result: dict[str, Any]) -> None:
    """Write `result` to the file `target`; `-` is standard output, None writes nothing."""
    if target is not None:
        write_text(target, json.dumps(result, indent=2) + "\n")


def write_text(target: str, text: str) -> None:
    """Write `text` to the file `target` atomically; `-` is standard output."""
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()  # an error is reported now, not when the process ends
        return
    from proteus_spot.infra.files import write_whole

    write_whole(Path(target), text.encode())


def notes(texts: Iterable[str]) -> None:
    """Print notes on the results to standard error."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for text in texts:
        console.print(f"note: {text}", markup=False)
