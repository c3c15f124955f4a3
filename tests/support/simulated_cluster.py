"""The whole engine in one process and in virtual time: the real shell and agents, and faulty links between them.

Only Dask is simulated: registration and broken connections. Everything is determined by one seed. Under odd seeds the
servers do all work on simulated threads, and other messages arrive meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

from proteus_spot.psengine.config import JobConfig, JobError, Tier
from proteus_spot.psengine.protocol.checkpoint import KEPT, Checkpoint, Checkpoints
from proteus_spot.psengine.rpc.transport import Unreachable
from proteus_spot.psengine.server.store_work import LargeWork
from proteus_spot.psengine.shell.callbacks import ControllerCallbacks
from proteus_spot.psengine.shell.controller_shell import ControllerShell
from proteus_spot.psengine.shell.dask_plugins import HELLO, AgentPlugin
from proteus_spot.psengine.worker.agent import NodeAgent
from proteus_spot.psengine.worker.blocking_work import BlockingWork
from proteus_spot.psengine.worker.kernel_threads import Permits
from tests.support.lossy_network import Trouble, Wires
from tests.support.virtual_time import InPlace, InTurn

CONTROLLER = "sim://controller/1"
#: seconds after which Dask tells of a broken connection, and a node that was given up joins anew
BREAKS_S, AGAIN_S = 0.01, 1.0
#: seconds between heartbeats, and without an answer after which a node takes its controller for gone
BEAT_S, DEAF_S = 0.5, 30.0
#: seconds of the story's time that a node takes for what it does on its threads
KERNEL_S = 0.02
#: seconds of it that a server's thread takes for what it does
LARGE_S = 0.01


class Dask:
    """As much of Dask's scheduler as the shell asks for."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}
        self.workers: dict[str, SimpleNamespace] = {}
        self.plugin: Any = None
        self.handlers["heartbeat"] = self.heartbeat
        #: (address) of a worker that is told to close, for it was removed
        self.tell_to_close: Callable[[str], None] = lambda address: None

    async def heartbeat(self, of: str) -> str:
        if of not in self.workers:
            return "missing"
        self.workers[of].last_seen = asyncio.get_running_loop().time()
        return "ok"

    def add_plugin(self, plugin: Any) -> None:
        self.plugin = plugin

    def register(self, address: str, hello: Mapping[str, Any]) -> None:
        self.workers[address] = SimpleNamespace(extra={HELLO: dict(hello)}, last_seen=0.0)
        self.plugin.add_worker(self, address)

    async def remove_worker(self, address: str, *, stimulus_id: str) -> None:
        if self.workers.pop(address, None) is not None:
            self.plugin.remove_worker(self, address, stimulus_id=stimulus_id)
            self.tell_to_close(address)


async def in_place(work: Callable[[], Any]) -> Any:
    """Do blocking work at once, on the loop's thread."""
    return work()


async def in_a_while(work: Callable[[], Any]) -> Any:
    """Do large work of a server as its thread does: other messages arrive before and after it is done."""
    await asyncio.sleep(LARGE_S / 2)
    result = work()
    await asyncio.sleep(LARGE_S / 2)
    return result


def numbered(partition: int) -> dict[str, Any]:
    """Return the data of an application that makes all of them up from a partition's number."""
    return {"x": np.int64(partition)}


