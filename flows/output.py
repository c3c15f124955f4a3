"""Results for machines, on a file or on standard output."""

import json
import sys
from pathlib import Path
from typing import Any


def write_json(target: str | None, result: dict[str, Any]) -> None:
    """Write `result` to the file `target`; `-` is standard output, None is nowhere."""
    if target is None:
        return
    text = json.dumps(result, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)
