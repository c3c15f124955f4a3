"""Large work of an event loop, done on a thread: the loop answers heartbeats and other requests meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

#: Bytes read and written from which on work is large. The way to a thread and back takes 0.05 to 0.1 ms, as the sum of
#: 2 MB does.
LARGE_BYTES = 1 << 22


class LargeWork:
    """Does work on a thread if it is large, else at once.

    Parameters
    ----------
    run : callable
        Does the work that it is given off the event loop.
    large_bytes : int
        Bytes read and written from which on work is large.
    """

    def __init__(
        self, run: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread, large_bytes: int = LARGE_BYTES
    ) -> None:
        self._run, self._large_bytes = run, large_bytes

    async def do(self, n_bytes: int, work: Callable[[], T]) -> T:
        """Return the result of `work`, which reads and writes about `n_bytes`.

        It is never left half done: if the caller is cancelled, this ends when the thread has.
        """
        if n_bytes < self._large_bytes:
            return work()
        running: asyncio.Future[T] = asyncio.ensure_future(self._run(work))
        try:
            return await asyncio.shield(running)
        finally:
            while not running.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
