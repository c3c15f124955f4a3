"""Child processes that end with this process, each in its own process group.

A child's group is ended as a whole; if this process is killed, the kernel ends the child (`parent_death_signal`).
"""

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from proteus_spot.infra.errors import ProteusError

_GRACE_S = 5.0
#: With less than this free, what a process could not write is why it ended.
_FULL_BYTES = 64 * 1024
#: The last line of a traceback, as in ``OSError: [Errno 5] no luck`` or ``sqlalchemy.exc.OperationalError: …``.
_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)\b: .+$", re.MULTILINE)
_CAUSE_CHARACTERS = 300
_LAUNCHER = str(Path(__file__).with_name("parent_death_signal.py"))


def with_parent_death_signal(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` with SIGTERM as its signal when this process ends."""
    return [sys.executable, "-S", _LAUNCHER, str(os.getpid()), *command]


class Child:
    """A child process that ends with this process.

    Start it from a thread that lives as long as the child should: Linux signals a child when the *thread* that started
    it ends.

    Parameters
    ----------
    args : the command.
    log : path of the file that receives its standard output and error.
    env : the complete environment; None inherits that of this process.
    cwd : the working directory; None inherits that of this process.
    """

    def __init__(
        self, args: Sequence[str], log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.args = list(args)
        self.log = log
        self._cwd = cwd
        self._env = dict(env) if env is not None else None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start the process."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                with_parent_death_signal(self.args),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
            )
        return self

    @property
    def pid(self) -> int:
        """The process id, which is also the id of the process group."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process is None or self._process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, below 0 if a signal ended it; None while it runs."""
        return None if self._process is None else self._process.poll()

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code, below 0 if a signal ended it."""
        assert self._process is not None, "not started"
        return self._process.wait()

    def check(self) -> None:
        """Raise `ProteusError` with the end of the log if the process has exited."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise ProteusError(
                f"{Path(self.args[0]).name} {' '.join(self.args[1:4])} ended with {code}: {self.cause()}"
            )

    def tail(self, size: int = 400) -> str:
        """Return the end of the log on one line."""
        try:
            return " | ".join(self.log.read_text(errors="replace")[-size:].split("\n")).strip(" |")
        except OSError:
            return f"(no log at {self.log})"

    def cause(self) -> str:
        """Return why the process failed, as its log or the disk says: its last error, else the end of the log."""
        try:
            total_bytes, _, free_bytes = shutil.disk_usage(self.log.parent)
            if total_bytes and free_bytes < _FULL_BYTES:
                return f"{os.strerror(errno.ENOSPC)}: {self.log.parent}; free some"
            errors = _ERROR.findall(self.log.read_text(errors="replace"))
        except OSError:
            errors = []
        return f"{errors[-1][:_CAUSE_CHARACTERS]} ({self.log})" if errors else self.tail()

    def freeze(self) -> None:
        """Suspend the process (SIGSTOP). It cannot end then: `kill` it soon."""
        self._signal(signal.SIGSTOP)

    def terminate(self) -> None:
        """Send SIGTERM to the process group without waiting for its end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process and its group (SIGKILL)."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self, grace_s: float = _GRACE_S) -> None:
        """End the process and all its descendants: SIGTERM, after `grace_s` SIGKILL."""
        if self._process is None:
            return
        try:
            descendants = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            descendants = []
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):  # the rest of the group is killed below
            self._process.wait(grace_s)
        self._signal(signal.SIGKILL)
        for process in descendants:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.wait()
        psutil.wait_procs(descendants, timeout=grace_s)
        self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return  # the whole group has ended

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def stop_together(children: Collection[Child], grace_s: float = _GRACE_S) -> None:
    """Stop children concurrently, each as `Child.stop` does."""
    with ThreadPoolExecutor(max(1, len(children)), thread_name_prefix="stop") as pool:
        for _ in pool.map(lambda child: child.stop(grace_s), children):
            continue
