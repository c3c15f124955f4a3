"""Peers of the data plane: bare TCP over loopback, a copy in memory, the same servers as Ray actors."""

import os
import socket
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.benchmarks.data_plane.nodes import COLUMNS

_PUSH, _PULL = b"+", b"?"
_HEADER = 9
#: Bytes of each Ray node's object store: enough for the arrays in transit, and available on a small machine.
_STORE = 1 << 30


def tcp_server(pipe: Connection) -> None:
    """Receive and send arrays on one connection; send its port. Memory is allocated once: nothing can be faster."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        connection, _ = listener.accept()
    table = np.zeros(0, np.uint8)
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while header := connection.recv(_HEADER, socket.MSG_WAITALL):
            what, n_bytes = header[:1], int.from_bytes(header[1:], "little")
            if len(table) != n_bytes:
                table = np.ones(n_bytes, np.uint8)
            if what == _PUSH:
                _fill(connection, table)
                connection.sendall(b"k")
            else:
                connection.sendall(table.data)


class TcpClient:
    """The other end of `tcp_server`."""

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def move(self, n_bytes: int, rounds: int) -> tuple[list[float], list[float]]:
        """Push and pull in turn; return the seconds of each."""
        update, table = np.ones(n_bytes, np.uint8), np.ones(n_bytes, np.uint8)
        size = n_bytes.to_bytes(_HEADER - 1, "little")
        pushes, pulls = [], []
        for _ in range(rounds):
            began = perf_counter()
            self._connection.sendall(_PUSH + size)
            self._connection.sendall(update.data)
            if self._connection.recv(1) != b"k":
                raise RuntimeError("the other end of a bare connection has gone")
            pushes.append(perf_counter() - began)
            began = perf_counter()
            self._connection.sendall(_PULL + size)
            _fill(self._connection, table)
            pulls.append(perf_counter() - began)
        return pushes, pulls

    def close(self) -> None:
        self._connection.close()


def _fill(connection: socket.socket, array: NDArray[np.uint8]) -> None:
    left = array.data
    while left:
        got = connection.recv_into(left)
        if not got:
            raise RuntimeError("the other end of a bare connection has gone")
        left = left[got:]


def copies(n_bytes: int, rounds: int) -> list[float]:
    """Return the seconds of each copy between two arrays that were touched before, and are not in the caches.

    In between, more memory is overwritten than any processor's last-level cache holds.
    """
    source, target = np.ones(n_bytes, np.uint8), np.ones(n_bytes, np.uint8)
    other = np.ones(1 << 27, np.uint8)
    took = []
    for _ in range(rounds):
        other += 1
        began = perf_counter()
        np.copyto(target, source)
        took.append(perf_counter() - began)
    return took


def ray_nodes(pipe: Connection) -> None:
    """Send "ready", then answer (bytes, shards, rounds, server) with seconds of pushes and pulls, one actor per shard.

    Each actor is the same server as ours: it stores an update and adds it at the next read. There are two Ray nodes on
    this machine, "near" is that of the caller. From "far" arrays are sent as between machines; within "near" the
    processes of the actors and the caller share memory, as no two machines do.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        for name in ("near", "far"):
            cluster.add_node(num_cpus=1, resources={name: 1e3}, object_store_memory=_STORE, include_dashboard=False)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        pipe.send("ready")
        while True:
            *load, server = pipe.recv()
            pipe.send(_ray_moves(ray, server, *load))
    except EOFError:
        pass
    finally:
        ray.shutdown()
        cluster.shutdown()


class _RayServer:
    def __init__(self, n_rows: int, n_columns: int) -> None:
        self.rows = np.zeros((n_rows, n_columns), np.float32)
        self.pending: list[NDArray[np.float32]] = []

    def push(self, update: NDArray[np.float32]) -> str:
        self.pending.append(update)
        return "ok"

    def pull(self) -> NDArray[np.float32]:
        for update in self.pending:
            self.rows = self.rows + update
        self.pending = []
        return self.rows


def _ray_moves(ray: Any, server: str, n_bytes: int, n_shards: int, rounds: int) -> tuple[list[float], list[float]]:
    n_rows = n_bytes // (4 * COLUMNS)
    cuts = [(shard * n_rows // n_shards, (shard + 1) * n_rows // n_shards) for shard in range(n_shards)]
    made = ray.remote(_RayServer).options(num_cpus=0, resources={server: 1})
    actors = [made.remote(high - low, COLUMNS) for low, high in cuts]
    update = np.ones((n_rows, COLUMNS), np.float32)
    pushes: list[float] = []
    pulls: list[float] = []
    for clock in range(1, rounds + 1):
        began = perf_counter()
        ray.get([actor.push.remote(update[low:high]) for actor, (low, high) in zip(actors, cuts, strict=True)])
        pushes.append(perf_counter() - began)
        for seconds in ([], pulls):
            began = perf_counter()
            parts = ray.get([actor.pull.remote() for actor in actors])
            table = parts[0] if n_shards == 1 else np.concatenate(parts)
            seconds.append(perf_counter() - began)
            if table.shape != update.shape or not table[0, 0] == table[-1, -1] == clock:
                raise RuntimeError(f"Ray's actor has {table[-1, -1]} after {clock} pushes of 1")
            del parts, table
    for actor in actors:
        ray.kill(actor)
    return pushes, pulls