class Store:
    """The blob store: what was saved, and the checkpoints."""

    def __init__(self) -> None:
        self.model: dict[str, np.ndarray] | None = None
        self.result: dict[str, Any] | None = None
        #: Complete checkpoints, the newest first, and the names of those that are damaged.
        self.kept: tuple[Checkpoint, ...] = ()
        self.damaged: set[str] = set()
        #: What of them: "shards", "states" of partitions, or "all".
        self.damaged_in = "all"
        self.shards: dict[str, Mapping[int, Any]] = {}
        #: {checkpoint: states by partition}
        self.states: dict[str, Mapping[int, Any]] = {}

    def save(self, config: JobConfig, arrays: Mapping[str, Any], result: dict[str, Any]) -> None:
        assert self.model is None, "saved once"
        self.model, self.result = dict(arrays), result

    def keep(
        self,
        config: JobConfig,
        clock: int,
        shards: Mapping[int, Any],
        summary: Mapping[str, Any],
        states: Mapping[int, Any],
        carried: Mapping[int, str],
    ) -> Checkpoint:
        every = {**{e: self.states[checkpoint][e] for e, checkpoint in carried.items()}, **states}
        saved = Checkpoint(clock, f"clock-{clock}", dict(summary), tuple(sorted(every)))
        self.damaged.discard(saved.name)
        self.kept = (saved, *(earlier for earlier in self.kept if earlier.clock < clock))[:KEPT]
        self.states[saved.name] = every
        self.shards[saved.name] = {shard: dict(arrays) for shard, arrays in shards.items()}
        for removed in self.shards.keys() - {checkpoint.name for checkpoint in self.kept}:
            del self.shards[removed], self.states[removed]
        return saved

    def read(self, what: Mapping[str, Mapping[int, Any]], checkpoint: str, number: int) -> Any:
        if checkpoint in self.damaged and (self.damaged_in in ("all", "states" if what is self.states else "shards")):
            raise JobError(f"{checkpoint}/{number}: its content differs")
        return what[checkpoint][number]

    @property
    def newest(self) -> Checkpoint | None:
        return self.kept[0] if self.kept else None


class Node:
    """One node: a process at an address of its own, and its supervisor, which starts another when it ends."""

    def __init__(self, cluster: WiredCluster, name: str, tier: Tier) -> None:
        self.cluster, self.name, self.tier = cluster, name, tier
        self.incarnation = 0
        self.address = ""
        self.plugin: AgentPlugin | None = None

    @property
    def agent(self) -> NodeAgent:
        assert self.plugin is not None
        assert self.plugin.agent is not None
        return self.plugin.agent

    def start(self) -> None:
        """Begin a process under an address that nobody had before, and have it join."""
        self.incarnation += 1
        self.address = f"sim://{self.name}/{self.incarnation}"
        wires = self.cluster.wires
        worker: Any = SimpleNamespace(
            address=self.address, scheduler=SimpleNamespace(address=CONTROLLER), handlers={}, close=None
        )
        worker.loop = SimpleNamespace(add_callback=lambda close, **kwargs: None)
        self.plugin = AgentPlugin(
            self.name,
            1,
            lambda url, partition: self.cluster.load(partition),
            lambda checkpoint, shard: self.cluster.store.read(self.cluster.store.shards, checkpoint, shard),
            lambda worker: wires.wire(worker.address),
            state_loader=lambda checkpoint, partition: self.cluster.store.read(
                self.cluster.store.states, checkpoint, partition
            ),
        )
        self.plugin.setup(worker)
        runner = self.agent._runner
        self.agent._blocking, runner._foresight = BlockingWork(run=in_place), InPlace()
        threads = InTurn(KERNEL_S)
        runner._kernel_threads.pool = threads
        runner._kernel_threads._permits = Permits(1 << 20)  # one piece of work runs at a time anyway
        runner._kernel_threads.wait_for = threads.wait_for  # type: ignore[method-assign]
        if self.cluster.seed % 2:
            self.agent.server.large = LargeWork(in_a_while, 0)
        wires.listen(self.address, worker.handlers)
        hello = {"node": self.name, "tier": self.tier, "threads": 1, "code_sha256": ""}
        self.cluster.dask.register(self.address, hello)
        self.cluster.after(0.0, partial(self._beat, self.address))

    async def end(self) -> None:
        """The process is gone at once, and its connections break; who is cut off from it hears nothing of that."""
        address, agent, wires = self.address, self.agent, self.cluster.wires
        self.address = ""  # who is gone beats no more, and where nobody heard of its end, its silence tells
        wires.hang_up(address)
        await agent.close()
        await asyncio.sleep(BREAKS_S)
        if wires.open(address, CONTROLLER):
            await self.cluster.dask.remove_worker(address, stimulus_id="connection-broke-0")

    async def again(self, address: str) -> None:
        """The process at `address` was told to close, or finds itself given up: the node joins anew."""
        if self.address == address and self.cluster.nodes.get(self.name) is self:
            self.address = ""
            self.cluster.wires.hang_up(address)
            await self.agent.close()
            await asyncio.sleep(AGAIN_S)
            while not (self.cluster.wires.open(CONTROLLER, address) and self.cluster.wires.open(address, CONTROLLER)):
                await asyncio.sleep(AGAIN_S)
            if self.cluster.nodes.get(self.name) is self:
                self.start()

    async def _beat(self, address: str) -> None:
        wire, loop = self.cluster.wires.wire(address), asyncio.get_running_loop()
        answered_s = loop.time()
        while self.address == address and loop.time() < answered_s + DEAF_S:
            try:
                if await wire.call(CONTROLLER, "heartbeat", 4 * BEAT_S, of=address) == "missing":
                    break
                answered_s = loop.time()
            except Unreachable:
                pass
            await asyncio.sleep(BEAT_S)
        await self.again(address)


