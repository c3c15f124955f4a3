"""Queues of instructions to the nodes: in order, retried, and numbered so that a node recognizes duplicates."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from psengine.protocol.instructions import NodeInstruction
from psengine.rpc.transport import Transport, Unreachable

logger = logging.getLogger(__name__)

_DEADLINE_S = 5.0
_RETRY_S = 0.2


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
        self._queues: dict[str, tuple[asyncio.Queue[NodeInstruction], asyncio.Task[None]]] = {}

    def enqueue(self, instruction: NodeInstruction) -> None:
        """Send an instruction to its process, after those that were enqueued before."""
        address = instruction.address
        if address not in self._queues:
            queue: asyncio.Queue[NodeInstruction] = asyncio.Queue()
            self._queues[address] = queue, self._spawn(self._deliver(address, queue))
        self._queues[address][0].put_nowait(instruction)

    def drop(self, address: str) -> None:
        """Send nothing more to the process at `address`: it was lost."""
        found = self._queues.pop(address, None)
        if found is not None:
            found[1].cancel()

    def clear(self) -> None:
        """Start no further delivery; the owner of the spawned tasks ends those under way."""
        self._queues.clear()

    async def _deliver(self, address: str, queue: asyncio.Queue[NodeInstruction]) -> None:
        for number in itertools.count(1):
            instruction = await queue.get()
            while True:
                try:
                    await self._transport.call(
                        address, "proteus_instruct", _DEADLINE_S, instruction=instruction, number=number
                    )
                except Unreachable as error:
                    logger.warning("instruction not delivered: %s", error)
                    if self._queues.get(address, (None,))[0] is not queue:
                        return  # the node was lost, and the cancellation of this task was lost in the call
                    await asyncio.sleep(_RETRY_S)
                except Exception as error:
                    # Its handler raised: a retry is useless, and later instructions depend on this one.
                    logger.exception("%s rejected an instruction", address)
                    self._on_rejected(address, error)
                    return
                else:
                    break
