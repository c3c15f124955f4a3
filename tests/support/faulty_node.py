"""`python -m tests.support.faulty_node FOLDER …`: the process of a machine, with the faults in FOLDER.

A line of FOLDER/cuts is a process's name and the address of a peer. As with a cut link, no call from the process to the
peer, and no answer to it, gets through, and neither is notified; messages under way arrive once the line is removed.
FOLDER/doom names the call, and its moment, at which a process is killed or stopped (`kill_at_moment`).
FOLDER/raises names a place of the program (`PLACES`) at which an exception is raised from the twelfth time on.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

from proteus_spot.infra import parent_death_signal as leash
from proteus_spot.infra.nodes import main as node
from tests.support.kill_at_moment import KillPoints, watch

_LOOK_S = 0.02


class Cuts:
    """The peers that this process is cut off from, as the file has it now."""

    def __init__(self, file: Path, name: str) -> None:
        self._file, self._name = file, name
        self._as_of = -1
        self._peers: set[str] = set()

    def now(self) -> set[str]:
        changed = self._file.stat().st_mtime_ns if self._file.exists() else 0
        if changed != self._as_of:
            lines = [line.split() for line in self._file.read_text().splitlines()] if changed else []
            self._peers, self._as_of = {peer for name, peer in lines if name == self._name}, changed
        return self._peers

    async def held(self, peer: str) -> None:
        while peer in self.now():
            await asyncio.sleep(_LOOK_S)


def hold(cuts: Cuts) -> None:
    """Have every connection of this process wait while it is cut."""
    from distributed.comm import tcp

    read, write, connect = tcp.TCP.read, tcp.TCP.write, tcp.TCPConnector.connect

    async def held_read(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await read(self, *args, **kwargs)
        finally:
            await cuts.held(self.peer_address)

    async def held_write(self: Any, *args: Any, **kwargs: Any) -> Any:
        await cuts.held(self.peer_address)
        return await write(self, *args, **kwargs)

    async def held_connect(self: Any, address: str, *args: Any, **kwargs: Any) -> Any:
        await cuts.held(f"tcp://{address}")
        return await connect(self, address, *args, **kwargs)

    tcp.TCP.read, tcp.TCP.write, tcp.TCPConnector.connect = held_read, held_write, held_connect


#: {name: module, class and method that raises}
PLACES = {
    "handle": ("proteus_spot.psengine.controller.job_events", "JobEvents", "_on_batch_done"),
    "driver": ("proteus_spot.psengine.drivers.ssp", "Ssp", "committed"),
    "run": ("proteus_spot.psengine.apps.mlr", "MultinomialLogisticRegression", "run"),
    "server": ("proteus_spot.psengine.server.shard_server", "ShardServer", "push"),
}


def plant(file: Path) -> None:
    """Have the place that a file names, if there is one, raise from its twelfth time on."""
    if not file.exists():
        return
    module, owner, method = PLACES[file.read_text()]
    found = getattr(importlib.import_module(module), owner)
    intact, times = getattr(found, method), itertools.count(1)

    @functools.wraps(intact)
    def faulty(*args: Any, **kwargs: Any) -> Any:
        if next(times) >= 12:
            raise KeyError("planted")
        return intact(*args, **kwargs)

    setattr(found, method, faulty)


def main(arguments: list[str]) -> int:
    """Be a node, or a controller, that has the troubles told in the folder that `arguments` begin with."""
    node.set_up()  # before anything is imported, here as there: other threads would give other bits
    troubles, options = Path(arguments[0]), arguments[1:]
    name = "controller" if "--controller" in options else options[options.index("--name") + 1]
    hold(Cuts(troubles / "cuts", name))
    watch(KillPoints(troubles / "doom", name))
    plant(troubles / "raises")
    return node.main(options)


if __name__ == "__main__":
    leash.set_parent_death_signal(
        os.getppid(), signal.SIGKILL
    )  # who is cut off or frozen would not heed the SIGTERM of our own leash
    sys.exit(main(sys.argv[1:]))
