"""Files that a verb writes: checked before the work, written whole or not at all after it."""

import os
from pathlib import Path

from infra.errors import InputError
from infra.files import write_whole


def check_file_target(option: str, path: Path) -> None:
    """Refuse a file to be written where it cannot be."""
    if path.is_dir():
        raise InputError(f"{option} {path}: is a directory; name a file in it")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: there is no directory {path.parent}; make it, or name another file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{option} {path}: may not be written by this user; name another file")


def write_file(target: str, data: bytes) -> None:
    """Write `data` to the file `target`, whole or not at all; `InputError` where that fails, as on a full disk."""
    write_whole(Path(target), data)
