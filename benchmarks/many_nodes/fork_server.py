"""A process that has everything imported that a node needs, and forks nodes: sixty-four in seconds, not in minutes.

A node that it makes is a process of its own, as one of `python -m infra.nodes.main` is. Nodes end with the nursery, and the
nursery ends with whoever started it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from infra.local.parent_death_signal import set_parent_death_signal

logger = logging.getLogger(__name__)

#: Has a process that waits become a node.
JOIN = signal.SIGUSR1
_NEW_NETWORK = 0x40000000
#: What nodes and controllers import when they start.
_MODULES = (
    "distributed",
    "infra.nodes.main",
    "infra.storage.checkpoints",
    "infra.applications.code_shipping",
    "infra.datasets.prepare",
    "infra.nodes.malloc",
    "infra.applications.trained_models",
    "infra.storage.node_logs",
    "psengine.shell.dask_plugins",
    "psengine.shell.controller_shell",
)


def run_node(arguments: list[str]) -> int:
    """Be `infra.nodes.main`."""
    from infra.nodes.main import main

    return main(arguments)


@dataclass(frozen=True)
class ForkRequest:
    """A process to be: `main` of `arguments`, whose value is its exit code.

    Parameters
    ----------
    main : a function of a module.
    log : path that takes its standard output and error.
    environment : the whole of it.
    place : its working directory; None is ours.
    namespace : path of the network namespace that it is in; None is ours.
    waits : it begins only when it gets the signal `JOIN`.
    on_leash : the signal that it gets when the nursery is gone.
    """

    main: Callable[[list[str]], int]
    arguments: Sequence[str]
    log: str
    environment: Mapping[str, str]
    place: str | None = None
    namespace: str | None = None
    waits: bool = False
    on_leash: signal.Signals = signal.SIGKILL


def serve_forks(pipe: Connection, modules: Iterable[str] = (), dask: Mapping[str, Any] | None = None) -> None:
    """Answer ("fork", `ForkRequest`) with a process id, and ("ended", pids) with the exit codes of those that have, by pid.

    In a process that it forks it ends with that one's `SystemExit`.

    Parameters
    ----------
    modules : what to import besides what every node does.
    dask : what of Dask's settings is to be other than on a node.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever it is for closes the pipe
    from infra.nodes.main import DASK_CONFIG, set_up

    DASK_CONFIG.update(dask or {})
    set_up()
    for name in (*_MODULES, *modules):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that a collection in a node does not copy the pages that all have in common
    codes: dict[int, int] = {}
    try:
        pipe.send("ready")
        while True:
            what, told = pipe.recv()
            if what == "fork":
                pid = _fork(pipe, told)
                codes.pop(pid, None)  # of an earlier process with this id
                pipe.send(pid)
            else:
                pipe.send(_ended(told, codes))
    except (EOFError, OSError):  # whoever it is for has gone
        return


def _fork(pipe: Connection, birth: ForkRequest) -> int:
    """Fork a process, and return its id as soon as it has a group of its own, which can be signalled."""
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {JOIN})  # also one that comes before the node waits for it
    grouped, group = os.pipe()
    pid = os.fork()
    if pid:
        os.close(group)
        os.read(grouped, 1)
        os.close(grouped)
        return pid
    code: Any = 1
    try:
        pipe.close()
        os.close(grouped)
        os.setsid()
        os.close(group)
        _become(parent, birth)
        if birth.waits:
            signal.sigwait({JOIN})
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {JOIN})
        code = birth.main(list(birth.arguments))
    except SystemExit as end:
        code = end.code
    except Exception:
        logger.exception("a fault in the program")
    sys.exit(code)  # as any process ends, after its threads; nobody goes on as a second nursery


def _become(parent: int, birth: ForkRequest) -> None:
    """Have what a process of one's own has: a leash, a log, an environment, a place."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    set_parent_death_signal(parent, birth.on_leash)
    out = os.open(birth.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    empty = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((empty, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    os.close(empty)
    os.close(out)
    os.environ.clear()
    os.environ.update(birth.environment)
    sys.argv[1:] = birth.arguments
    tempfile.tempdir = None  # what it is was looked up for another environment
    if birth.place is not None:
        os.chdir(birth.place)
    if birth.namespace is not None:
        network = os.open(birth.namespace, os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(network, _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"setns {birth.namespace}")
        os.close(network)


def _ended(pids: Sequence[int], codes: dict[int, int]) -> dict[int, int]:
    """Return the exit codes of those that have ended; `codes` keeps them, for the system tells each once."""
    for pid in pids:
        if pid not in codes:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
    return {pid: codes[pid] for pid in pids if pid in codes}


def arguments(job: str, blob: str, name: str, tier: str, host: str, *more: Any) -> list[str]:
    """Return the options of `infra.nodes.main`."""
    told = ["--job", job, "--blob", blob, "--name", name, "--tier", tier, "--host", host]
    return [*told, *map(str, more)] if more else [*told, "--no-notices"]
