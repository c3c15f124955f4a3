"""Killing or stopping a process of a job at a given moment of a call, its own or between two others.

A test writes the moment into a file; the process that reaches it first removes the file, so that it happens once, and
sends the signal.
"""

from __future__ import annotations

import functools
import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

#: A call is to be made; its handler has done what it was asked for, and has not answered; the answer is here.
Moment = Literal["asked", "done", "answered"]


@dataclass(frozen=True)
class KillPoint:
    """What happens at a moment of a call: the process `victim` is killed; with 0, the one that is at that moment.

    `stops`: it is stopped instead.
    """

    moment: Moment
    op: str
    victim: int = 0
    stops: bool = False

    def write(self, file: Path) -> None:
        """Let it happen from now on."""
        written = file.with_suffix(".new")
        written.write_text(json.dumps(asdict(self)))
        written.replace(file)


class KillPoints:
    """Looks at each moment of a process whether the file is about it."""

    def __init__(self, file: Path, name: str) -> None:
        self._file, self._taken = file, file.with_suffix(f".{name}")

    def at(self, moment: str, op: str) -> None:
        if not self._file.exists():
            return
        doom = KillPoint(**json.loads(self._file.read_text()))
        if (doom.moment, doom.op) != (moment, op):
            return
        try:
            self._file.rename(self._taken)
        except FileNotFoundError:  # another process was at such a moment too, and first
            return
        os.killpg(doom.victim or os.getpid(), signal.SIGSTOP if doom.stops else signal.SIGKILL)


def watch(dooms: KillPoints) -> None:
    """Have every call of this process, and everyone that it answers, pass these moments."""
    from distributed import Worker

    from proteus_spot.psengine.shell.dask_plugins import AgentPlugin
    from proteus_spot.psengine.shell.dask_transport import DaskTransport

    call, setup = DaskTransport.call, AgentPlugin.setup

    async def watched_call(self: Any, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        dooms.at("asked", op)
        answer = await call(self, address, op, deadline_s, **message)
        dooms.at("answered", op)
        return answer

    def watched_setup(self: Any, worker: Worker) -> None:
        setup(self, worker)
        for op in [op for op in worker.handlers if op.startswith("proteus_")]:
            worker.handlers[op] = answering(op, worker.handlers[op])

    def answering(op: str, handler: Any) -> Any:
        @functools.wraps(handler)  # Dask looks at a handler's parameters
        async def watched(*args: Any, **message: Any) -> Any:
            answer = await handler(*args, **message)
            dooms.at("done", op)
            return answer

        return watched

    DaskTransport.call, AgentPlugin.setup = watched_call, watched_setup  # type: ignore[method-assign]
