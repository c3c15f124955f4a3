"""Calls between processes, each with a deadline. The Protocol is what agents and shells need; Dask is one way.

Nobody holds a proxy: a peer is an address, and a call to one that is gone ends in `Unreachable`, at the deadline at the
latest. Arrays travel out of band, dataclasses of ours pickled, everything else as msgpack.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, Protocol

import numpy as np
from distributed.core import Server
from distributed.protocol.serialize import Serialize, Serialized, deserialize


class Unreachable(Exception):
    """Nobody answered in time; whether the call took effect is not known."""

    def __init__(self, address: str, op: str, cause: BaseException) -> None:
        super().__init__(f"{address} did not answer {op}: {type(cause).__name__}: {cause}")
        self.address = address


class Transport(Protocol):
    """Calls by (address, operation)."""

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        """Return the peer's answer, or raise `Unreachable`."""
        ...


class DaskTransport:
    """Calls over the connection pool of a Dask worker or scheduler."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        """Return the peer's answer, or raise `Unreachable`; what the peer's handler raised is raised here."""
        peer = self._server.rpc(address)
        packed = {key: pack(value) for key, value in message.items()}
        try:
            return unpack(await asyncio.wait_for(getattr(peer, op)(**packed), deadline_s))
        except OSError as error:  # closed, refused, timed out
            raise Unreachable(address, op, error) from error


def pack(value: Any) -> Any:
    """Mark what cannot travel as msgpack, at any depth."""
    if isinstance(value, np.ndarray) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return Serialize(value)  # type: ignore[no-untyped-call]
    if isinstance(value, dict):
        return {key: pack(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [pack(item) for item in value]
    return value


def unpack(value: Any) -> Any:
    """Undo `pack` where Dask did not: a scheduler's connections leave what they pass on as it came."""
    if isinstance(value, Serialized):
        return deserialize(value.header, value.frames)  # type: ignore[no-untyped-call]
    if isinstance(value, dict):
        return {key: unpack(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [unpack(item) for item in value]
    return value
