"""A process that has everything imported that a node needs, and forks nodes: sixty-four in seconds, not in minutes.

A node that it makes is `infra.node` in a process of its own, in a network namespace. Nodes end with the nursery, and the
nursery ends with whoever started it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

#: Has a process that waits become a node.
JOIN = signal.SIGUSR1
_PR_SET_PDEATHSIG = 1
_NEW_NETWORK = 0x40000000
#: What nodes and controllers import when they start.
_MODULES = (
    "distributed",
    "infra.node",
    "infra.checkpoints",
    "infra.code",
    "infra.datasets",
    "infra.memory",
    "infra.models",
    "infra.node_logs",
    "psengine.plugins",
    "psengine.shell",
    "benchmarks.waiting",
)
#: What sixty-four processes on two cores want otherwise than as many machines: to do less when idle, and more patience
#: where each of them connects to all the others at once.
_HERE = {
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.comm.timeouts.connect": "60s",
}


def nursery(pipe: Connection) -> None:
    """Answer ("fork", …) with the process id of a node, and ("ended", pids) with those of them that have.

    What follows "fork" is what `_fork` takes.
    """
    os.environ.update({name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")})
    for name in _MODULES:
        importlib.import_module(name)
    from infra.node import DASK_CONFIG

    DASK_CONFIG.update(_HERE)
    gc.collect()
    gc.freeze()  # so that a collection in a node does not copy the pages that all have in common
    pipe.send("ready")
    while True:
        try:
            what, *more = pipe.recv()
        except EOFError:
            return
        if what == "fork":
            pipe.send(_fork(pipe, *more))
        else:
            pipe.send([pid for pid in more[0] if _ended(pid)])


def _fork(
    pipe: Connection, namespace: str, arguments: list[str], log: str, environment: Mapping[str, str], waits: bool
) -> int:
    """Fork a node; `waits`: it is one only when it gets the signal `JOIN`."""
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {JOIN})  # also one that comes before the node waits for it
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        pipe.close()
        _become(parent, namespace, log, environment)
        if waits:
            signal.sigwait({JOIN})
        from infra.node import main

        code = main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        raise
    finally:  # whatever was raised, nobody goes on as a second nursery
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _become(parent: int, namespace: str, log: str, environment: Mapping[str, str]) -> None:
    """Be a process of one's own: in a group, on a leash, in the namespace, with a log."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    empty = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((empty, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    network = os.open(namespace, os.O_RDONLY)
    if libc.setns(network, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), f"setns {namespace}")
    os.close(network)
    os.environ.update(environment)


def _ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def arguments(job: str, blob: str, name: str, tier: str, host: str, *more: Any) -> list[str]:
    """Return the options of `infra.node`."""
    told = ["--job", job, "--blob", blob, "--name", name, "--tier", tier, "--host", host]
    return [*told, *map(str, more)] if more else [*told, "--no-notices"]
