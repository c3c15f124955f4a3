"""Agents on a transport in memory that can lose, repeat and refuse messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import UnionType
from typing import Any

import numpy as np

from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.config import JobConfig, TableSpec
from proteus_spot.psengine.protocol.answers import PartitionData, StoredStates
from proteus_spot.psengine.protocol.events import NodeReady, ShardsOpened
from proteus_spot.psengine.protocol.instructions import (
    Dispatch,
    LoadPartitions,
    OpenShards,
    ShardOwner,
    TakeShards,
    TaskKey,
    UpdateShardMap,
)
from proteus_spot.psengine.protocol.read_version import Committed
from proteus_spot.psengine.rpc.transport import Transport, Unreachable
from proteus_spot.psengine.worker.agent import NodeAgent
from tests.support.servers import at_once
from tests.support.timeouts import PATIENCE

HERE, THERE, CONTROLLER = "tcp://here", "tcp://there", "tcp://controller"


class Counting:
    """An application whose update is 1 + partition, and which checks that it reads what it should."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec("w", 4, 1, "float64"),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
        return np.zeros((rows[1] - rows[0], 1))

    def prepare(self, arrays: Any) -> float:
        return float(arrays["x"])

    def run(self, data: float, params: Any, clock: int) -> Work:
        if self.fails:
            raise ZeroDivisionError("by the user")
        assert not params["w"].flags.writeable
        return Work({"w": np.full((4, 1), 1.0 + data)}, float(params["w"].sum()), 1)


def no_shards(checkpoint: str, shard: int) -> Any:
    raise AssertionError("no checkpoint in this story")


def called(op: str, message: Mapping[str, Any]) -> str:
    """Return what a call is counted as: a read by the version that it names."""
    return type(message["version"]).__name__ if op == "proteus_read" else op


class Wires:
    """Every call, to agents by address; `spoil` may raise before or after the call took effect."""

    def __init__(self) -> None:
        self.agents: dict[str, NodeAgent] = {}
        self.reports: list[Any] = []
        self.calls: list[tuple[str, str]] = []
        #: {process: the bytes moved in its last report}
        self.moved: dict[str, dict[str, int]] = {}
        self.spoil: Callable[[str, int], str] = lambda op, n: ""
        self.arrived = asyncio.Event()

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        assert deadline_s > 0
        self.calls.append((address, called(op, message)))
        spoilt = self.spoil(called(op, message), sum(o == called(op, message) for _, o in self.calls))
        if spoilt == "lost":
            raise Unreachable(address, op, OSError("lost"))
        if op == "proteus_event":
            self.reports.append(message["event"])
            self.moved[message["process"]] = message.get("moved", {})
            self.arrived.set()
            answer: Any = "ok"
        elif op == "proteus_partition":
            answer = PartitionData(await self.agents[address].partitions.sent(message["partition"]))
        elif op == "proteus_states":
            answer = StoredStates(self.agents[address].host.sent(message["wanted"]))
        else:
            server = self.agents[address].server
            message.pop("turn", None)
            message.pop("reader", None)
            if op == "proteus_read":
                await server.until_readable(message["epochs"], message["version"])
            elif op == "proteus_push":
                await server.arrived(message["epochs"])
            answer = await getattr(server, op.removeprefix("proteus_"))(**message)
        if spoilt == "answer lost":
            raise Unreachable(address, op, OSError("answer lost"))
        return answer

    async def report(self, kind: type | UnionType) -> Any:
        async with asyncio.timeout(5 * PATIENCE):
            while True:
                found = [r for r in self.reports if isinstance(r, kind)]
                if found:
                    self.reports.remove(found[0])
                    return found[0]
                self.arrived.clear()
                await self.arrived.wait()


OWNERS = (ShardOwner(0, "here", HERE, 1), ShardOwner(1, "there", THERE, 1))


def config(app: str = "tests.support.agents:Counting", **params: Any) -> JobConfig:
    return JobConfig("job", app, params, n_partitions=4, n_shards=2, clocks=9)


def dispatch(batch: int, clock: int, tasks: list[tuple[int, int]], **more: Any) -> Dispatch:
    keys = tuple(TaskKey(*task) for task in tasks)
    fields = {"completions": 4 * (clock - 1), "committed": clock - 1, "map_version": 1, "generation": 1} | more
    return Dispatch("here", HERE, batch, clock, keys, **fields)


def story(body: Callable[[Wires, NodeAgent, NodeAgent], Coroutine[Any, Any, None]], **params: Any) -> None:
    """Run `body` on two agents; the job is known, the shards are open, partitions 0 and 1 are loaded at `here`."""

    async def run() -> None:
        wires = Wires()
        transport: Transport = wires
        here, there = (
            NodeAgent(name, address, CONTROLLER, transport, lambda url, p: {"x": np.float64(p)}, no_shards, 2)
            for name, address in (("here", HERE), ("there", THERE))
        )
        wires.agents = {HERE: here, THERE: there}
        job = config(**params)
        try:
            for agent, name, address, shard in ((here, "here", HERE, 0), (there, "there", THERE, 1)):
                agent.instruct(OpenShards(name, address, job, (shard,), 1))
                assert (await wires.report(ShardsOpened)).shards == (shard,)
            here.instruct(LoadPartitions("here", HERE, job, 1, (0, 1)))
            assert (await wires.report(NodeReady)).partitions == (0, 1)
            here.instruct(UpdateShardMap("here", HERE, 1, OWNERS, 1))
            await body(wires, here, there)
        finally:
            await asyncio.gather(here.close(), there.close())

    asyncio.run(run())


def values(agent: NodeAgent, shard: int, clock: int) -> float:
    return float(at_once(agent.server.read({shard: 1}, Committed(clock, exact=True))).shards[shard]["w"][0, 0])


class Disk:
    """A loader that fails so many times before it reads."""

    def __init__(self, failures: int) -> None:
        self.failures, self.reads = failures, 0

    def __call__(self, url: str, partition: int) -> Any:
        self.reads += 1
        if self.reads <= self.failures:
            raise FileNotFoundError(f"{url}/part-{partition:05d}.npz")
        return {"x": np.float64(partition)}


def alone(disk: Disk, body: Callable[[Wires, NodeAgent], Coroutine[Any, Any, None]]) -> None:
    """Run `body` on one agent that reads from `disk`, three times at most."""

    async def run() -> None:
        wires = Wires()
        agent = NodeAgent("here", HERE, CONTROLLER, wires, disk, no_shards, 1, read_again_s=(0.0, 0.0))
        try:
            await body(wires, agent)
        finally:
            await agent.close()

    asyncio.run(run())


def take(shard: int, under: int, epoch: int) -> TakeShards:
    """The order that moves a shard from `there` to `here`."""
    return TakeShards("here", HERE, config(), THERE, (shard,), (under,), epoch)
