"""Admission control of reads: how many readers a server answers at a time, and in which order.

Sixteen readers answered concurrently all finish at the same time, the latest possible one; then all of them compute
while the server's link is idle, and all push together. If every server answers a few at a time, in the same order, the
first readers compute while the others read, and they stay apart in the next group.

Source: none; Proteus (EuroSys 2017), 3.2 describes the congestion only, and answers it with stages.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from itertools import count

#: Minimum number of concurrent readers: while one answer waits for its reader, another one fills the link.
LEAST = 2
#: Timeout for a reader: seconds at first, maximum seconds, and the factor on the longest time a reader has taken.
_FIRST_S, _MOST_S, _TIMES = 1.0, 8.0, 4.0
#: Factors on the longest time: for each reader that took less, and for one that timed out.
_FADES, _GROWS = 0.95, 1.5
#: Number of recent turns from which the present readers are counted.
_LATELY = 64


def max_concurrent_readers(servers: int) -> int:
    """Return the number of readers that a server answers concurrently.

    A reader's link carries the answers of all servers. If all of them answered the same one reader, each would use only
    part of its link; half as many readers as servers fill the links, since servers are not in step.
    """
    return max(LEAST, (servers + 1) // 2)


class ReadAdmission:
    """Turns of readers, taken and waited for; at most `most` are taken at a time."""

    def __init__(self) -> None:
        self.most = LEAST
        self._taken = 0
        self._arrivals = count()
        #: (priority, arrival, granted); the lowest comes first.
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._longest_s = _FIRST_S / _TIMES
        self._readers: deque[str] = deque(maxlen=_LATELY)

    @property
    def scarce(self) -> bool:
        """Whether there were recently more readers than turns.

        The present queue is not a measure: turns that end before the answers are sent admit all readers at once, and
        none waits.
        """
        return len(set(self._readers)) > self.most

    @property
    def timeout_s(self) -> float:
        """Maximum seconds to wait for a reader: one that is cut off must not block the others."""
        return min(_MOST_S, _TIMES * self._longest_s)

    @asynccontextmanager
    async def turn(self, priority: int, reader: str) -> AsyncIterator[None]:
        """Wait for a turn and hold it during the block; the `reader` with the lowest `priority` comes first."""
        self._readers.append(reader)
        await self._wait(priority)
        try:
            yield
        finally:
            self._taken -= 1
            self._grant()

    async def until(self, taken: Awaitable[object]) -> None:
        """Return when a reader has `taken` its answer, or its timeout is over."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            await asyncio.wait_for(taken, self.timeout_s)
        except TimeoutError:
            self._longest_s *= _GROWS
        else:
            self._longest_s = max(_FADES * self._longest_s, loop.time() - began_s, _FIRST_S / _TIMES)

    async def _wait(self, priority: int) -> None:
        granted = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._arrivals), granted))
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._taken -= 1
                self._grant()
            raise

    def _grant(self) -> None:
        while self._waiting and self._taken < self.most:
            *_, granted = heapq.heappop(self._waiting)
            if not granted.done():
                self._taken += 1
                granted.set_result(None)
