"""The entry of the command `proteus`: its modules are found before those of the same names on `PYTHONPATH`."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command."""
    named = {os.path.abspath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    if os.environ.get("PYTHONPATH"):
        # Not first of all: the folder may be site-packages, which come after Python's own modules.
        others = [folder for folder in sys.path if os.path.abspath(folder) not in named]
        behind = [folder for folder in sys.path if os.path.abspath(folder) in named]
        sys.path[:] = [*others, str(Path(__file__).resolve().parent), *behind]
    from proteus_spot.flows.cli.main import main as run

    run()
