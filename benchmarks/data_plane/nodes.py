"""Two nodes and their scheduler as processes, controlled by pipes, on the code path of a training job.

A node is a Dask worker with the engine's plugin, set up as by `infra.nodes.main`; only its controller is missing. Its
instructions (open these shards, use this map) are applied to the node's server and client here.
"""

import asyncio
import multiprocessing
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from proteus_spot.infra.tls.job_keys import RoleKey, dask_security
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.server.shard_store import ShardStore
from proteus_spot.psengine.tables.sharding import Sharding
from proteus_spot.psengine.worker.shard_messages import sum_up, under

TABLE = "weights"
#: Columns of the float32 table: rows are long enough to cost nothing each, short enough for four shards of 0.1 MB.
COLUMNS = 16
_EPOCH = 1
#: Maximum seconds to wait for an answer on a pipe.
PATIENCE_S = 120.0
_GRACE_S = 5.0


@dataclass(frozen=True)
class Load:
    """The moved data: one float32 table of `n_bytes`, cut into `n_shards`, pushed and pulled `rounds` times in turn."""

    n_bytes: int
    n_shards: int
    rounds: int

    @property
    def sharding(self) -> Sharding:
        """Return the cut of the table."""
        return Sharding((TableSpec(TABLE, self.n_bytes // (4 * COLUMNS), COLUMNS),), self.n_shards)


class Process:
    """A child process with a pipe. The `with` block closes the pipe, which ends the process, by force if necessary."""

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the threads' locks, not the threads
        self._near, far = context.Pipe()
        self._process = context.Process(target=work, args=(far, *arguments), daemon=True)
        self._process.start()
        far.close()

    @property
    def pid(self) -> int | None:
        """The process id."""
        return self._process.pid

    def ask(self, *message: Any) -> Any:
        """Send a message, if one is given, and return the answer.

        Raises
        ------
        RuntimeError
            If the process has ended, or does not answer.
        """
        try:
            if message:
                self._near.send(message)
            if self._near.poll(PATIENCE_S):
                return self._near.recv()
        except (EOFError, OSError) as error:
            raise RuntimeError("a process of the benchmark has ended") from error
        raise RuntimeError(f"a process of the benchmark did not answer for {PATIENCE_S:g} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._near.close()
        self._process.join(_GRACE_S)
        self._process.kill()
        self._process.join()


def scheduler(pipe: Connection, key: RoleKey | None = None) -> None:
    """Run Dask's scheduler, over TLS where it has a key; send its address."""

    async def serve_forever() -> None:
        from distributed import Scheduler

        async with Scheduler(
            host="127.0.0.1", port=0, dashboard=False, dashboard_address=":0", **_secured(key)
        ) as server:
            pipe.send(server.address)
            await asyncio.to_thread(_until_closed, pipe)

    _run_configured(serve_forever)


def node(pipe: Connection, name: str, scheduler_address: str, key: RoleKey | None = None) -> None:
    """Run a node, over TLS where it has a key; send its address, then answer messages until the pipe is closed.

    ("serve", load) is answered with "ok", ("move", load, server) with the seconds of pushes and of pulls, ("rpc", load,
    server) with those of Dask's own calls.
    """

    async def answer(scratch: str) -> None:
        from distributed import Worker

        from proteus_spot.psengine.shell.dask_plugins import AgentPlugin

        plugin = AgentPlugin(name, 1, _nothing, _nothing)
        worker = Worker(
            scheduler_address,
            nthreads=1,
            name=name,
            host="127.0.0.1",
            memory_limit=0,
            plugins=(plugin,),
            dashboard=False,
            local_directory=scratch,
            security=_secured(key).get("security"),
        )
        async with worker:
            agent = plugin.agent
            assert agent is not None
            worker.handlers.update(bench_empty=_empty, bench_take=_take, bench_give=_give)
            pipe.send(worker.address)
            while (message := await asyncio.to_thread(_next, pipe)) is not None:
                what, load, *server = message
                if what == "serve":
                    serve(agent.server, load)
                    pipe.send("ok")
                elif what == "rpc":
                    pipe.send(await call_dask(worker.rpc(*server), load))
                else:
                    pipe.send(await move(agent.client, load, *server))

    with tempfile.TemporaryDirectory(prefix="proteus-node-") as scratch:
        _run_configured(partial(answer, scratch))


def _secured(key: RoleKey | None) -> dict[str, Any]:
    return {} if key is None else {"protocol": "tls", "security": dask_security(key)}


def serve(server: ShardServer, load: Load) -> None:
    """Replace the served shards by zeros."""
    table, server.stores = load.sharding.tables[0], {}
    for shard in range(load.n_shards):
        low, high = load.sharding.rows(shard, table)
        server.stores[shard] = ShardStore(shard, _EPOCH, {TABLE: np.zeros((high - low, COLUMNS), np.float32)}, 1)


async def move(client: Any, load: Load, address: str) -> tuple[list[float], list[float]]:
    """Push and pull in turn; return the seconds of each.

    A push ends when the server has acknowledged the update; the server adds it at the next read, which is not timed. A
    pull ends when the node has the full table.
    """
    sharding = load.sharding
    owners = [ShardOwner(shard, "server", address, _EPOCH) for shard in range(load.n_shards)]
    update: NDArray[np.float32] = np.ones((sharding.tables[0].n_rows, COLUMNS), np.float32)
    pushes: list[float] = []
    pulls: list[float] = []
    client.use_map(client.routes.version + 1, owners)
    for clock in range(1, load.rounds + 1):
        began = perf_counter()
        sums = under(sum_up({0: {TABLE: update}}, 1, sharding.tables), {0: 1})
        await client.flush(sharding, clock, sums)
        pushes.append(perf_counter() - began)
        for seconds in ([], pulls):
            client.use_map(client.routes.version + 1, owners)  # clears the client's cache
            began = perf_counter()
            tables = await client.read_rows(sharding, {TABLE: None}, clock, clock, True)
            seconds.append(perf_counter() - began)
            values = tables[TABLE].values
            if values.shape != update.shape or not values[0, 0] == values[-1, -1] == clock:
                raise RuntimeError(f"the server has {values[-1, -1]} after {clock} pushes of 1")
            del tables, values
    return pushes, pulls


async def call_dask(peer: Any, load: Load) -> tuple[list[float], list[float], list[float]]:
    """Return the seconds of Dask's own calls: with the array as argument, as answer, and of an empty handler."""
    from distributed.protocol.serialize import to_serialize

    update = np.ones((load.sharding.tables[0].n_rows, COLUMNS), np.float32)
    pushes: list[float] = []
    pulls: list[float] = []
    empty: list[float] = []
    for _ in range(load.rounds):
        began = perf_counter()
        await peer.bench_take(update=to_serialize(update))  # type: ignore[no-untyped-call]
        pushes.append(perf_counter() - began)
        began = perf_counter()
        table = await peer.bench_give(shape=list(update.shape))
        pulls.append(perf_counter() - began)
        if table.shape != update.shape:
            raise RuntimeError(f"Dask's handler answered {table.shape} for {update.shape}")
        began = perf_counter()
        await peer.bench_empty()
        empty.append(perf_counter() - began)
    return pushes, pulls, empty


async def _empty() -> str:
    return "ok"


async def _take(update: Any) -> str:
    return "ok" if isinstance(update, np.ndarray) else "no array"


async def _give(shape: list[int]) -> Any:
    from distributed.protocol.serialize import to_serialize

    return to_serialize(np.ones(shape, np.float32))  # type: ignore[no-untyped-call]


def _run_configured(work: Callable[[], Any]) -> None:
    import dask

    from proteus_spot.infra.nodes.main import DASK_CONFIG
    from proteus_spot.infra.nodes.malloc import retain_freed_memory

    retain_freed_memory()
    dask.config.set(DASK_CONFIG)
    asyncio.run(work())


def _next(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return None


def _until_closed(pipe: Connection) -> None:
    while _next(pipe) is not None:
        pass


def _nothing(*_: Any) -> Any:
    raise AssertionError("a node of this benchmark loads nothing")
