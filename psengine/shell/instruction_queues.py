"""Orders on their way to the nodes: each node's in order and numbered, so that one that came twice is told apart."""

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
    """One queue a node's process, delivered until the process is lost, or refuses an order.

    Parameters
    ----------
    spawn : callable
        Runs a coroutine in the background.
    refused : callable
        Is told the address that refused an order, and the error.
    """

    def __init__(
        self,
        transport: Transport,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        refused: Callable[[str, Exception], None],
    ) -> None:
        self._transport, self._spawn, self._refused = transport, spawn, refused
        self._queues: dict[str, tuple[asyncio.Queue[NodeInstruction], asyncio.Task[None]]] = {}

    def enqueue(self, order: NodeInstruction) -> None:
        """Send an order to the node's process, after those that were put before."""
        if order.address not in self._queues:
            queue: asyncio.Queue[NodeInstruction] = asyncio.Queue()
            self._queues[order.address] = queue, self._spawn(self._deliver(order.address, queue))
        self._queues[order.address][0].put_nowait(order)

    def drop(self, address: str) -> None:
        """Send nothing more to the process at `address`: it is gone."""
        found = self._queues.pop(address, None)
        if found is not None:
            found[1].cancel()

    def clear(self) -> None:
        """Begin no further delivery; whoever spawned those under way ends them."""
        self._queues.clear()

    async def _deliver(self, address: str, queue: asyncio.Queue[NodeInstruction]) -> None:
        for number in itertools.count(1):
            order = await queue.get()
            while True:
                try:
                    await self._transport.call(
                        address, "proteus_instruct", _DEADLINE_S, instruction=order, number=number
                    )
                except Unreachable as error:
                    logger.warning("order not delivered: %s", error)
                    if self._queues.get(address, (None,))[0] is not queue:
                        return  # the node is gone, and our cancellation was lost in the call
                    await asyncio.sleep(_RETRY_S)
                except Exception as error:
                    # Whatever its handler raised, sending it again is useless, and the orders behind it build on it.
                    logger.exception("%s refused an order", address)
                    self._refused(address, error)
                    return
                else:
                    break
