"""URLs of files of this machine, of paths with any character but the few that a URL has no word for.

`Path.as_uri` writes a space as ``%20``. fsspec and SQLAlchemy take a path as it is: to them that is another directory.
"""

import os
import re
from pathlib import Path

from proteus_spot.infra.errors import InputError

FILE = "file://"
_HOME = re.compile(r"(file://(?=/?~)|sqlite(?:\+\w+)?:///)?(?:(?<=file://)/)?(~.*)", re.DOTALL)


def at_home(text: str) -> str:
    """Return a path or URL of this machine with a leading ``~`` expanded, where no shell has done so; else `text`."""
    found = _HOME.fullmatch(text)
    if found is None:
        return text
    scheme, path = found[1] or "", os.path.expanduser(found[2])
    return text if path == found[2] else f"{scheme}{path}"


def file_url(path: Path) -> str:
    """Return the fsspec URL of a path, made absolute; `local_path` is its inverse."""
    return f"{FILE}{path.absolute()}"


def local_path(url: str) -> str | None:
    """Return the absolute path that a ``file://`` URL names; None for any other URL."""
    return url.removeprefix(FILE) if url.startswith(f"{FILE}/") else None


def sqlite_url(path: Path) -> str:
    """Return the SQLAlchemy URL of a SQLite file, its path made absolute.

    Raises
    ------
    InputError
        If the path has a question mark, which ends the path in such a URL.
    """
    if "?" in str(path.absolute()):
        raise InputError(
            f"{path}: a state database cannot lie below a name with a question mark; name another directory"
        )
    return f"sqlite:///{path.absolute()}"
