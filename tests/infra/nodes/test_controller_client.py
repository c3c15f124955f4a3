"""What a controller answers is text: a head that is sent a pickle, or no end of bytes, runs and keeps nothing."""

import ast
import asyncio
import json
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import proteus_spot.infra.nodes.controller_client
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.nodes.controller_client import ControllerClient, ControllerUnreachable
from tests.support.control_ports import served_control
from tests.support.timeouts import PATIENCE


class Bomb:
    """Makes a directory where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self._path,)


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Yield the address of a controller that deals with its only connection by `answer`."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    connection.recv(1 << 16)
                    answer(connection)
                except OSError:
                    return  # the client has hung up

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        thread.join(20 * PATIENCE)
        assert not thread.is_alive()


def test_a_pickle_is_no_answer(tmp_path: Path) -> None:
    bomb = tmp_path / "exploded"
    pickle.loads(pickle.dumps(Bomb(bomb)))
    assert bomb.is_dir(), "it would have gone off"
    bomb.rmdir()
    line = pickle.dumps(Bomb(bomb), 0).replace(b"\n", b" ") + b"\n"
    with answering(lambda to: to.sendall(line)) as address, pytest.raises(ControllerUnreachable, match="no answer"):
        ControllerClient(address, 5.0).status()
    assert not bomb.exists()


def test_a_dask_peer_that_sends_a_pickle_is_not_understood(tmp_path: Path) -> None:
    """The head once spoke Dask to an address of the blob store: this peer ran code there."""
    from distributed.comm.core import connect, listen
    from distributed.core import send_recv
    from distributed.protocol.serialize import to_serialize

    bomb = tmp_path / "exploded"
    addresses: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def peer() -> None:
        async def answer(comm: Any) -> None:
            await comm.read()
            await comm.write({"job_id": "job", "bomb": to_serialize(Bomb(bomb))})

        async with listen("tcp://127.0.0.1:0", answer) as listener:
            addresses.append(listener.contact_address)
            ready.set()
            while not done.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=asyncio.run, args=(peer(),))
    thread.start()
    try:
        assert ready.wait(20 * PATIENCE)

        async def ask() -> None:
            comm = await connect(addresses[0])
            await send_recv(comm, op="proteus_status")
            await comm.close()

        asyncio.run(ask())
        assert bomb.is_dir(), "who speaks Dask to it runs its code"
        bomb.rmdir()
        with pytest.raises(ControllerUnreachable):
            ControllerClient(addresses[0], 1.0).status()
        assert not bomb.exists()
    finally:
        done.set()
        thread.join(20 * PATIENCE)


def test_the_client_imports_nothing_that_unpickles() -> None:
    tree = ast.parse(Path(proteus_spot.infra.nodes.controller_client.__file__).read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not {name.partition(".")[0] for name in names} & {"pickle", "cloudpickle", "distributed", "dask", "marshal"}


def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proteus_spot.infra.nodes.controller_client, "MOST_BYTES", 1 << 20)
    sent: list[int] = []

    def pour(to: socket.socket) -> None:
        while True:
            sent.append(to.send(b"[" * (1 << 16)))

    with answering(pour) as address, pytest.raises(ControllerUnreachable, match="no answer to status"):
        ControllerClient(address, 60.0).status()
    assert sum(sent) < 1 << 24


def test_an_answer_that_trickles_is_cut_in_time() -> None:
    def trickle(to: socket.socket) -> None:
        while True:
            to.sendall(b" ")
            time.sleep(0.05)

    began = time.monotonic()
    with answering(trickle) as address, pytest.raises(ControllerUnreachable, match=r"in 0\.5 s"):
        ControllerClient(address, 0.5).status()
    assert time.monotonic() - began < 10 * PATIENCE


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[" * 100_000 + b"\n", "RecursionError"),
        (b"no JSON\n", "JSONDecodeError"),
        (b"\xff\xfe\n", "UnicodeDecodeError"),
        (b'{"answer": 1', "ConnectionError"),
        (b'{"answer": 1}\n', "status was answered by no object"),
        (b"[1]\n", "status failed: no such answer"),
        (b'{"error": "KeyError: x"}\n', "status failed: KeyError: x"),
        (b'{"error": "' + b"x" * 9000 + b'"}\n', "x{300}$"),
    ],
)
def test_an_answer_that_is_none_is_told_in_one_line(line: bytes, reason: str) -> None:
    with (
        answering(lambda to: to.sendall(line)) as address,
        pytest.raises(ControllerUnreachable, match=reason) as caught,
    ):
        ControllerClient(address, 20.0 * PATIENCE).status()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "None", "file:///etc/passwd"]
)
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(ControllerUnreachable, match="no answer to status"):
        ControllerClient(address, 1.0).status()


# -- the controller's side ------------------------------------------------------------------------------------------


async def status(since_clock: int = 0) -> dict[str, Any]:
    return {"job_id": "job", "since": since_clock, "losses": [(1, 0.5)]}


async def start(job: dict[str, Any]) -> dict[str, Any]:
    return {"error": f"unknown field {next(iter(job))!r}"}


async def stop(reason: str) -> None:
    raise ZeroDivisionError(f"{reason}\nsecond line")


@pytest.fixture
def port() -> Iterator[str]:
    """The address of a controller's port."""
    with served_control({"status": status, "start": start, "stop": stop}) as address:
        yield address


