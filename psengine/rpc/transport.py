"""Calls between processes, each with a deadline. The Protocol is what agents and shells need; Dask is one way.

Nobody holds a proxy: a peer is an address, and a call to one that is gone ends in `Unreachable`, at the deadline at the
latest. Arrays travel out of band, whole numbers in the narrowest type that holds them (`narrow`), dataclasses of ours pickled,
everything else as msgpack.

Arrays arrive aligned, in memory of their own that they were received into, and are not copied. Dask alone would
receive the first array of a message behind the message's header, at whatever address that ends. NumPy takes longer over
such an array, and a compiled kernel takes it for another type, which is compiled under the clock or refused.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

#: seconds before a call is made again
AGAIN_S = 0.2
#: Bytes a second, the slowest that parameters may come: a link of 5 Mbit/s to a server that sixty-four nodes read from at once.
#: Who gives up sooner asks again, while what he was sent before still fills the link.
#: That a server or the way to it is gone is told by the connection, or by a new generation, not by this.
_SLOWEST = 10_000


class Unreachable(Exception):
    """Nobody answered in time; whether the call took effect is not known."""

    def __init__(self, address: str, op: str, cause: BaseException) -> None:
        super().__init__(f"{address} did not answer {op}: {type(cause).__name__}: {cause}")
        self.address = address


def deadline_s(least_s: float, n_bytes: int) -> float:
    """Return the seconds that a call has which takes `least_s` without its parameters, and of these may move `n_bytes`."""
    return least_s + n_bytes / _SLOWEST


class Transport(Protocol):
    """Calls by (address, operation)."""

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        """Return the peer's answer, or raise `Unreachable`."""
        ...


async def call_again(transport: Transport, address: str, op: str, deadline_s: float, **message: Any) -> Any:
    """Call, and once or twice more where the connection broke before the deadline was over; for what may be done twice."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + deadline_s
    for last in (False, False, True):
        try:
            return await transport.call(address, op, until_s - loop.time(), **message)
        except Unreachable:
            if last or loop.time() + AGAIN_S >= until_s:
                raise
            await asyncio.sleep(AGAIN_S)
    raise AssertionError("unreachable")
