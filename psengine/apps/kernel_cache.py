"""Modules of compiled kernels: one process of a machine compiles, the others take what it left in numba's cache.

Nodes of one machine begin together. Were each to compile, all of it would be done once for each of them.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import threading
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pickle import PickleError
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

logger = logging.getLogger(__name__)

#: What numba raises where it can write nowhere, and for what it cannot read.
_UNUSABLE = (OSError, RuntimeError, EOFError, PickleError, ValueError)


def load(name: str, patience_s: float = 60.0) -> ModuleType:
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
        Compiled by this process only if the cache did not have it, or could not be used.
    """
    if name in sys.modules:
        return _imported(name)  # waits for another thread that is importing it, and may fail where that one did
    _set_numba_up()  # takes a second, and nobody has to wait meanwhile
    spec = find_spec(name)
    source = -1
    if spec is not None and spec.origin is not None:
        with suppress(OSError):  # in an archive, maybe: each compiles for itself
            source = os.open(spec.origin, os.O_RDONLY)
    if source < 0:
        return _imported(name)
    try:
        turn = threading.Thread(target=_lock, args=(os.dup(source),), name=f"turn-{name}", daemon=True)
        turn.start()
        turn.join(patience_s)
        return _imported(name)
    finally:
        os.close(source)


def _set_numba_up() -> None:
    """Have numba do what it does before it compiles, or loads, the first function."""
    from numba import njit

    njit("int64()")(lambda: 0)


def _lock(descriptor: int) -> None:
    """Lock a file until all other descriptors of this opening are closed."""
    try:
        with suppress(OSError):  # a file system without locks: each compiles for itself
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _imported(name: str) -> ModuleType:
    """Import a module, with an empty cache that is thrown away where the cache cannot be written, or is damaged."""
    config: Any = import_module("numba.core.config")
    try:
        return import_module(name)
    except _UNUSABLE as error:  # what is wrong with the module itself is raised again below
        logger.warning("%s is compiled anew, for numba's cache cannot be used: %s", name, error)
        before = config.CACHE_DIR
        with TemporaryDirectory(prefix="proteus-numba-") as folder:
            config.CACHE_DIR = folder
            try:
                return import_module(name)
            finally:
                config.CACHE_DIR = before
