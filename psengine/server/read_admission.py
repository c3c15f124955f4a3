"""Whose turn it is to be answered, where many read from one server at the same time.

Sixteen readers that are answered at once have what they want all at the same moment, the last; then all of them compute
while the server's link is idle, and all push at once. Answered a few at a time, in the same order by every server, the
first ones compute while the others read, and the next clock finds them apart already.

Source: none; Proteus (EuroSys 2017), 3.2 tells of the congestion only, and stages are its answer.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from itertools import count

#: Turns at one time, at least: while one answer waits for its reader, another one fills the link.
LEAST = 2
#: Seconds that are waited for a reader where nothing is known yet, and at most; in times of the longest that was waited.
_FIRST_S, _MOST_S, _TIMES = 1.0, 8.0, 4.0
#: What is made of the longest by each that took less, and by one that was waited for in vain.
_FADES, _GROWS = 0.95, 1.5
#: The last so many turns say who reads.
_LATELY = 64


def max_concurrent_readers(servers: int) -> int:
    """Return how many readers a server answers at one time.

    A reader's link carries what all servers send him. If all of them answered the same one reader, each would use a
    part of its link only; half as many readers as servers fill them, as they do not keep in step.
    """
    return max(LEAST, (servers + 1) // 2)


class ReadAdmission:
    """Turns that are taken and waited for; `most` may be taken at one time."""

    def __init__(self) -> None:
        self.most = LEAST
        self._taken = 0
        self._arrivals = count()
        #: (order, arrival, granted)
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._longest_s = _FIRST_S / _TIMES
        self._readers: deque[str] = deque(maxlen=_LATELY)

    @property
    def scarce(self) -> bool:
        """Whether more have been reading lately than there are turns.

        Whether somebody waits right now says less: turns that end before the answers have gone out let all be answered at
        once, and nobody waits.
        """
        return len(set(self._readers)) > self.most

    @property
    def patience_s(self) -> float:
        """How long is waited for a reader: one that is cut off must not keep the others waiting."""
        return min(_MOST_S, _TIMES * self._longest_s)

    @asynccontextmanager
    async def turn(self, order: int, reader: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for as long as the block lasts; the `reader` with the lowest `order` comes first."""
        self._readers.append(reader)
        await self._wait(order)
        try:
            yield
        finally:
            self._taken -= 1
            self._grant()

    async def until(self, taken: Awaitable[object]) -> None:
        """Return when a reader has `taken` what he was sent, or has kept us waiting for too long."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            await asyncio.wait_for(taken, self.patience_s)
        except TimeoutError:
            self._longest_s *= _GROWS
        else:
            self._longest_s = max(_FADES * self._longest_s, loop.time() - began_s, _FIRST_S / _TIMES)

    async def _wait(self, order: int) -> None:
        granted = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (order, next(self._arrivals), granted))
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
