"""Reads that wait in a server for updates which have not arrived."""

from __future__ import annotations

import asyncio


class ReadWaits:
    """Waiting reads of one server, in order of arrival; each checks again when it is woken."""

    def __init__(self) -> None:
        #: {a read: whether it waits for single updates, not for a whole group}.
        self._waiting: dict[asyncio.Future[None], bool] = {}

    async def woken(self, until_s: float, single_updates: bool = False) -> bool:
        """Wait for a change; return False if the time, that of the event loop, is over."""
        loop = asyncio.get_running_loop()
        left_s = until_s - loop.time()
        if left_s <= 0:
            return False
        read: asyncio.Future[None] = loop.create_future()
        self._waiting[read] = single_updates
        try:
            await asyncio.wait([read], timeout=left_s)
        finally:
            del self._waiting[read]
        return True

    def wake(self, whole_group: bool = True) -> None:
        """Let reads check again: all, or, if no group has become complete, those that wait for single updates."""
        for read, single_updates in self._waiting.items():
            if not read.done() and (whole_group or single_updates):
                read.set_result(None)

    def __len__(self) -> int:
        """Return the number of reads that wait."""
        return len(self._waiting)
