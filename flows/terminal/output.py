"""Results for machines, on a file or on standard output."""

import json
import sys
from pathlib import Path
from typing import Any


def write_json(target: str | None, result: dict[str, Any]) -> None:
    """Write `result` to the file `target`; `-` is standard output, None is nowhere."""
    if target is not None:
        write_text(target, json.dumps(result, indent=2) + "\n")


def write_text(target: str, text: str) -> None:
    """Write `text` to the file `target`; `-` is standard output."""
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)
