"""Queues of instructions to the nodes: in order, retried, and numbered so that a node recognizes duplicates."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from proteus_spot.psengine.protocol.instructions import NodeInstruction, UpdateShardMap
from proteus_spot.psengine.rpc.transport import Transport, Unreachable

logger = logging.getLogger(__name__)

_DEADLINE_S = 5.0
_RETRY_S = 0.2


class _Queue:
    """Instructions that wait for delivery to one process."""

    def __init__(self) -> None:
        self.waiting: deque[NodeInstruction] = deque()
        self.filled = asyncio.Event()
        self.delivery: asyncio.Task[None] | None = None


class InstructionQueues:
    """One queue per process of a node, delivered until the process is lost, or rejects an instruction.

    Parameters
    ----------
    spawn : callable
        Runs a coroutine in the background.
    on_rejected : callable
        Called with the address that rejected an instruction, and the error.
    """

    def __init__(
        self,
        transport: Transport,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        on_rejected: Callable[[str, Exception], None],
    ) -> None:
        self._transport, self._spawn, self._on_rejected = transport, spawn, on_rejected
        self._queues: dict[str, _Queue] = {}

    def enqueue(self, instruction: NodeInstruction) -> None:
        """Send an instruction to its process, after those that were enqueued before.

        Of maps that wait one behind the other the newest is sent alone.
        """
        address = instruction.address
        queue = self._queues.get(address)
        if queue is None:
            queue = self._queues[address] = _Queue()
            queue.delivery = self._spawn(self._deliver(address, queue))
        waiting = queue.waiting
        if isinstance(instruction, UpdateShardMap) and waiting and isinstance(waiting[-1], UpdateShardMap):
            waiting.pop()
        waiting.append(instruction)
        queue.filled.set()

    def drop(self, address: str) -> None:
        """Send nothing more to the process at `address`: it was lost."""
        found = self._queues.pop(address, None)
        if found is not None and found.delivery is not None:
            found.delivery.cancel()

    def clear(self) -> None:
        """Start no further delivery; the owner of the spawned tasks ends those under way."""
        self._queues.clear()

    async def _deliver(self, address: str, queue: _Queue) -> None:
        for number in itertools.count(1):
            while not queue.waiting:
                queue.filled.clear()
                await queue.filled.wait()
            instruction = queue.waiting.popleft()
            while True:
                try:
                    await self._transport.call(
                        address, "proteus_instruct", _DEADLINE_S, instruction=instruction, number=number
                    )
                except Unreachable as error:
                    logger.warning("instruction not delivered: %s", error)
                    if self._queues.get(address) is not queue:
                        return  # the node was lost, and the cancellation of this task was lost in the call
                    await asyncio.sleep(_RETRY_S)
                except Exception as error:
                    # Its handler raised: a retry is useless, and later instructions depend on this one.
                    logger.exception("%s rejected an instruction", address)
                    self._on_rejected(address, error)
                    return
                else:
                    break
