"""A trial's process as its supervisor holds it: started, read, commanded, and killed with all that it started."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from proteus_spot.infra.processes.surroundings import python_module
from proteus_spot.infra.trials.messages import MAX_LINE, Command, Message, parse_message
from proteus_spot.infra.trials.process import Start
from proteus_spot.infra.trials.trial_documents import one_line

#: Bytes of the output that are kept for the reason of a failure, and the number of lines shown of them.
_TAIL, _LINES = 4096, 3
#: Maximum real seconds to wait for the output of a process that has ended; its own processes may hold it open.
_OUTPUT_S = 2.0
#: What ends a line of output; progress bars write a carriage return.
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class TrialChild:
    """The process of a trial. It is started, and its messages are taken, on the event loop of its supervisor.

    Parameters
    ----------
    start : what it trains.
    folder : receives its states.
    packages : folder of packages that only it sees; None without.
    threads : number of threads of numeric libraries; 0: their own choice.
    take : called with each message; what is not a message, or an impossible one, is dropped and counted.
    name : of the trial, in front of each line of its output: several trials may write to one terminal.
    """

    def __init__(
        self,
        start: Start,
        folder: Path,
        packages: Path | None,
        threads: int,
        take: Callable[[Message], None],
        name: str,
    ) -> None:
        self._start = start
        self._folder = folder
        self._packages = packages
        self._threads = threads
        self._take = take
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._tail: deque[bytes] = deque(maxlen=8)
        self.garbled = 0

    def start(self) -> None:
        """Start the process. It ends with the thread that calls this."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "start.json").write_text(json.dumps(self._start.to_json()))
        commands, self._commands = os.pipe()
        self._messages, messages = os.pipe()
        os.set_blocking(self._messages, False)
        os.set_blocking(self._commands, False)
        arguments = python_module("proteus_spot.infra.trials.process", str(self._folder))
        try:
            self._process = subprocess.Popen(
                [*arguments, str(commands), str(messages), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self._environment(os.environ),
                pass_fds=(commands, messages),
                process_group=0,
            )
        finally:
            os.close(commands)
            os.close(messages)
        asyncio.get_running_loop().add_reader(self._messages, self._read)
        self._pump = threading.Thread(target=self._copy_output, name="trial-output", daemon=True)
        self._pump.start()

    @property
    def pid(self) -> int:
        """The process id, which is also that of its group."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code, below 0 if a signal ended it; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def command(self, command: Command) -> None:
        """Send a command; a process that has ended misses it, and one that reads none soon has a newer one."""
        try:
            os.write(self._commands, command.to_line())
        except (BrokenPipeError, BlockingIOError):
            return

    def close(self) -> None:
        """Kill the process and its group, and take its last messages."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):  # the whole group has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        asyncio.get_running_loop().remove_reader(self._messages)
        self._read()
        self._pump.join(_OUTPUT_S)
        for descriptor in (self._messages, self._commands):
            os.close(descriptor)

    def death(self) -> str:
        """Return how the process ended without a report, with its last lines of output."""
        assert self._process is not None
        code = self._process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if code == -signal.SIGKILL:
            how += " (often: out of memory)"
        lines = b"".join(self._tail)[-_TAIL:].decode(errors="replace").splitlines()
        output = " | ".join([line.strip() for line in lines if line.strip()][-_LINES:])
        return one_line(f"the process of the trial {how}{f': {output}' if output else ''}")

    def _environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        extra = {"PYTHONUNBUFFERED": "1", **({name: str(self._threads) for name in _THREADS} if self._threads else {})}
        if self._packages is not None:
            extra["PYTHONPATH"] = os.pathsep.join([str(self._packages), *filter(None, [environment.get("PYTHONPATH")])])
        return {**environment, **extra}

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._messages, 65536)
            except BlockingIOError:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(self._messages)
                return
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            if len(self._buffer) > MAX_LINE:
                self._buffer = b""
                self.garbled += 1
            for line in lines:
                message = parse_message(line, self._start.setting.max_trial_steps)
                if message is None:
                    self.garbled += 1
                else:
                    self._take(message)

    def _copy_output(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        begun = b""  # a line that is not complete
        with self._process.stdout as stream:
            while data := os.read(stream.fileno(), 65536):
                self._tail.append(data[-_TAIL:])
                *lines, begun = _LINE_END.split(begun + data)
                self._show(lines)
                if len(begun) > _TAIL:
                    self._show([begun])
                    begun = b""
        if begun:
            self._show([begun])

    def _show(self, lines: Sequence[bytes]) -> None:
        text = "".join(f"{self._name}: {line.decode(errors='replace')}\n" for line in lines if line.strip())
        sys.stderr.write(text)  # standard output may be for a result
        sys.stderr.flush()
