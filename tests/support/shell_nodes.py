"""The controller's shell with nodes, a scheduler and a store in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import numpy as np

from proteus_spot.psengine.apps.registry import initial_shards, resolve
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.protocol.answers import StaleRead
from proteus_spot.psengine.protocol.checkpoint import Checkpoint, Checkpoints
from proteus_spot.psengine.protocol.events import BatchDone, NodeReady, ShardsOpened, TaskStats, TimerFired
from proteus_spot.psengine.protocol.instructions import Dispatch, LoadPartitions, OpenShards
from proteus_spot.psengine.protocol.moved_state import ShardState
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.shell.callbacks import ControllerCallbacks
from proteus_spot.psengine.shell.controller_shell import ControllerShell
from proteus_spot.psengine.tables.sharding import Sharding
from tests.support.agents import Counting
from tests.support.timeouts import PATIENCE

NODE, OTHER = "tcp://r", "tcp://t"


class Evaluated(Counting):
    """An application that tells the sum of its table, or fails to."""

    def __init__(self, silent: bool = False) -> None:
        super().__init__()
        self.silent = silent

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        if self.silent:
            raise ZeroDivisionError("by the user")
        return {"sum": float(params["w"].sum())}


class Slow(Counting):
    """An application that evaluates when it may."""

    may = threading.Event()

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        assert self.may.wait(5 * PATIENCE)
        return {"sum": float(params["w"].sum())}


class Odd(Counting):
    """An application whose figures are no plain numbers, and have names of ours."""

    def evaluate(self, params: Any, heldout: Any) -> dict[str, float]:
        losses: Any = np.float32(0.5)
        return {"losses": losses, "clocks": 7.0, "low": float("-inf"), "none": float("nan")}


class Scheduler:
    """As much of Dask's as the shell touches once it is open."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.workers: dict[str, Any] = {}

    async def remove_worker(self, address: str, *, stimulus_id: str) -> str:
        self.removed.append(address)
        return "OK"


class Store:
    """The blob store: fails so many times, then keeps what it is given."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.saved: list[dict[str, Any]] = []
        self.kept: Checkpoint | None = None
        self.shards: Mapping[int, Mapping[str, np.ndarray]] = {}

    def save(self, config: JobConfig, arrays: Mapping[str, np.ndarray], result: dict[str, Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("away")
        self.saved.append(dict(result))

    def keep(
        self, config: JobConfig, clock: int, shards: Mapping[int, Any], summary: Mapping[str, Any], *states: Any
    ) -> Checkpoint:
        if self.failures:
            self.failures -= 1
            raise OSError("away")
        self.kept, self.shards = Checkpoint(clock, f"clock-{clock}", dict(summary)), shards
        return self.kept


class Nodes:
    """Nodes that carry out instructions at once; the updates of `loses` tasks are left out."""

    def __init__(self) -> None:
        self.shell: ControllerShell
        self.refuses: dict[str, Exception] = {}
        self.loses = 0
        self.gathers = 0
        #: so many times more servers say that they have gone on
        self.gone_on = 0
        self.opened_at: str | None = None
        self.server = ShardServer()
        self.asked: list[str] = []

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        self.asked.append(op)
        await asyncio.sleep(0)
        if op == "proteus_gather":
            self.gathers += 1
            if self.gone_on:
                self.gone_on -= 1
                return StaleRead("shard 0 is at clock 11, clock 10 was requested")
            return await self.server.gather(**message)
        if op == "proteus_marked":
            return await self.server.marked(**message)
        if address in self.refuses:
            raise self.refuses[address]
        order, node = message["instruction"], message["instruction"].node
        match order:
            case OpenShards():
                app = resolve(order.config.app, order.config.app_params)
                sharding = Sharding(app.tables(), order.config.n_shards)
                initial = initial_shards(app, sharding, 0, order.shards)
                states = {shard: ShardState({**arrays}, 0, 0) for shard, arrays in initial.items()}
                await self.server.open(states, order.config.n_partitions, order.epoch)
                self.opened_at = None if order.checkpoint is None else order.checkpoint.name
                await self.shell.event(ShardsOpened(node, address, order.shards, order.epoch, 0.0))
            case LoadPartitions():
                await self.shell.event(NodeReady(node, address, order.request, order.partitions, 0.0))
            case Dispatch():
                for task in order.tasks:
                    if self.loses:
                        self.loses -= 1
                        continue
                    await self.server.push(
                        order.group, {0: 1}, [(task.partition, [task.attempt])], {0: [{"w": np.ones((4, 1))}]}
                    )
                stats = tuple(TaskStats(t.partition, t.attempt, 1.0, 1, 0.0) for t in order.tasks)
                await self.shell.event(BatchDone(node, address, order.group, stats, 0.0))
        return "ok"


def job(**config: Any) -> JobConfig:
    app = "tests.support.shell_nodes:Evaluated"
    given = {"app": app, "clocks": 2} | config
    return JobConfig("job", n_partitions=2, n_shards=1, start_patience_s=0.0, **given)


def story(
    body: Callable[[ControllerShell, Nodes, Scheduler], Coroutine[Any, Any, None]],
    store: Store,
    found: dict[str, Any] | None = None,
) -> None:
    async def run() -> None:
        scheduler, nodes = Scheduler(), Nodes()
        world = ControllerCallbacks(
            lambda url: {},
            store.save,
            lambda config: found,
            lambda: 0.0,
            lambda about: None,
            store.keep,
            lambda config: Checkpoints(() if store.kept is None else (store.kept,)),
        )
        nodes.shell = shell = ControllerShell(scheduler, world, nodes)  # type: ignore[arg-type]
        try:
            await body(shell, nodes, scheduler)
        finally:
            await shell.close()

    asyncio.run(run())


async def until(shell: ControllerShell, *states: str) -> dict[str, Any]:
    """Return the status once the job is in one of `states`; the ticks of an hour pass meanwhile."""
    async with asyncio.timeout(5 * PATIENCE):
        while True:
            status = await shell.status()
            if status["state"] in states:
                return status
            shell._feed(TimerFired(asyncio.get_running_loop().time() + 3600.0))
            await asyncio.sleep(0.001)


async def told_of_losses(shell: ControllerShell) -> None:
    """Wait until the controller knows of all who are gone."""
    async with asyncio.timeout(5 * PATIENCE):
        while shell._watch._lost:
            await asyncio.sleep(0.001)
