"""Dask plugins of the engine: one on each worker, one on the scheduler. They only forward calls and events.

Handlers are registered on the server objects themselves (`worker.handlers`, `scheduler.handlers`): they answer during
the whole life of the process, on its event loop, and cost one message. See `shard_server` for why they are no Dask
actors.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from distributed import Scheduler, SchedulerPlugin, Worker, WorkerPlugin
from distributed.comm.core import Comm
from distributed.core import Status

from psengine.config import Tier
from psengine.protocol.answers import PartitionData, Refusal, Rows, StoredReplicas, StoredStates, to_message
from psengine.protocol.instructions import NodeInstruction
from psengine.rpc.transport import Transport, address_of
from psengine.shell.dask_transport import NOT_THAT_PROCESS, TO, DaskTransport, pack, pack_apart, sent
from psengine.worker.agent import Loader, NodeAgent, ShardLoader, StateLoader

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

        async def instruct(instruction: NodeInstruction, number: int) -> str:
            agent.instruct(instruction, number)
            return "ok"

        async def push(**message: Any) -> Any:
            message["epochs"] = _by_shard(message["epochs"])
            message["updates"] = _by_shard(message["updates"])
            await agent.server.arrived(message["epochs"])
            return pack(to_message(agent.server.push(**message)))

        async def pull(comm: Comm, turn: int, reader: str, **message: Any) -> Status:
            request = _read_request(message)
            await agent.server.arrived(request["epochs"])
            async with agent.admission.turn(turn, reader):
                await _answer(comm, agent.server.pull(**request))
            return Status.dont_reply

        async def pull_ahead(comm: Comm, turn: int, reader: str, **message: Any) -> Status:
            answer = await agent.server.pull_ahead(**_read_request(message))
            async with agent.admission.turn(turn, reader):
                await _answer(comm, answer)
            return Status.dont_reply

        async def pull_before(comm: Comm, turn: int, reader: str, **message: Any) -> Status:
            request = _read_request(message)
            await agent.server.arrived(request["epochs"])
            answer = await agent.server.pull_before(**request)
            async with agent.admission.turn(turn, reader):
                await _answer(comm, answer)
            return Status.dont_reply

        async def _answer(comm: Comm, answer: Rows | Refusal) -> None:
            sent_as = answer.joined() if isinstance(answer, Rows) else answer
            await comm.write(await pack_apart(to_message(sent_as)))  # type: ignore[no-untyped-call]
            if agent.admission.scarce:  # waiting for the bytes to be sent costs a third of the rate
                await agent.admission.until(sent(comm))

        async def gather(epochs: dict[int, int], committed: int) -> Any:
            return await pack_apart(to_message(agent.server.gather(_by_shard(epochs), committed)))

        async def marked(epochs: dict[int, int], clock: int) -> Any:
            return await pack_apart(to_message(agent.server.marked(_by_shard(epochs), clock)))

        async def hand_over(epochs: dict[int, int], to_node: str, to_address: str, epoch: int, committed: int) -> Any:
            answer = agent.server.hand_over(_by_shard(epochs), to_node, to_address, epoch, committed)
            return await pack_apart(to_message(answer))

        async def keep(number: int, last_complete: int, states: dict[int, Any], executors: list[Any]) -> str:
            agent.shards.keep_replicas(number, last_complete, _by_shard(states), executors)
            return "ok"

        async def states(wanted: list[list[int]], is_left: bool = True) -> Any:
            if not is_left:
                await agent.host.until_left(wanted)
            return await pack_apart(to_message(StoredStates(agent.host.sent(wanted))))

        async def partition_data(partition: int) -> Any:
            return await pack_apart(to_message(PartitionData(await agent.partitions.sent(partition))))

        async def kept(shards: list[int], number: int) -> Any:
            return await pack_apart(to_message(StoredReplicas(agent.shards.replicas.get(shards, number))))

        async def add_up(**message: Any) -> Any:
            return to_message(agent.tree.hold(**message))

        async def added_up(**message: Any) -> Any:
            return to_message(await agent.tree.answer(**message))

        async def close() -> str:
            self.close_requested = True
            worker.loop.add_callback(worker.close, reason="proteus-close", executor_wait=False)
            return "ok"

        handlers: dict[str, Callable[..., Awaitable[Any]]] = {
            "proteus_instruct": instruct,
            "proteus_push": push,
            "proteus_pull": pull,
            "proteus_pull_ahead": pull_ahead,
            "proteus_pull_before": pull_before,
            "proteus_gather": gather,
            "proteus_marked": marked,
            "proteus_hand_over": hand_over,
            "proteus_keep": keep,
            "proteus_kept": kept,
            "proteus_states": states,
            "proteus_partition": partition_data,
            "proteus_add_up": add_up,
            "proteus_added_up": added_up,
            "proteus_close": close,
        }
        worker.handlers.update({op: _for_process(self._mark, handler) for op, handler in handlers.items()})

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


def _by_shard(message: dict[Any, Any]) -> dict[int, Any]:
    return {int(shard): value for shard, value in message.items()}


def _read_request(message: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a read, with shards as numbers."""
    by_shard = {key: _by_shard(message[key]) for key in ("epochs", "rows", "named") if message.get(key) is not None}
    return {**message, **by_shard}


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
            about = (node["code_sha256"], node.get("version", ""))  # version 0.1.0 does not say which it is
            self._addresses[worker] = address_of(worker, node.get("mark", ""))
            self._joined(node["node"], self._addresses[worker], node["tier"], int(node["threads"]), *about)

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        """Forward a loss."""
        del scheduler, kwargs
        self._lost(self._addresses.pop(worker, worker), f"Dask removed it ({stimulus_id.rsplit('-', 1)[0]})")
