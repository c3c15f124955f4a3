"""One end of a pipe between two processes: arrays travel in memory that both have, all else in the pipe."""

from __future__ import annotations

import mmap
import os
import pickle
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

#: Arrays begin at multiples of this number of bytes.
_ALIGNED = 64


class Channel:
    """Sends and receives values; the arrays of each are in memory of their own, which goes with the last of them.

    The memory has no name, so nothing of it stays when both processes have ended.
    """

    def __init__(self, end: Connection) -> None:
        self._end = end

    def send(self, value: Any) -> None:
        """Send a value; `OSError` if the other process has ended."""
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        raws = [buffer.raw() for buffer in buffers]
        places, size = [], 0
        for raw in raws:
            places.append((size, raw.nbytes))
            size += -(-raw.nbytes // _ALIGNED) * _ALIGNED
        self._end.send_bytes(pickle.dumps((head, places, size)))
        if not size:
            return
        block = os.memfd_create("proteus-net")
        try:
            os.ftruncate(block, size)
            for (at, _), raw in zip(places, raws, strict=True):
                _write(block, raw, at)
            reduction.send_handle(self._end, block, 0)
        finally:
            os.close(block)

    def receive(self) -> Any:
        """Wait for a value and return it; `EOFError` or `OSError` if the other process has ended."""
        head, places, size = pickle.loads(self._end.recv_bytes())
        memory = memoryview(b"")
        if size:
            block = reduction.recv_handle(self._end)
            memory = memoryview(mmap.mmap(block, size, mmap.MAP_SHARED | mmap.MAP_POPULATE))
            os.close(block)
        return pickle.loads(head, buffers=[memory[at : at + count] for at, count in places])

    def close(self) -> None:
        """Close this end."""
        self._end.close()


def _write(block: int, raw: memoryview, at: int) -> None:
    """Write all of an array: a mapping of the sender would be as much memory again, and a fault a page."""
    while raw.nbytes:
        done = os.pwrite(block, raw, at)
        raw, at = raw[done:], at + done
