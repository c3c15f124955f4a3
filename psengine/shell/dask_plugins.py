"""Dask plugins of the engine: one on each worker, one on the scheduler. They only forward calls and events.

Handlers are registered on the server objects themselves (`worker.handlers`, `scheduler.handlers`): they answer during
the whole life of the process, on its event loop, and cost one message. See `shard_server` for why they are no Dask
actors.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from distributed import Scheduler, SchedulerPlugin, Worker, WorkerPlugin
from distributed.comm.core import Comm
from distributed.core import Status

from proteus_spot.psengine.config import Tier
from proteus_spot.psengine.protocol.answers import PartitionData, Rows, StoredReplicas, StoredStates, to_message
from proteus_spot.psengine.protocol.instructions import NodeInstruction
from proteus_spot.psengine.protocol.read_version import ReadVersion
from proteus_spot.psengine.rpc.transport import Transport, address_of
from proteus_spot.psengine.shell.dask_transport import NOT_THAT_PROCESS, TO, DaskTransport, pack, pack_apart, sent
from proteus_spot.psengine.worker.agent import Loader, NodeAgent, ShardLoader, StateLoader

#: Key of the startup information that a worker sends when it registers.
HELLO = "proteus"


def hello(
    node: str, tier: Tier, threads: int, code_sha256: str = "", version: str = "", mark: str = ""
) -> dict[str, Callable[[Worker], dict[str, Any]]]:
    """Return the `startup_information` by which the scheduler's plugin recognizes a node.

    `mark` is that of its process (see `rpc.transport`), as its `AgentPlugin` has it.
    """
    about = {"node": node, "tier": tier, "threads": threads, "code_sha256": code_sha256, "version": version}
    about["mark"] = mark
    return {HELLO: lambda _: about}


class AgentPlugin(WorkerPlugin):
    """Hosts the node's agent in its Dask worker.

    `close_requested` is set when the controller ends the node; `fault` is the line of the fault that ended the agent.

    `transport` creates the worker's transport to its peers. `mark` is that of its process (see `rpc.transport`).
    """

    name = "proteus-agent"

    def __init__(
        self,
        node: str,
        threads: int,
        loader: Loader,
        shard_loader: ShardLoader,
        transport: Callable[[Worker], Transport] = DaskTransport,
        mark: str = "",
        state_loader: StateLoader | None = None,
    ) -> None:
        self._node, self._threads, self._loader, self._shard_loader = node, threads, loader, shard_loader
        self._transport, self._mark, self._state_loader = transport, mark, state_loader
        self.agent: NodeAgent | None = None
        self.close_requested = False
        self.fault = ""

    def setup(self, worker: Worker) -> None:
        """Create the agent and register its handlers."""

        def end(line: str) -> None:
            self.fault = line
            worker.loop.add_callback(worker.close, reason="proteus-fault", executor_wait=False)

        agent = NodeAgent(
            self._node,
            address_of(worker.address, self._mark),
            worker.scheduler.address,
            self._transport(worker),
            self._loader,
            self._shard_loader,
            self._threads,
            on_failed=end,
            state_loader=self._state_loader,
        )
        self.agent = agent

        server, admission, shards = agent.server, agent.admission, agent.shards

        async def instruct(instruction: NodeInstruction, number: int) -> str:
            agent.instruct(instruction, number)
            return "ok"

        async def push(epochs: dict[int, int], **message: Any) -> Any:
            await server.arrived(epochs)
            return pack(to_message(await server.push(epochs=epochs, **message)))

        async def read(
            comm: Comm, turn: int, reader: str, epochs: dict[int, int], version: ReadVersion, **rows: Any
        ) -> Status:
            await server.until_readable(epochs, version)
            async with admission.turn(turn, reader):
                answer = await server.read(epochs, version, **rows)
                sent_as = answer.joined() if isinstance(answer, Rows) else answer
                await comm.write(await pack_apart(to_message(sent_as)))  # type: ignore[no-untyped-call]
                if admission.scarce:  # waiting for the bytes to be sent costs a third of the rate
                    await admission.until(sent(comm))
            return Status.dont_reply

        async def store_backup(**message: Any) -> str:
            shards.keep_replicas(**message)
            return "ok"

        async def states(wanted: list[list[int]], is_left: bool = True) -> StoredStates:
            if not is_left:
                await agent.host.until_left(wanted)
            return StoredStates(agent.host.sent(wanted))

        async def close() -> str:
            self.close_requested = True
            worker.loop.add_callback(worker.close, reason="proteus-close", executor_wait=False)
            return "ok"

        async def partition(partition: int) -> PartitionData:
            return PartitionData(await agent.partitions.sent(partition))

        handlers: dict[str, Callable[..., Awaitable[Any]]] = {
            "instruct": instruct,
            "push": push,
            "read": read,
            "store_backup": store_backup,
            "close": close,
            "partition": _answering(partition),
            "gather": _answering(server.gather),
            "marked": _answering(server.marked),
            "hand_over": _answering(server.hand_over),
            "states": _answering(states),
            "backups": _answering(lambda shards, number: StoredReplicas(agent.shards.replicas.get(shards, number))),
        }
        worker.handlers.update({f"proteus_{op}": _for_process(self._mark, handle) for op, handle in handlers.items()})

    async def teardown(self, worker: Worker) -> None:
        """End the agent's background work."""
        del worker
        if self.agent is not None:
            await self.agent.close()


def _for_process(mark: str, handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return a handler that refuses messages for the process that listened here before this one."""

    @functools.wraps(handler)  # Dask looks at a handler's parameters
    async def checked(*args: Any, **message: Any) -> Any:
        if message.pop(TO, "") != mark:
            return NOT_THAT_PROCESS
        return await handler(*args, **message)

    return checked


def _answering(method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return a handler that sends what a method, or a coroutine function, answers."""

    async def answer(**message: Any) -> Any:
        found = method(**message)
        return await pack_apart(to_message(await found if inspect.isawaitable(found) else found))

    return answer


class MembershipPlugin(SchedulerPlugin):
    """Reports nodes that registered and workers that were lost (6 ms after a SIGKILL)."""

    name = "proteus-membership"

    def __init__(
        self, joined: Callable[[str, str, Tier, int, str, str], None], lost: Callable[[str, str], None]
    ) -> None:
        self._joined, self._lost = joined, lost
        #: {endpoint of a worker: address of the process that registered there}.
        self._addresses: dict[str, str] = {}

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Forward a join; other workers have no such startup information and are ignored."""
        node = scheduler.workers[worker].extra.get(HELLO)
        if node:
            about = (node["code_sha256"], node.get("version", ""))  # a program that says none is refused in words
            self._addresses[worker] = address_of(worker, node.get("mark", ""))
            self._joined(node["node"], self._addresses[worker], node["tier"], int(node["threads"]), *about)

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        """Forward a loss."""
        del scheduler, kwargs
        self._lost(self._addresses.pop(worker, worker), f"Dask removed it ({stimulus_id.rsplit('-', 1)[0]})")
