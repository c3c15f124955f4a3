"""Output files of a verb, checked before the work."""

import os
from pathlib import Path

from proteus_spot.infra.errors import InputError


def check_file_target(option: str, path: Path) -> None:
    """Refuse an output file that cannot be written."""
    if path.is_dir():
        raise InputError(f"{option} {path}: is a directory; name a file in it")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: there is no directory {path.parent}; make it, or name another file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{option} {path}: may not be written by this user; name another file")
