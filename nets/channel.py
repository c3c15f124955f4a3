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
    """Sends and receives values; the arrays of a received value hold until the other end sends the next one.

    The memory has no name, so nothing of it stays when both processes have ended.
    """

    def __init__(self, end: Connection) -> None:
        self._end = end
        self._sent = self._received = memoryview(bytearray())

    def send(self, value: Any) -> None:
        """Send a value; `OSError` if the other process has ended."""
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        raws = [buffer.raw() for buffer in buffers]
        places, size = [], 0
        for raw in raws:
            places.append((size, raw.nbytes))
            size += -(-raw.nbytes // _ALIGNED) * _ALIGNED
        grows = size > len(self._sent)
        if grows:
            block = os.memfd_create("proteus-net")
            os.ftruncate(block, size)
            self._sent = memoryview(mmap.mmap(block, size))
        for (at, count), raw in zip(places, raws, strict=True):
            self._sent[at : at + count] = raw
        self._end.send_bytes(pickle.dumps((head, places, size if grows else 0)))
        if grows:
            reduction.send_handle(self._end, block, 0)
            os.close(block)

    def receive(self) -> Any:
        """Wait for a value and return it; `EOFError` or `OSError` if the other process has ended."""
        head, places, size = pickle.loads(self._end.recv_bytes())
        if size:
            block = reduction.recv_handle(self._end)
            self._received = memoryview(mmap.mmap(block, size))
            os.close(block)
        return pickle.loads(head, buffers=[self._received[at : at + count] for at, count in places])

    def close(self) -> None:
        """Close this end."""
        self._end.close()
