"""Calls between processes, each with a deadline: the protocol that agents and shells use. Dask is one implementation.

An address names a process: behind the host and port it may have a mark that no other process has, so that the
successor of a lost process, if it gets the same port, neither takes what was meant for it nor is taken for it.

There are no proxies: a peer is an address, and a call to a lost one raises `Unreachable`, at the latest at the
deadline. Arrays travel out of band, in the smallest form (`narrowing`), the engine's
dataclasses pickled, everything else as msgpack.

Arrays arrive aligned, in separate memory that they were received into, and are not copied. Dask alone would receive the
first array of a message behind the message's header, at an arbitrary address. NumPy is slower on such an array, and to
a compiled kernel it is another type, which is compiled during the training or refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol

#: Between the host and port of an address and the mark of its process.
_MARK = "#"
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


def address_of(endpoint: str, mark: str) -> str:
    """Return the address of the process `mark` that listens at `endpoint`; without a mark, that of any process."""
    return f"{endpoint}{_MARK}{mark}" if mark else endpoint


def endpoint_and_mark(address: str) -> tuple[str, str]:
    """Return where the process at an address listens, and its mark; the latter may be empty."""
    endpoint, _, mark = address.partition(_MARK)
    return endpoint, mark


class Unreachable(Exception):
    """The peer did not answer in time; whether the call took effect is unknown."""

    def __init__(self, address: str, op: str, cause: BaseException) -> None:
        super().__init__(f"{address} did not answer {op}: {type(cause).__name__}: {cause}")
        self.address = address


class Transport(Protocol):
    """Calls by (address, operation)."""

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        """Return the peer's answer, or raise `Unreachable`."""
        ...


class Transfers:
    """Calls of one process that move parameters, over `transport`, which know how long each may take.

    | known of this process | a call of `n_bytes` is given, besides the time that it takes without parameters |
    |---|---|
    | nothing | the time at 10 kB/s, half an hour at most |
    | the rates of its last transfers | the time at a 64th of the lowest (64 nodes may read at once), 1 MB/s at most |
    | its last transfers took too long | four times that, for each of them |

    A client that gives up too soon repeats its request while the previous answer still fills the link. One that gives
    up too late waits for a link that drops all messages silently; a lost process is detected by its connection, or its
    heartbeats, not by this.
    """

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
