"""Nodes forked from a process with all modules imported, which otherwise takes each a second of processor time.

Each has its own pid and process group, log and environment, and can be killed and waited for.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proteus_spot.benchmarks.data_plane.nodes import Process
from proteus_spot.benchmarks.papers.many_nodes.fork_server import ForkRequest, serve_forks
from tests.support.timeouts import PATIENCE

#: Where processes can be forked, tied to ours and waited for by anybody.
CAN_FORK = sys.platform == "linux" and hasattr(os, "pidfd_open")


@functools.cache
def _nursery() -> Process:
    """Return this process's nursery, which ends with it."""
    began = Process(serve_forks, ("tests.support.faulty_node",))
    began.ask()
    return began


def _ask(what: str, told: Any) -> Any:
    try:
        return _nursery().ask(what, told)
    except BaseException:
        _nursery.cache_clear()  # its next answer would be to this question: it ends, and its nodes with it
        raise


def nursery_pid() -> int | None:
    """Return its process id, or None if there is none."""
    return _nursery().pid if _nursery.cache_info().currsize else None


class Forked:
    """What `subprocess.Popen` is of a process that was started anew, as far as tests look at it.

    Parameters
    ----------
    main : a function of a module, whose value is the exit code.
    environment : the whole of it.
    place : the working directory.
    on_leash : what it gets when we are gone.
    """

    def __init__(
        self,
        main: Callable[[list[str]], int],
        arguments: list[str],
        log: Path,
        environment: Mapping[str, str],
        place: Path,
        on_leash: signal.Signals,
    ) -> None:
        birth = ForkRequest(main, arguments, str(log), dict(environment), str(place), on_leash=on_leash)
        self.pid: int = _ask("fork", birth)
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self._code is None:
            self._code = _ask("ended", [self.pid]).get(self.pid)
        return self._code

    def wait(self, timeout: float = 60.0 * PATIENCE) -> int:
        """Wait for its end; return the exit code."""
        if self.poll() is None:
            end = os.pidfd_open(self.pid)
            try:
                select.select([end], [], [], timeout)
            finally:
                os.close(end)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return code

    def terminate(self) -> None:
        """SIGTERM."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)
