"""Nodes that exist as messages only: they answer every instruction at once, so that the controller alone takes time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

from proteus_spot.psengine.config import JobConfig, Tier
from proteus_spot.psengine.protocol.checkpoint import Checkpoint, Checkpoints
from proteus_spot.psengine.protocol.events import (
    BackedUp,
    BatchDone,
    Event,
    NodeReady,
    ShardsOpened,
    ShardsTaken,
    TaskStats,
)
from proteus_spot.psengine.protocol.instructions import (
    BackUp,
    Dispatch,
    LoadPartitions,
    NodeInstruction,
    OpenShards,
    TakeShards,
)
from proteus_spot.psengine.shell.callbacks import ControllerCallbacks
from proteus_spot.psengine.shell.controller_shell import ControllerShell
from proteus_spot.psengine.shell.dask_plugins import HELLO
from proteus_spot.psengine.telemetry.byte_counts import ReportedBytes, link

#: Seconds between two ticks of the shell itself, longer than a measurement: this module asks for them.
_NO_TICKS_S = 1e6
#: Seconds that pass with each look at the clock: whether a replication round is due is then no matter of the machine.
_LOOK_S = 1e-5
#: Rounds of the event loop without a further instruction after which none is under way.
_QUIET_ROUNDS = 3
_APP = "proteus_spot.benchmarks.papers.many_nodes.sleeping_app:Waiting"


class VirtualScheduler:
    """As much of Dask's scheduler as the controller's shell touches."""

    def __init__(self) -> None:
        self.workers: dict[str, Any] = {}
        self.handlers: dict[str, Any] = {}
        self.plugins: list[SchedulerPlugin] = []

    def add_plugin(self, plugin: SchedulerPlugin) -> None:
        self.plugins.append(plugin)

    async def remove_worker(self, address: str, *, stimulus_id: str) -> str:
        """Remove a worker, as after the loss of its process."""
        self.workers.pop(address, None)
        for plugin in self.plugins:
            plugin.remove_worker(self, address, stimulus_id=stimulus_id)  # type: ignore[arg-type]
        return "OK"


class VirtualCluster:
    """A controller with its shell, `n` nodes, and the instructions that they have received and not answered yet.

    Parameters
    ----------
    n : int
        Nodes; one in 64 is reliable.
    partitions : int
        Partitions of each node.
    staleness : int
        SSP bound of the job.
    """

    def __init__(self, n: int, partitions: int = 4, staleness: int = 0) -> None:
        self.config = JobConfig(
            "virtual",
            app=_APP,
            app_params={"table_bytes": 1 << 20, "seconds": 0.0},
            n_partitions=partitions * n,
            n_shards=n // 2,
            staleness=staleness,
            max_seconds=1e9,
            n_reliable=max(1, n // 64),
            start_patience_s=0.0,
        )
        self._n = n
        self.scheduler = VirtualScheduler()
        looks = itertools.count()
        callbacks = ControllerCallbacks(
            lambda url: {},
            lambda config, arrays, result: None,
            lambda config: None,
            lambda: 0.0,
            lambda about: None,
            lambda config, clock, shards, summary, states, carried: Checkpoint(clock, "", dict(summary)),
            lambda config: Checkpoints(),
            now_s=lambda: _LOOK_S * next(looks),
        )
        self.shell = ControllerShell(self.scheduler, callbacks, self, tick_s=_NO_TICKS_S)  # type: ignore[arg-type]
        self.inbox: list[NodeInstruction] = []
        self._bytes: dict[str, ReportedBytes] = {}
        self.received: dict[str, int] = {}

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        """Receive an instruction; it is the shell's transport."""
        del address, op, deadline_s
        instruction = message["instruction"]
        name = type(instruction).__name__
        self.received[name] = self.received.get(name, 0) + 1
        self.inbox.append(instruction)
        return "ok"

    async def start(self) -> None:
        """Let all nodes join and the job begin; return when the nodes work and the shards are where they stay."""
        self.shell.open()
        await self.shell.start(self.config.to_dict())
        for index in range(self._n):
            self.join(f"n{index:05d}", "reliable" if index < self.config.n_reliable else "transient")
        controller = self.shell.controller
        while not (controller.job.tiers.settled and controller.job.stage == 3 and controller.job.history.common):
            await self.answer(await self.instructions())
            await self.tick()

    def join(self, name: str, tier: Tier) -> None:
        """Let a node register."""
        address = f"tcp://{name}"
        hello = {"node": name, "tier": tier, "threads": 1, "code_sha256": ""}
        self.scheduler.workers[address] = SimpleNamespace(last_seen=0.0, extra={HELLO: hello})
        for plugin in self.scheduler.plugins:
            plugin.add_worker(self.scheduler, address)  # type: ignore[arg-type]

    async def tick(self) -> None:
        """Send every node's heartbeat, and let the controller look."""
        for worker in self.scheduler.workers.values():
            worker.last_seen += 1.0
        await self.shell.tick()

    async def instructions(self) -> list[NodeInstruction]:
        """Return what the nodes have received, once nothing is under way."""
        quiet, before = 0, len(self.inbox)
        while quiet < _QUIET_ROUNDS:
            await asyncio.sleep(0)
            quiet, before = quiet + 1 if len(self.inbox) == before else 0, len(self.inbox)
        received, self.inbox = self.inbox, []
        return received

    async def answer(self, instructions: list[NodeInstruction]) -> None:
        """Report every one of these instructions as carried out."""
        for event, moved in self.reports(instructions):
            await self.shell.event(event, event.address, moved)

    def reports(self, instructions: list[NodeInstruction]) -> list[tuple[Any, Mapping[str, int]]]:
        """Return what the nodes report, each with the bytes that it has moved; of its batches the first alone."""
        busy, present = set[str](), list[NodeInstruction]()
        for instruction in instructions:
            is_batch = isinstance(instruction, Dispatch)
            (self.inbox if is_batch and instruction.node in busy else present).append(instruction)
            if is_batch:
                busy.add(instruction.node)
        servers = sorted({owner.address for owner in self.shell.controller.job.shards.owners})
        moved = {"read": 1, "push": 1, **{link(address): 1 for address in servers}}
        events: list[Any] = [event for instruction in present if (event := _answer(instruction)) is not None]
        return [(event, self._bytes.setdefault(event.node, ReportedBytes()).of(moved)) for event in events]


def _answer(instruction: NodeInstruction) -> Event | None:
    node, address = instruction.node, instruction.address
    match instruction:
        case LoadPartitions(request=request, partitions=partitions):
            return NodeReady(node, address, request, partitions, 0.0)
        case OpenShards(shards=shards, epoch=epoch):
            return ShardsOpened(node, address, shards, epoch, 0.0)
        case TakeShards(shards=shards, epoch=epoch):
            return ShardsTaken(node, address, shards, epoch, 0.0)
        case BackUp(number=number, shards=shards):
            return BackedUp(node, address, number, shards, 0.0)
        case Dispatch(group=clock, tasks=tasks):
            stats = tuple(TaskStats(task.partition, task.attempt, 1.0, 1, 0.01) for task in tasks)
            return BatchDone(node, address, clock, stats, 0.0)
        case _:  # a node acts on it, and reports nothing
            return None
