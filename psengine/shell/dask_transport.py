"""Calls between processes over Dask: connections, deadlines, frames."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import pickle
import socket
from typing import Any

import numpy as np
from distributed.comm.core import Comm
from distributed.core import Server
from distributed.protocol.serialize import (
    Serialize,
    Serialized,
    dask_deserialize,
    dask_serialize,
    deserialize,
    pickle_loads,
)

from psengine.rpc.integer_narrowing import remember_wire_dtype, wire_dtype
from psengine.rpc.transport import Unreachable

#: Option and value: bytes that the system takes before it has sent those before.
_NOT_SENT = getattr(socket, "TCP_NOTSENT_LOWAT", None)
_UNSENT_BYTES = 1 << 17


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


async def taken(comm: Comm) -> None:
    """Return when what was written to a connection has gone out, as far as the system says; at once where it does not.

    Dask's `write` returns when all is in the stream's buffer. The system then takes up to megabytes into its own; it is
    told to have less of what it has not sent.
    """
    stream = getattr(comm, "stream", None)
    if stream is None or stream.closed():
        return
    if _NOT_SENT is not None:
        stream.socket.setsockopt(socket.IPPROTO_TCP, _NOT_SENT, _UNSENT_BYTES)
    with contextlib.suppress(OSError):  # the reader is gone, and waits for nothing
        # Whoever stops waiting is not to cancel what the stream waits for: it would log that as a fault.
        await asyncio.shield(stream.write(b""))


@dataclasses.dataclass(frozen=True)
class _Apart:
    """An array, or a dataclass that may hold some, whose arrays are to be received into memory of their own."""

    value: Any


@dask_serialize.register(_Apart)  # type: ignore[untyped-decorator, no-untyped-call]
def _to_frames(apart: _Apart) -> tuple[dict[str, Any], list[Any]]:
    array = apart.value if isinstance(apart.value, np.ndarray) and not apart.value.dtype.hasobject else None
    plain = array is not None and _as_sent(array) == array.dtype
    header, frames = dask_serialize(array) if plain else _pickled(apart.value)
    # Nothing goes first: the first buffer of a message is what Dask receives together with the header.
    return {**header, "pickled": not plain}, [memoryview(bytearray()), *frames]


def _as_sent(array: np.ndarray[Any, Any]) -> np.dtype[Any]:
    narrow = wire_dtype(array)
    remember_wire_dtype(array, narrow)
    return narrow


def _pickled(value: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return what Dask's `pickle_loads` takes; the bytes of arrays stand beside the pickle."""
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Narrowing(file, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append).dump(value)
    views = [buffer.raw() for buffer in buffers]
    return {"serializer": "pickle", "writeable": [not view.readonly for view in views]}, [file.getvalue(), *views]


class _Narrowing(pickle.Pickler):
    """Pickles an array of whole numbers in the type as which it travels, and the way back to its own."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or (narrow := _as_sent(value)) == value.dtype:
            return NotImplemented
        return _widened, (value.astype(narrow), value.dtype.str, value.flags.writeable)


def _widened(values: np.ndarray[Any, Any], dtype: str, writeable: bool) -> np.ndarray[Any, Any]:
    wide = values.astype(dtype)
    wide.flags.writeable = writeable
    remember_wire_dtype(wide, values.dtype)
    return wide


@dask_deserialize.register(_Apart)  # type: ignore[untyped-decorator, no-untyped-call]
def _from_frames(header: dict[str, Any], frames: list[Any]) -> Any:
    if header["pickled"]:
        return pickle_loads(header, frames[1:])
    array = dask_deserialize.dispatch(np.ndarray)(header, frames[1:])  # type: ignore[no-untyped-call]
    remember_wire_dtype(array, array.dtype)
    return array


def pack(value: Any) -> Any:
    """Mark what cannot travel as msgpack, at any depth."""
    if isinstance(value, np.ndarray | slice) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return Serialize(_Apart(value))  # type: ignore[no-untyped-call]
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
