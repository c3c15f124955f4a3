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

from typing import Any, Protocol

#: Between the host and port of an address and the mark of its process.
_MARK = "#"


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
