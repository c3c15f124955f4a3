"""Import of modules with compiled kernels: one process per machine compiles, the others use numba's cache.

Nodes of one machine start together. Without this module each of them would compile everything.
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

#: Errors that numba raises if it can write no cache, or cannot read it.
_UNUSABLE = (OSError, RuntimeError, EOFError, ImportError, PickleError, ValueError)


def load(name: str, timeout_s: float = 60.0) -> ModuleType:
    """Import a module whose functions are compiled (with ``cache=True``) when it is imported.

    Parameters
    ----------
    name : str
        Full name of the module, which must be a file.
    timeout_s : float
        Maximum seconds to wait for another process that compiles; it may be stopped, or the computer slow.

    Returns
    -------
    module
        Compiled by this process only if the cache did not have it, or could not be used.
    """
    if name in sys.modules:
        return _import(name)  # waits for another thread that is importing it, and may fail if that one did
    _initialize_numba()  # takes a second; done before the lock, so that no other process waits for it
    spec = find_spec(name)
    source = -1
    if spec is not None and spec.origin is not None:
        with suppress(OSError):  # maybe in an archive: then each process compiles
            source = os.open(spec.origin, os.O_RDONLY)
    if source < 0:
        return _import(name)
    try:
        waiting = threading.Thread(target=_lock, args=(os.dup(source),), name=f"lock-{name}", daemon=True)
        waiting.start()
        waiting.join(timeout_s)
        return _import(name)
    finally:
        os.close(source)


def _initialize_numba() -> None:
    """Let numba do its setup before the first function is compiled or loaded."""
    from numba import njit

    njit("int64()")(lambda: 0)


def _lock(descriptor: int) -> None:
    """Lock a file until all other descriptors of this opening are closed."""
    try:
        with suppress(OSError):  # a file system without locks: each process compiles
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _import(name: str) -> ModuleType:
    """Import a module; if numba's cache cannot be written, or is damaged, with a temporary empty cache."""
    config: Any = import_module("numba.core.config")
    try:
        return import_module(name)
    except _UNUSABLE as error:  # an error of the module itself is raised again below
        logger.warning("%s is compiled again, since numba's cache cannot be used: %s", name, error)
        before = config.CACHE_DIR
        with TemporaryDirectory(prefix="proteus-numba-") as folder:
            config.CACHE_DIR = folder
            try:
                return import_module(name)
            finally:
                config.CACHE_DIR = before
