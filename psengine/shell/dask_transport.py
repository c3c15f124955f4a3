"""The transport over Dask: connections, deadlines, serialization."""

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
from psengine.rpc.transport import Unreachable, endpoint_and_mark

#: Key of the mark of the process that a message is for.
TO = "to_process"
#: Answer to a message for another process. An exception would arrive at a scheduler without its type.
NOT_THAT_PROCESS = "proteus-another-process"

#: Socket option and its value: maximum unsent bytes that the system buffers.
_NOT_SENT = getattr(socket, "TCP_NOTSENT_LOWAT", None)
_UNSENT_BYTES = 1 << 17


class DaskTransport:
    """Calls over the connection pool of a Dask worker or scheduler."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        """Return the peer's answer, or raise `Unreachable`; an error of the peer's handler is raised here."""
        endpoint, mark = endpoint_and_mark(address)
        peer = self._server.rpc(endpoint)
        packed = {key: pack(value) for key, value in message.items()}
        if mark:
            packed[TO] = mark
        try:
            answer = unpack(await asyncio.wait_for(getattr(peer, op)(**packed), deadline_s))
        except OSError as error:  # closed, refused, timed out
            raise Unreachable(address, op, error) from error
        if isinstance(answer, str) and answer == NOT_THAT_PROCESS:
            raise Unreachable(address, op, ConnectionRefusedError("its process has ended, another one listens there"))
        return answer


async def sent(comm: Comm) -> None:
    """Return when the bytes written to a connection were sent, up to `_UNSENT_BYTES`; at once without a socket stream.

    Dask's `write` returns when all is in the stream's buffer. The system then buffers up to megabytes itself; the
    socket option limits the unsent part.
    """
    stream = getattr(comm, "stream", None)
    if stream is None or stream.closed():
        return
    if _NOT_SENT is not None:
        stream.socket.setsockopt(socket.IPPROTO_TCP, _NOT_SENT, _UNSENT_BYTES)
    with contextlib.suppress(OSError):  # the reader was lost
        # A caller that stops waiting must not cancel the stream's future: the stream would log that as an error.
        await asyncio.shield(stream.write(b""))


@dataclasses.dataclass(frozen=True)
class _SeparateBuffers:
    """An array, or a dataclass that may hold some, whose arrays are to be received into separate memory."""

    value: Any


@dask_serialize.register(_SeparateBuffers)  # type: ignore[untyped-decorator, no-untyped-call]
def _to_frames(content: _SeparateBuffers) -> tuple[dict[str, Any], list[Any]]:
    array = content.value if isinstance(content.value, np.ndarray) and not content.value.dtype.hasobject else None
    plain = array is not None and _choose_wire_dtype(array) == array.dtype
    header, frames = dask_serialize(array) if plain else _pickle(content.value)
    # An empty buffer goes first: Dask receives the first buffer of a message together with the header.
    return {**header, "pickled": not plain}, [memoryview(bytearray()), *frames]


def _choose_wire_dtype(array: np.ndarray[Any, Any]) -> np.dtype[Any]:
    narrow = wire_dtype(array)
    remember_wire_dtype(array, narrow)
    return narrow


def _pickle(value: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the header and frames for Dask's `pickle_loads`; the bytes of arrays are separate frames."""
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Narrowing(file, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append).dump(value)
    views = [buffer.raw() for buffer in buffers]
    return {"serializer": "pickle", "writeable": [not view.readonly for view in views]}, [file.getvalue(), *views]


class _Narrowing(pickle.Pickler):
    """Pickles an integer array in its wire type, together with the type to restore."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or (narrow := _choose_wire_dtype(value)) == value.dtype:
            return NotImplemented
        return _widen, (value.astype(narrow), value.dtype.str, value.flags.writeable)


def _widen(values: np.ndarray[Any, Any], dtype: str, writeable: bool) -> np.ndarray[Any, Any]:
    wide = values.astype(dtype)
    wide.flags.writeable = writeable
    remember_wire_dtype(wide, values.dtype)
    return wide


@dask_deserialize.register(_SeparateBuffers)  # type: ignore[untyped-decorator, no-untyped-call]
def _from_frames(header: dict[str, Any], frames: list[Any]) -> Any:
    if header["pickled"]:
        return pickle_loads(header, frames[1:])
    array = dask_deserialize.dispatch(np.ndarray)(header, frames[1:])  # type: ignore[no-untyped-call]
    remember_wire_dtype(array, array.dtype)
    return array


def pack(value: Any) -> Any:
    """Wrap values that msgpack cannot hold, at any depth."""
    if isinstance(value, np.ndarray | slice) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return Serialize(_SeparateBuffers(value))  # type: ignore[no-untyped-call]
    if isinstance(value, dict):
        return {key: pack(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [pack(item) for item in value]
    return value


def unpack(value: Any) -> Any:
    """Undo `pack` where Dask did not: connections of a scheduler do not deserialize."""
    if isinstance(value, Serialized):
        return deserialize(value.header, value.frames)  # type: ignore[no-untyped-call]
    if isinstance(value, dict):
        return {key: unpack(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [unpack(item) for item in value]
    return value
