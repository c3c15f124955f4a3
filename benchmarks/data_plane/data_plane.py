"""Benchmark `data-plane`: push and pull of parameters between a node and a server, from 0.1 to 100 MB.

Ours is `psengine.worker.parameter_client` on one node and `psengine.server.shard_server` on another, each in its
process, over Dask's connections. The peers, in the same rounds: bare TCP over loopback, Dask's own calls with the same
array between the same processes, a copy in memory (if the server is on the same node), and the same server as Ray
actors, if Ray is installed. The same two nodes over TLS are measured beside those without it.

A push ends when the server has acknowledged the update; adding it is not timed. A pull ends when the node has the full
table. The figures are the table's bytes divided by the seconds of one push or pull. Small messages are figures in
milliseconds, too, beside a call of Dask that carries nothing; the note has the CPU time of both processes.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import psutil

from proteus_spot.benchmarks.data_plane.nodes import Load, Process, node, scheduler
from proteus_spot.benchmarks.data_plane.peers import TcpClient, copies, ray_nodes, tcp_server
from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.tls.certificates import make_keys
from proteus_spot.infra.tls.job_keys import NODE, RoleKey

SIZES_MB = (0.1, 1.0, 10.0, 100.0)
SHARDS = (1, 4)
#: Number of alternations between ours and the peers, and of pushes and pulls in each.
_TURNS, _ROUNDS = 6, 4
#: Bytes below which a message is small: what it costs is not its bytes. So many pushes and pulls are made of it.
_SMALL_BYTES, _SMALL_ROUNDS = 1 << 19, 50
#: {location of Ray's actors: its name in the figures}.
_RAYS = MappingProxyType({"far": "Ray actors, another Ray node", "near": "Ray actors, shared memory"})

#: Seconds of pushes, and of pulls.
Seconds = tuple[list[float], list[float]]


class Endpoints:
    """Servers to push to and pull from; each method returns the seconds of pushes and of pulls."""

    def __init__(self, stack: ExitStack) -> None:
        self._server, self._worker, self._addresses = _nodes(stack)
        self._tls = _nodes(stack, make_keys("bench", SystemClock().now_s())[NODE])
        self._tcp = TcpClient(stack.enter_context(Process(tcp_server)).ask())
        stack.callback(self._tcp.close)
        self._ray = _ray(stack)

    @property
    def has_ray(self) -> bool:
        return self._ray is not None

    def remote(self, load: Load) -> Seconds:
        """Move to and from the server of another node."""
        self._server.ask("serve", load)
        seconds: Seconds = self._worker.ask("move", load, self._addresses[0])
        return _warm(seconds)

    def remote_tls(self, load: Load) -> Seconds:
        """Do what `remote` does over TLS."""
        server, worker, addresses = self._tls
        server.ask("serve", load)
        seconds: Seconds = worker.ask("move", load, addresses[0])
        return _warm(seconds)

    def own(self, load: Load) -> Seconds:
        """Move to and from the server of the same node."""
        self._worker.ask("serve", load)
        seconds: Seconds = self._worker.ask("move", load, self._addresses[1])
        return _warm(seconds)

    def tcp(self, load: Load) -> Seconds:
        """Move as many bytes over a bare connection."""
        return _warm(self._tcp.move(load.n_bytes, load.rounds))

    def dask(self, load: Load) -> tuple[list[float], list[float], list[float]]:
        """Move the array by Dask's own calls to the other node; also return the seconds of calls that carry nothing."""
        pushes, pulls, empty = self._worker.ask("rpc", load, self._addresses[0])
        return pushes[1:], pulls[1:], empty[1:]

    def cpu_s(self) -> float:
        """Return the CPU seconds that both nodes have taken so far."""
        times = [psutil.Process(process.pid).cpu_times() for process in (self._server, self._worker)]
        return sum(one.user + one.system for one in times)

    def ray(self, load: Load, server: str) -> Seconds:
        """Move to and from Ray actors, one a shard, on the "near" or the "far" Ray node."""
        assert self._ray is not None
        seconds: Seconds = self._ray.ask(load.n_bytes, load.n_shards, load.rounds, server)
        return _warm(seconds)