def test_requests_are_answered(port: str) -> None:
    client = ControllerClient(port, 20.0 * PATIENCE)
    assert client.status(7) == {"job_id": "job", "since": 7, "losses": [[1, 0.5]]}
    with pytest.raises(InputError, match=r"job x: unknown field 'job_id'"):
        client.start({"job_id": "x"})
    with pytest.raises(ControllerUnreachable, match=r"stop failed: ZeroDivisionError: asked$"):
        client.stop("asked")
    with pytest.raises(ControllerUnreachable, match=r"drain failed: no such request \(KeyError\)"):
        client.drain(["a"], 1.0)


@pytest.mark.parametrize(
    "sent", [b"\n", b"{}\n", b"[" * 100_000 + b"\n", b'{"op": "status", "arguments": 3}\n', b"\x80\x05.\n"]
)
def test_a_request_that_is_none_is_answered_by_an_error(port: str, sent: bytes) -> None:
    host, _, number = port.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(number)), 20 * PATIENCE) as connection:
        connection.sendall(sent)
        answer = json.loads(connection.makefile("rb").readline())
    assert answer["error"].startswith("no such request")
    assert ControllerClient(port, 20.0 * PATIENCE).status()["job_id"] == "job", "it answers the next one"


def test_a_start_waits_for_the_import_of_a_large_module_and_says_so() -> None:
    calls: list[str] = []
    reasons = ["importing mine:App", "importing mine:App", "waiting for a job"]

    async def start(job: dict[str, Any]) -> dict[str, Any]:
        calls.append("start")
        if len(calls) <= 2:
            await asyncio.sleep(0.3)
        return {"state": "starting"}

    async def status(since_clock: int) -> dict[str, Any]:
        return {"reason": reasons[len(calls) - 1]}

    said: list[str] = []
    with served_control({"start": start, "status": status}) as address:
        client = ControllerClient(address, 0.2)
        assert client.start({"job_id": "job", "app": "mine:App"}, said.append) == {"state": "starting"}
        assert len(calls) == 3
        (line,) = said
        assert line.startswith("job job: the controller imports mine:App; this is waited for, at most ")
        reasons[:] = ["waiting for a job"] * 9
        calls.clear()
        with pytest.raises(ControllerUnreachable, match="no answer to start"):
            client.start({"job_id": "job"})
        assert len(calls) == 1, "a controller that imports nothing is not waited for"
