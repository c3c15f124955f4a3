"""The version of this program, and the commit that it was made from."""

import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

from proteus_spot.psengine.protocol.protocol_version import full_version

#: `git archive` writes the commit into it.
_COMMIT = Path(__file__).with_name("commit.txt")
_SHOWN = 12


@cache
def program_version() -> str:
    """Return the version of the installed package and of its protocol, as in ``0.2.0 (protocol 5)``."""
    return full_version(version("proteus-spot"))


def program_commit() -> str:
    """Return the commit of this program's sources: of the archive they are from, else of the clone they are in.

    In a clone with changes a ``+`` follows. Without both it is ``unknown``.
    """
    archived = _COMMIT.read_text().strip()
    if not archived.startswith("$"):
        return archived[:_SHOWN]
    root = _COMMIT.resolve().parents[1]
    if not (root / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(root), "describe", "--always", f"--abbrev={_SHOWN}", "--exclude=*", "--dirty=+"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"