def run(scratch: Path, sizes_mb: tuple[float, ...] = SIZES_MB, shards: tuple[int, ...] = SHARDS) -> list[Figure]:
    """Measure."""
    del scratch
    figures: list[Figure] = []
    with ExitStack() as stack:
        places = Endpoints(stack)
        if not places.has_ray:
            sys.stderr.write("data-plane: no Ray to compare with; `pip install ray` installs it\n")
        for size_mb in sizes_mb:
            for n_shards in shards:
                n_bytes = int(size_mb * 1e6)
                rounds = _SMALL_ROUNDS if n_bytes < _SMALL_BYTES else _ROUNDS
                figures += _of(places, Load(n_bytes, n_shards, rounds))
    return figures


def _of(places: Endpoints, load: Load) -> Iterator[Figure]:
    """Yield the figures of one size and number of shards."""
    tls = _Moves(load)
    ours, own, tcp, copied = _Moves(load), _Moves(load), _Moves(load), list[float]()
    dask, empty_s = _Moves(load), list[float]()
    ray = {server: _Moves(load) for server in _RAYS} if places.has_ray else {}
    cpu_s = {"ours": 0.0, "Dask's": 0.0}
    for _ in range(_TURNS):
        tcp.add(places.tcp(load))
        began_s = places.cpu_s()
        ours.add(places.remote(load))
        between_s = places.cpu_s()
        *moved, empty = places.dask(load)
        cpu_s["ours"] += between_s - began_s
        cpu_s["Dask's"] += places.cpu_s() - between_s
        dask.add((moved[0], moved[1]))
        empty_s += empty
        for server, moves in ray.items():
            moves.add(places.ray(load, server))
        tls.add(places.remote_tls(load))
        own.add(places.own(load))
        copied += [load.n_bytes / took / 1e9 for took in copies(load.n_bytes, load.rounds)]
    for way, of in (("push", 0), ("pull", 1)):
        what = f"{way} {load.n_bytes / 1e6:g} MB, {load.n_shards} shard{'s' * (load.n_shards > 1)}"
        yield figure("data-plane", what, "GB/s", ours.rates[of], tcp.rates[of], "bare TCP over loopback")
        yield figure("data-plane", what, "GB/s", ours.rates[of], dask.rates[of], "Dask's own call with the array")
        yield figure("data-plane", f"{what}, TLS", "GB/s", tls.rates[of], ours.rates[of], "the same without TLS")
        if load.n_bytes < _SMALL_BYTES:
            took = [load.n_bytes / rate / 1e6 for rate in ours.rates[of]]
            # Ours are a push and two pulls a round, Dask's a push, a pull and an empty call.
            each = ", ".join(f"{name} {1e3 * s / (3 * _TURNS * load.rounds):.2f} ms" for name, s in cpu_s.items())
            beside = [1e3 * one for one in empty_s]
            yield figure("data-plane", what, "ms", took, beside, "Dask's own call, empty", f"CPU a call: {each}")
        for server, moves in ray.items():
            yield figure("data-plane", what, "GB/s", ours.rates[of], moves.rates[of], _RAYS[server])
        yield figure("data-plane", f"{what}, own node", "GB/s", own.rates[of], copied, "a copy in memory")


class _Moves:
    """Rates in GB/s of pushes and of pulls."""

    def __init__(self, load: Load) -> None:
        self._n_bytes = load.n_bytes
        self.rates: tuple[list[float], list[float]] = ([], [])

    def add(self, seconds: Seconds) -> None:
        for rates, took in zip(self.rates, seconds, strict=True):
            rates += [self._n_bytes / one / 1e9 for one in took]


def _warm(seconds: Seconds) -> Seconds:
    """Return all but the first of each, which allocates memory and opens the connection."""
    return seconds[0][1:], seconds[1][1:]


def _nodes(stack: ExitStack, key: RoleKey | None = None) -> tuple[Process, Process, tuple[str, str]]:
    """Return a server, a worker, and their addresses; over TLS with a key."""
    meeting = stack.enter_context(Process(scheduler, key)).ask()
    server, worker = (stack.enter_context(Process(node, name, meeting, key)) for name in ("server", "worker"))
    return server, worker, (server.ask(), worker.ask())


def _ray(stack: ExitStack) -> Process | None:
    """Return the process that drives Ray's actors, if Ray is installed."""
    if find_spec("ray") is None:
        return None
    ray = stack.enter_context(Process(ray_nodes))
    ray.ask()
    return ray
