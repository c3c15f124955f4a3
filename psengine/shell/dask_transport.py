"""The transport over Dask: connections, deadlines, serialization."""

from __future__ import annotations

import asyncio
import contextlib
import io
import pickle
import socket
from collections.abc import Mapping
from typing import Any

import numpy as np
from distributed.comm.core import Comm
from distributed.core import Server
from distributed.protocol.serialize import Serialized, deserialize

from proteus_spot.psengine.protocol.answers import from_message
from proteus_spot.psengine.protocol.moved_state import PartitionState, ShardState
from proteus_spot.psengine.rpc.narrowing import Narrowed, may_narrow, narrowed, remember_wire_bytes
from proteus_spot.psengine.rpc.transport import Unreachable, endpoint_and_mark
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.sparse_rows import SparseRows

#: Key of the mark of the process that a message is for.
TO = "to_process"
#: Answer to a message for another process. An exception would arrive at a scheduler without its type.
NOT_THAT_PROCESS = "proteus-another-process"

#: Socket option and its value: maximum unsent bytes that the system buffers.
_NOT_SENT = getattr(socket, "TCP_NOTSENT_LOWAT", None)
_UNSENT_BYTES = 1 << 17
#: Maximum bytes of an array that is copied into the pickle: to receive it apart takes longer.
_IN_BAND_BYTES = 1 << 15
#: Bytes of arrays that may be narrowed from which on a message is packed on a thread: a megabyte takes a millisecond.
_APART_BYTES = 1 << 20
#: What holds arrays in messages, beside dicts, lists and tuples.
_WITH_ARRAYS = frozenset({RowDelta, ShardState, PartitionState, SparseRows})
#: Types that msgpack holds.
_PLAIN = frozenset({str, int, float, bytes, bool, type(None)})


class DaskTransport:
    """Calls over the connection pool of a Dask worker or scheduler."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        """Return the peer's answer, or raise `Unreachable`; an error of the peer's handler is raised here."""
        endpoint, mark = endpoint_and_mark(address)
        peer = self._server.rpc(endpoint)
        try:
            async with asyncio.timeout(deadline_s):  # no task of its own, as `wait_for` has
                packed = await pack_apart(message)
                if mark:
                    packed[TO] = mark
                answer = await getattr(peer, op)(**packed)
        except OSError as error:  # closed, refused, timed out
            raise Unreachable(address, op, error) from error
        if isinstance(answer, str) and answer == NOT_THAT_PROCESS:
            raise Unreachable(address, op, ConnectionRefusedError("its process has ended, another one listens there"))
        return received(answer)


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


def _pickle(value: Any) -> Serialized:
    """Return a value as Dask's `pickle_loads` reads it; the bytes of arrays are frames, and received into own memory.

    Dask receives what is no `bytes` apart from the header of the message, except the first such frame: that is the
    pickle itself. A `Serialize` would have Dask look for a serializer of each array, which takes longer than all else.
    """
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Narrowing(file, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append).dump(value)
    views = [buffer.raw() for buffer in buffers]
    header = {"serializer": "pickle", "writeable": [not view.readonly for view in views]}
    return Serialized(header, [file.getbuffer(), *views])  # type: ignore[no-untyped-call]


class _Narrowing(pickle.Pickler):
    """Pickles an array that is narrowed with the type to restore, and other arrays as they are."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not np.ndarray:
            return NotImplemented
        form = narrowed(value)
        remember_wire_bytes(value, value.nbytes if form is None else form.nbytes)
        if form is not None:
            return _widen, (form.shape, form.values, form.gaps, form.large, value.dtype.str, value.flags.writeable)
        if value.dtype.isbuiltin != 1 or value.dtype.hasobject or not value.flags.c_contiguous:
            return NotImplemented
        # As NumPy does it, but for the names of its functions and of the type, which take longer than the rest.
        if value.nbytes > _IN_BAND_BYTES:
            content: Any = pickle.PickleBuffer(value)  # type: ignore[arg-type] # an array is a buffer
        else:
            content = bytearray(value.data) if value.flags.writeable else bytes(value.data)
        return _from_buffer, (content, value.dtype.str, value.shape)


def _from_buffer(content: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    array = np.ndarray(shape, dtype, content)
    remember_wire_bytes(array, array.nbytes)
    return array


def _widen(*parts: Any) -> np.ndarray[Any, Any]:
    *fields, dtype, writeable = parts
    form = Narrowed(*fields)
    wide = form.widened(dtype)
    wide.flags.writeable = writeable
    remember_wire_bytes(wide, form.nbytes)
    return wide


def pack(message: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a message for Dask: values that msgpack cannot hold are pickled, each as a whole."""
    return {key: value if _is_plain(value) else _pickle(value) for key, value in message.items()}


async def pack_apart(message: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return `pack(message)`; large arrays that may be narrowed are so on a thread, and the event loop goes on.

    No array of a message is written to after it was given away.
    """
    if _narrowed_bytes(message) < _APART_BYTES:
        return pack(message)
    return await asyncio.to_thread(pack, message)


def _narrowed_bytes(value: Any) -> int:
    kind = type(value)  # with each message: `isinstance` takes as long as packing
    if kind is np.ndarray:
        return value.nbytes if may_narrow(value) else 0
    if kind is dict:
        value = value.values()
    elif kind in _WITH_ARRAYS:
        value = vars(value).values()
    elif kind is not list and kind is not tuple:
        return 0
    total = 0
    for item in value:
        if type(item) is not int:
            total += _narrowed_bytes(item)
    return total


def _is_plain(value: Any) -> bool:
    kind = type(value)  # with each message: see `_narrowed_bytes`
    if kind in _PLAIN:
        return True
    if kind is dict:
        value = value.values()
    elif kind is not list and kind is not tuple:
        return False
    for item in value:  # noqa: SIM110 - `all` of a generator takes twice as long
        if type(item) not in _PLAIN and not _is_plain(item):
            return False
    return True


def received(answer: Any) -> Any:
    """Return what a handler has answered, as it was before it was packed."""
    return from_message(unpack(answer))


def unpack(value: Any) -> Any:
    """Undo `pack` where Dask did not: connections of a scheduler do not deserialize."""
    if isinstance(value, Serialized):
        return deserialize(value.header, value.frames)  # type: ignore[no-untyped-call]
    if isinstance(value, dict):
        return {key: unpack(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [unpack(item) for item in value]
    return value
