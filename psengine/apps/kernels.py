"""Modules of compiled kernels: one process of a machine compiles, the others take what it left in numba's cache.

Nodes of one machine begin together, and compiling at the same time each would take as long as doing so in turn.
"""

from __future__ import annotations

import fcntl
import sys
import threading
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import BinaryIO


def load(name: str, patience_s: float = 120.0) -> ModuleType:
    """Import a module whose functions are compiled (with ``cache=True``) when it is imported.

    Parameters
    ----------
    name : str
        The full name of the module; it lies in a file.
    patience_s : float
        Longest wait for another process that compiles, s; it may be stopped, or the computer slow.

    Returns
    -------
    module
        Compiled by this process if no other did so before it, or the other one took longer than that.
    """
    if name in sys.modules:
        return import_module(name)  # waits for another thread that is importing it
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None, f"{name} lies in no file"
    with open(spec.origin, "rb") as source:
        turn = threading.Thread(target=_lock, args=(source,), name=f"turn-{name}", daemon=True)
        turn.start()
        turn.join(patience_s)
        return import_module(name)


def _lock(source: BinaryIO) -> None:
    """Lock a file until it is closed."""
    with suppress(OSError):  # a file system without locks: each compiles for itself
        fcntl.flock(source, fcntl.LOCK_EX)
