"""What goes over the wire between nodes: arrays arrive as they were, aligned, and in memory of their own."""

import asyncio
import socket
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distributed.comm.utils import to_frames
from distributed.core import Server
from tornado.iostream import IOStream

from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.rpc.narrowing import wire_bytes
from proteus_spot.psengine.rpc.transport import Unreachable
from proteus_spot.psengine.shell.dask_transport import DaskTransport, pack, pack_apart, sent
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.sparse_rows import SparseRows
from proteus_spot.psengine.telemetry.byte_counts import state_bytes
from tests.support.timeouts import PATIENCE

#: rows of 4 bytes: what Dask sends joined to its header, and what it sends apart
SIZES = (0, 1, 1_000, 100_000, 2_000_000)


def there_and_back(value: Any) -> Any:
    """Return what a peer answers that sends back what it got."""

    async def both() -> Any:
        async def echo(value: Any) -> Any:
            return pack({"status": "ok", "value": value})

        peer, caller = Server({"echo": echo}), Server({})
        try:
            await peer.listen("tcp://127.0.0.1:0")  # type: ignore[no-untyped-call]
            await caller
            return await DaskTransport(caller).call(peer.address, "echo", 10.0, value=value)
        finally:
            await caller.close()  # type: ignore[no-untyped-call]
            await peer.close()  # type: ignore[no-untyped-call]

    return asyncio.run(both())["value"]


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("first", ["array", "state"])
def test_arrays_arrive_aligned_and_writeable(rows: int, first: str) -> None:
    array = np.arange(rows, dtype=np.float32)
    sent: Any = {
        "array": [array, array + 1],
        "state": ShardState({"w": array}, 3, 6, ((4, 0, (1,), {"w": array + 1}),)),
    }
    sent = {name: sent[name] for name in sorted(sent, reverse=first == "state")}
    got = there_and_back(sent)
    one, two = got["array"]
    ((clock, low, attempts, update),) = got["state"].later
    assert (got["state"].group, got["state"].folded, clock, low, attempts) == (3, 6, 4, 0, (1,))
    for there, wanted in ((one, array), (two, array + 1), (got["state"].arrays["w"], array), (update["w"], array + 1)):
        assert there.dtype == wanted.dtype
        assert np.array_equal(there, wanted)
        assert (there.flags.aligned, there.flags.writeable, there.flags.c_contiguous) == (True, True, True)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.int64).reshape(3, 4).T,
        np.arange(24, dtype=np.int32)[::2],
        np.array([[1, 2]], np.uint8),
        np.zeros((0, 5), np.float64),
        np.array(["a", None], object),
    ],
    ids=["fortran", "strided", "bytes", "empty", "objects"],
)
def test_any_array_arrives(array: np.ndarray) -> None:
    got = there_and_back(array)
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    assert np.array_equal(got, array)


@pytest.mark.parametrize("length", [5, 5_000])
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_what_is_read_only_stays_so(length: int, dtype: type) -> None:
    array = np.arange(length, dtype=dtype)
    array.flags.writeable = False
    alone, within = there_and_back([array, RowDelta(slice(0, length), array)])
    assert not alone.flags.writeable
    assert not within.values.flags.writeable


def test_whole_numbers_travel_narrow_and_arrive_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.arange(40_000, dtype=np.int32).reshape(-1, 4) % 100
    update = RowDelta(np.arange(0, 30_000, 3), -counts)
    state = ShardState({"counts": counts}, 3, 6, ((4, 0, (1,), {"counts": update}),))
    sent = {"array": counts, "update": update, "state": state}
    for what, of in sent.items():
        frames = asyncio.run(to_frames(pack({what: of}), serializers=None))  # type: ignore[no-untyped-call]
        arrays = state_bytes([state]) if of is state else wire_bytes(of)
        assert 0 <= sum(memoryview(frame).nbytes for frame in frames) - arrays < 2_000, what
    assert wire_bytes(counts) == counts.size

    got = there_and_back(sent)
    ((*_, later),) = got["state"].later
    for there in (got["array"], -got["update"].values, got["state"].arrays["counts"], -later["counts"].values):
        assert there.dtype == counts.dtype
        assert np.array_equal(there, counts)
        assert (there.flags.aligned, there.flags.writeable, there.flags.c_contiguous) == (True, True, True)
    monkeypatch.setattr(
        "proteus_spot.psengine.rpc.narrowing.narrowed", None
    )  # what came, or was sent, is not looked at again
    assert wire_bytes(got["array"]) == wire_bytes(got["update"].values) == counts.size
    assert wire_bytes(update.values) == counts.size
    assert got["update"].rows.dtype == update.rows.dtype
    assert np.array_equal(got["update"].rows, update.rows)


def test_large_integers_are_narrowed_on_a_thread_and_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrowing waits for the loop, which could not go on if it ran there."""
    at_work, goes_on = threading.Event(), threading.Event()

    def waits(array: np.ndarray) -> None:
        at_work.set()
        assert goes_on.wait(10.0 * PATIENCE), "the event loop stands still"

    monkeypatch.setattr("proteus_spot.psengine.shell.dask_transport.narrowed", waits)
    counts = np.arange(1 << 18, dtype=np.int32)

    async def meanwhile(packing: Any) -> Any:
        task = asyncio.ensure_future(packing)
        while not at_work.is_set():
            await asyncio.sleep(0.001)
        goes_on.set()
        return await task

    state = ShardState({"counts": counts}, 3, 6)
    nothing = np.zeros(0, np.int64)
    sparse = SparseRows(np.dtype(np.int64), (1, 1), nothing, counts, counts, nothing, nothing)
    compact = ShardState({"counts": sparse}, 3, 6)
    for message in (
        {"states": {0: compact}},
        {"a": counts},
        {"shards": {0: [RowDelta(slice(0, 1 << 18), counts)]}},
        {"states": {0: state}},
    ):
        at_work.clear()
        goes_on.clear()
        assert asyncio.run(meanwhile(pack_apart(message))).keys() == message.keys()


def test_a_peer_that_is_gone_is_unreachable() -> None:
    async def ask() -> None:
        peer, caller = Server({}), Server({})
        await caller
        await peer.listen("tcp://127.0.0.1:0")  # type: ignore[no-untyped-call]
        address = peer.address
        await peer.close()  # type: ignore[no-untyped-call]
        try:
            with pytest.raises(Unreachable, match="did not answer echo"):
                await DaskTransport(caller).call(address, "echo", 0.5)
        finally:
            await caller.close()  # type: ignore[no-untyped-call]

    asyncio.run(ask())


def test_giving_up_to_wait_for_a_slow_reader_is_not_logged_as_a_fault() -> None:
    async def reader_that_does_not_read() -> list[Any]:
        faults: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        with socket.create_server(("127.0.0.1", 0)) as server:
            near = socket.create_connection(server.getsockname())
            far, _ = server.accept()
        stream = IOStream(near)
        stream.write(bytes(50_000_000))
        comm: Any = SimpleNamespace(stream=stream)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sent(comm), 0.05)
        await asyncio.sleep(0)
        stream.close()
        far.close()
        await asyncio.sleep(0)
        return faults

    assert asyncio.run(reader_that_does_not_read()) == []
