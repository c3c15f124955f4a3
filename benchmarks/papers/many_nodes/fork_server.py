"""A process with all modules of a node imported, which forks nodes: sixty-four in seconds, not in minutes.

A forked node is a separate process, as one of `python -m proteus_spot.infra.nodes.main` is. Nodes end with the fork
server, and the fork server ends with the process that started it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from proteus_spot.infra.parent_death_signal import set_parent_death_signal

logger = logging.getLogger(__name__)

#: Lets a waiting process become a node.
JOIN = signal.SIGUSR1
_NEW_NETWORK = 0x40000000
#: What nodes and controllers import when they start.
_MODULES = (
    "distributed",
    "proteus_spot.infra.nodes.main",
    "proteus_spot.infra.storage.checkpoints",
    "proteus_spot.infra.applications.code_shipping",
    "proteus_spot.infra.datasets.prepare",
    "proteus_spot.infra.nodes.malloc",
    "proteus_spot.infra.applications.trained_models",
    "proteus_spot.infra.storage.node_logs",
    "proteus_spot.psengine.shell.dask_plugins",
    "proteus_spot.psengine.shell.controller_shell",
)


def run_node(arguments: list[str]) -> int:
    """Run `infra.nodes.main`."""
    from proteus_spot.infra.nodes.main import main

    return main(arguments)


@dataclass(frozen=True)
class ForkRequest:
    """A process to fork: it runs `main(arguments)`, whose value is its exit code.

    Parameters
    ----------
    main : a function of a module.
    log : path of its standard output and error.
    environment : all environment variables.
    place : its working directory; None: that of the fork server.
    namespace : path of its network namespace; None: that of the fork server.
    waits : whether it begins only on the signal `JOIN`.
    on_leash : the signal that it gets when the fork server ends.
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
    """Answer ("fork", `ForkRequest`) with a process id, and ("ended", pids) with {pid: exit code} of those that ended.

    In a forked process it ends with that process's `SystemExit`.

    Parameters
    ----------
    modules : modules to import in addition to those of every node.
    dask : Dask settings that differ from those of a node.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client closes the pipe
    from proteus_spot.infra.nodes.main import DASK_CONFIG, set_up

    DASK_CONFIG.update(dask or {})
    set_up()
    for name in (*_MODULES, *modules):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that a collection in a node does not copy the shared pages
    codes: dict[int, int] = {}
    try:
        pipe.send("ready")
        while True:
            command, argument = pipe.recv()
            if command == "fork":
                pid = _fork(pipe, argument)
                codes.pop(pid, None)  # of an earlier process with this id
                pipe.send(pid)
            else:
                pipe.send(_ended(argument, codes))
    except (EOFError, OSError):  # the client has ended
        return


def _fork(pipe: Connection, request: ForkRequest) -> int:
    """Fork a process, and return its id once it has its process group, which can be signalled."""
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {JOIN})  # a signal may arrive before the node waits for it
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
        _set_up_process(parent, request)
        if request.waits:
            signal.sigwait({JOIN})
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {JOIN})
        code = request.main(list(request.arguments))
    except SystemExit as end:
        code = end.code
    except Exception:
        logger.exception("internal error")
    sys.exit(code)  # ends like any process, after its threads, and never continues as a second fork server


def _set_up_process(parent: int, request: ForkRequest) -> None:
    """Set up the forked process: parent-death signal, log, environment, working directory, network namespace."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    set_parent_death_signal(parent, request.on_leash)
    out = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    empty = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((empty, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    os.close(empty)
    os.close(out)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.argv[1:] = request.arguments
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined] # a node may start others
    tempfile.tempdir = None  # it was looked up in another environment
    if request.place is not None:
        os.chdir(request.place)
    if request.namespace is not None:
        network = os.open(request.namespace, os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(network, _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"setns {request.namespace}")
        os.close(network)


def _ended(pids: Sequence[int], codes: dict[int, int]) -> dict[int, int]:
    """Return the exit codes of ended processes; `codes` stores them, since the system reports each only once."""
    for pid in pids:
        if pid not in codes:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
    return {pid: codes[pid] for pid in pids if pid in codes}


def arguments(job: str, blob: str, name: str, tier: str, host: str, *more: Any) -> list[str]:
    """Return the options of `infra.nodes.main`."""
    options = ["--job", job, "--blob", blob, "--name", name, "--tier", tier, "--host", host]
    return [*options, *map(str, more)] if more else [*options, "--no-notices"]
