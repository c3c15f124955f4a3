"""How the loop is compiled, and when it is compiled again.

Numba keeps what it compiled beside a function's file and looks at that file alone: a change in what the function calls
would go unseen. So the version of all of the loop's sources goes into its closure, which numba does look at.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path  # impure-ok: the digest of its own sources
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def inline_jit(function: Function) -> Function:
    """Compile a function that only compiled functions call; without the wrappers for Python, in half of the time.

    Divisions are NumPy's, without Python's checks: a tick is too short for them.
    """
    bare: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
    compiled: Function = njit(**bare)(function)
    return compiled


_HERE = Path(__file__).parent


def source_digest(*folders: Path) -> int:
    """Return a number that is another one when a source file of the simulator has another name or content."""
    sha = hashlib.sha256()
    for folder in folders or (_HERE, _HERE.parent / "forecast", _HERE.parent / "billing"):
        for path in sorted(folder.rglob("*.py")):
            text = path.read_bytes()
            sha.update(f"{path.relative_to(folder).as_posix()} {len(text)}\n".encode())
            sha.update(text)
    return int.from_bytes(sha.digest()[:7])  # fits an int64
