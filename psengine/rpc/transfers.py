"""Calls that move parameters: how long each may take, by what the transfers of this process have taken before.

| known of this process | a call of `n_bytes` is given, besides the time that it takes without parameters |
|---|---|
| nothing | the time at 10 kB/s, half an hour at most |
| the rates of its last transfers | the time at a 64th of the lowest one (64 nodes may read at once), 1 MB/s at most |
| its last transfers took too long | four times that, for each of them |

A client that gives up too soon repeats its request while the previous answer still fills the link. One that gives up
too late waits for a link that drops all messages silently; a lost process is detected by its connection, or its
heartbeats, not by this.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from proteus_spot.psengine.rpc.transport import Transport, Unreachable

#: Bytes per second before any transfer was measured: a link of 5 Mbit/s to a server that sixty-four nodes read from.
_UNMEASURED = 10_000
#: Maximum seconds for the parameters of a call before any transfer was measured.
_UNMEASURED_S = 1800.0
#: Maximum bytes per second that are relied on: a process may stand still for a while.
_MOST = 1_000_000
_TIMES, _SLOWER = 64, 4
#: Shorter transfers say nothing about a rate.
_LEAST_BYTES = 100_000
_RECENT = 16
#: Seconds before a call is repeated.
_AGAIN_S = 0.2


class Transfers:
    """Calls of one process that move parameters, over `transport`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        #: Bytes per second of the last transfers.
        self._rates: deque[float] = deque(maxlen=_RECENT)
        self._factor = 1

    def deadline_s(self, least_s: float, n_bytes: int) -> float:
        """Return the deadline of a call that takes up to `least_s` without its parameters and moves `n_bytes`."""
        if not self._rates:
            return least_s + self._factor * min(n_bytes / _UNMEASURED, _UNMEASURED_S)
        return least_s + self._factor * n_bytes / min(_MOST, *(rate / _TIMES for rate in self._rates))

    async def call(
        self, address: str, op: str, least_s: float, n_bytes: int, again: bool = False, **message: Any
    ) -> Any:
        """Return the peer's answer within the deadline of at most `n_bytes`, or raise `Unreachable`.

        `again`: the operation is idempotent, so the call is repeated, up to twice, if the connection breaks.
        """
        loop = asyncio.get_running_loop()
        began_s, left = loop.time(), 2 if again else 0
        until_s = began_s + self.deadline_s(least_s, n_bytes)
        while True:
            try:
                answer = await self._transport.call(address, op, until_s - loop.time(), **message)
            except Unreachable:
                if left and loop.time() + _AGAIN_S < until_s:
                    left -= 1
                    await asyncio.sleep(_AGAIN_S)
                    continue
                if n_bytes >= _LEAST_BYTES and loop.time() >= until_s:
                    self._factor *= _SLOWER
                raise
            if n_bytes >= _LEAST_BYTES:
                self.note(n_bytes, loop.time() - began_s)
            return answer

    def note(self, n_bytes: int, seconds: float) -> None:
        """Note that a transfer of `n_bytes` took `seconds`."""
        self._factor = 1
        if seconds > 0:
            self._rates.append(n_bytes / seconds)