class WiredCluster:
    """A controller and nodes; `anew` them by name, and train. `load` returns a partition's arrays."""

    def __init__(
        self,
        seed: int,
        trouble: Trouble,
        load: Callable[[int], dict[str, Any]] = numbered,
        heldout: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.load, self.seed = load, seed
        self.dice = random.Random(seed)
        self.wires = Wires(self.dice, trouble)
        self.dask, self.store = Dask(), Store()
        self.nodes: dict[str, Node] = {}
        #: what was raised in the background
        self.faults: list[BaseException] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._world = ControllerCallbacks(
            read_heldout=lambda url: heldout,
            save=self.store.save,
            find_finished=lambda config: None,
            wall_s=lambda: 0.0,
            report_notice=lambda about: None,
            save_checkpoint=self.store.keep,
            find_checkpoints=lambda config: Checkpoints(self.store.kept),
        )
        self.shell = self._shell()

    def _shell(self) -> ControllerShell:
        return ControllerShell(self.dask, self._world, self.wires.wire(CONTROLLER))  # type: ignore[arg-type]

    def open(self) -> None:
        """Begin the controller's process; needs a running loop."""
        self.shell.open()
        self.dask.tell_to_close = self._tell_to_close
        self.wires.listen(CONTROLLER, self.dask.handlers)

    def start(self, name: str, tier: Tier = "transient") -> None:
        """Start a node of a new name."""
        self.nodes[name] = Node(self, name, tier)
        self.nodes[name].start()

    async def kill(self, name: str) -> None:
        """A node is gone for good, without a word."""
        await self.nodes.pop(name).end()

    async def lose_controller(self, config: JobConfig) -> None:
        """The controller and Dask's scheduler are gone; others take their place, and are told of the job."""
        self.wires.hang_up(CONTROLLER)
        await self.shell.close()
        await asyncio.sleep(AGAIN_S)
        self.dask = Dask()
        self.shell = self._shell()
        self.open()
        await self.shell.start(config.to_dict())

    async def close(self) -> None:
        """End every process."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for node in self.nodes.values():
            self.wires.hang_up(node.address)
            await node.agent.close()
        await self.shell.close()

    def after(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        """Do something in a while, unless the story is over by then."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            await act()

        task = asyncio.get_running_loop().create_task(wait())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.faults.append(error)

    def later(self, seconds: float, call: Any, *arguments: Any) -> None:
        asyncio.get_running_loop().call_later(seconds, call, *arguments)

    def _tell_to_close(self, address: str) -> None:
        for node in self.nodes.values():
            if node.address == address and self.wires.open(CONTROLLER, address):
                self.after(self.wires.delay_s(), partial(node.again, address))
