"""Writing of the descriptions in a job's event log, page by page, beside the training.

At intervals a thread stores the pages that have changed. A store that is away delays them, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proteus_spot.psengine.telemetry.descriptions import PAGE
from proteus_spot.psengine.telemetry.event_log import Described, EventLog

logger = logging.getLogger(__name__)

#: Seconds between two writes: the log of a controller that is killed lacks at most as much.
EVERY_S = 2.0

#: (number of the page, its entries): writes a page, in place of what it was before; blocks
KeepPage = Callable[[int, Sequence[Mapping[str, Any]]], None]


class EventLogWriter:
    """Writes one log.

    Parameters
    ----------
    keep : callable
        Stores a page.
    """

    def __init__(self, keep: KeepPage, log: EventLog) -> None:
        self._keep, self._log = keep, log
        self._page = 0
        #: Numbers of the last events on full pages that are stored, and on any page.
        self._full = self._stored = 0
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Write pages at intervals, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.write()

    async def write(self) -> None:
        """Write what is not stored yet."""
        async with self._writing:  # a page is never overtaken by what it was before
            entries = self._log.since(self._full, Described)
            while entries and entries[-1][0] > self._stored:
                page, entries = entries[:PAGE], entries[PAGE:]
                try:
                    await asyncio.to_thread(self._keep, self._page, [event.record() for _, event in page])
                except Exception as error:  # noqa: BLE001 - each store has errors of its own
                    logger.warning("a page of the event log was not stored: %s", error)
                    return
                self._stored = page[-1][0]
                if len(page) == PAGE:
                    self._page, self._full = self._page + 1, self._stored
