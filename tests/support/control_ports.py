"""A controller's port for the control plane, served by a thread of this process."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from proteus_spot.psengine.shell.control_port import ControlPort, Handler
from tests.support.timeouts import PATIENCE


@contextmanager
def served_control(handlers: Mapping[str, Handler]) -> Iterator[str]:
    """Yield the address of a port that serves `handlers`."""
    addresses: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        control = ControlPort(handlers)
        addresses.append(f"tcp://127.0.0.1:{await control.open('127.0.0.1')}")
        ready.set()
        while not done.is_set():
            await asyncio.sleep(0.01)
        control.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(20 * PATIENCE)
        yield addresses[0]
    finally:
        done.set()
        thread.join(20 * PATIENCE)
