"""Decorators of compiled functions, and the key by which numba's cache finds them outdated.

Numba caches a compiled function beside its file and checks that file alone: a change in a function that it calls would
be missed. So the version of all sources that it may call goes into its closure, which numba does check.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path  # impure-ok: the digest of its own sources
from typing import Any, TypeVar

from numba import njit
from numba.extending import register_jitable

Function = TypeVar("Function", bound=Callable[..., Any])
Entry = TypeVar("Entry", bound=Callable[..., Any])


def jitable(function: Function) -> Function:
    """Return the function unchanged, and let compiled functions call it, too; each compiles its own copy.

    So a formula is written once, for numbers, for arrays and for compiled loops. A call from Python compiles nothing.
    Compiled, the function divides as its caller does.
    """
    registered: Function = register_jitable(function)
    return registered


def inline_jit(function: Function) -> Function:
    """Compile a function that only compiled functions call: without the wrappers for Python, in half of the time.

    Divisions are NumPy's, without Python's checks, which would cost too much in each tick.
    """
    bare: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
    compiled: Function = njit(**bare)(function)
    return compiled


def entry(make: Callable[[int], Entry]) -> Entry:
    """Compile the function that `make` returns, for callers in Python, and store it in numba's cache.

    Parameters
    ----------
    make : receives `source_digest()`. The function that it returns must use that number (for example return it), or it
        would not be in the function's closure.
    """
    options: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}
    compiled: Entry = njit(**options)(make(source_digest()))
    return compiled


_HERE = Path(__file__).parent
#: Sources that a compiled function may call. Of the policies only the rules are compiled.
_COMPILED = (
    *(_HERE / name for name in ("backtest", "billing", "economics", "forecast")),
    _HERE / "policies" / "rules.py",
    _HERE / "jit.py",
)


def source_digest(*sources: Path) -> int:
    """Return a number that changes when a source file of a compiled function changes its name or content.

    Parameters
    ----------
    sources : files and folders; by default those of all compiled functions of the bidding core.
    """
    sha = hashlib.sha256()
    for source in sources or _COMPILED:
        for path in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            text = path.read_bytes()
            sha.update(f"{path.relative_to(source.parent).as_posix()} {len(text)}\n".encode())
            sha.update(text)
    return int.from_bytes(sha.digest()[:7])  # fits an int64
