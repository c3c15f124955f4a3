"""Writing the story of a job down, page by page, off the way of what it tells of.

Entries are collected in memory; now and then the page under way is handed to whoever keeps it, on a thread. A store
that is away costs the story, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from psengine.protocol.events import Event, NodeJoined
from psengine.protocol.instructions import Instruction
from psengine.telemetry.event_log import Entry, Teller

logger = logging.getLogger(__name__)

#: Seconds between two writes: what a controller that is killed leaves untold at most.
EVERY_S = 2.0
#: Entries after which a page is full.
PAGE = 1000
#: Full pages that wait at most for a store that is away.
_MOST_WAITING = 10

#: (number of the page, its entries): writes a page, in place of what it was before; blocks
KeepPage = Callable[[int, Sequence[Entry]], None]


class Storybook:
    """The story that one controller tells.

    Parameters
    ----------
    keep : callable
        Keeps a page.
    wall_s : callable
        Returns the time of day, seconds since the Unix epoch.
    """

    def __init__(self, keep: KeepPage, wall_s: Callable[[], float]) -> None:
        self._keep, self._wall_s = keep, wall_s
        self._names: dict[str, str] = {}
        self._teller = Teller(lambda address: self._names.get(address, address))
        self._page: list[Entry] = []
        self._number = 0
        self._full: list[tuple[int, list[Entry]]] = []
        self._clock = 0
        self._changed = False
        self._writing = asyncio.Lock()

    def tell(self, event: Event, orders: Sequence[Instruction], clock: int, said: Sequence[str] = ()) -> None:
        """Take an event, the orders that followed, the common clock after them, and what is to be `said` to all."""
        if isinstance(event, NodeJoined):
            self._names[event.address] = event.node
        at, self._clock = self._wall_s(), clock
        entries = self._teller.hear(event, at, clock)
        for text in said:
            entries += self._teller.say(text, at, clock)
        for order in orders:
            entries += self._teller.order(order, at, clock)
        self._add(entries)

    async def run(self) -> None:
        """Write for ever, now and then."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.write()

    async def write(self, last: bool = False) -> None:
        """Write what there is to write; `last`: also the counts that are still being counted."""
        if last:
            self._add(self._teller.flush(self._wall_s(), self._clock))
        async with self._writing:  # a page is never overtaken by what it was before
            pages, self._full = self._full, []
            if self._changed:
                pages.append((self._number, list(self._page)))
                self._changed = False
            for number, entries in pages:
                try:
                    await asyncio.to_thread(self._keep, number, entries)
                except Exception as error:  # noqa: BLE001 - each store has errors of its own
                    logger.warning("a page of the story was not kept: %s", error)
                    if number == self._number:
                        self._changed = True
                    else:
                        self._full = [*self._full, (number, entries)][-_MOST_WAITING:]

    def _add(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        self._page += entries
        self._changed = True
        if len(self._page) >= PAGE:
            self._page += self._teller.flush(self._wall_s(), self._clock)
            self._full.append((self._number, self._page))
            self._number, self._page, self._changed = self._number + 1, [], False
