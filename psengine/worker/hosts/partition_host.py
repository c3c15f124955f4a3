"""The input partitions of a node, as the application has prepared them, and how they come here.

A node that joins is sent prepared partitions by the nodes that have them in memory. Where that fails, and where the
node that had them is about to leave, they are read from storage and prepared again.

Source: Litz (2017), 3.2 (input is sent from memory when scaling out, and loaded again when scaling in).
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.rpc.transport import Transfers, Unreachable
from proteus_spot.psengine.telemetry.byte_counts import count_moved

logger = logging.getLogger(__name__)

#: Seconds for a partition to be sent.
_DEADLINE_S = 60.0

#: A pickle, and the buffers of its arrays, each with whether it is read-only.
Pickled = tuple[bytes, Sequence[tuple[NDArray[np.uint8], bool]]]


class PartitionHost:
    """Partitions of one process.

    Parameters
    ----------
    read : callable
        Reads a partition from storage, and prepares it.
    off_loop : callable
        Does work off the event loop.
    moved : Counter
        Bytes moved by kind; it is added to.
    """

    def __init__(
        self,
        transfers: Transfers,
        read: Callable[[int], Awaitable[Any]],
        off_loop: Callable[..., Awaitable[Any]],
        moved: Counter[str],
    ) -> None:
        self._transfers, self._read, self._off_loop, self._moved = transfers, read, off_loop, moved
        #: {partition: the data that the application prepared}.
        self.data: dict[int, Any] = {}
        #: {partition: address of a process that has it in memory}.
        self.sources: Mapping[int, str] = {}
        self.loading: dict[int, asyncio.Task[Any]] = {}

    async def get(self, partition: int) -> Any:
        """Return the data of a partition, loading it if it is absent; raises what reading raises."""
        if partition in self.data:
            return self.data[partition]
        if partition not in self.loading:
            self.loading[partition] = asyncio.get_running_loop().create_task(self._load(partition))
            self.loading[partition].add_done_callback(partial(self._loaded, partition))
        return await asyncio.shield(self.loading[partition])  # a caller that is cancelled leaves it to others

    def _loaded(self, partition: int, load: asyncio.Task[Any]) -> None:
        del self.loading[partition]
        if not load.cancelled() and load.exception() is None:
            self.data[partition] = load.result()

    def drop_others(self, wanted: Collection[int]) -> list[int]:
        """Drop the partitions that are not `wanted`, and return them; a batch that works on one has it until then."""
        dropped = [partition for partition in self.data if partition not in wanted]
        for partition in dropped:
            del self.data[partition]
        return dropped

    async def sent(self, partition: int) -> Pickled | None:
        """Return a partition to be sent; None if it is not here, or cannot be pickled."""
        if partition not in self.data:
            return None
        try:
            pickled: Pickled = await self._off_loop(to_message, self.data[partition])
        except Exception as error:  # noqa: BLE001 - whatever an object of the application raises
            logger.info("partition %d is not sent: %s", partition, error)
            return None
        return pickled

    async def _load(self, partition: int) -> Any:
        address = self.sources.get(partition)
        if address is not None:
            try:
                return await self._receive(partition, address)
            except Unreachable as error:
                logger.info("partition %d is read from storage: %s", partition, error)
            except Exception as error:
                logger.warning("partition %d is read from storage", partition, exc_info=error)
        return await self._read(partition)

    async def _receive(self, partition: int, address: str) -> Any:
        answer = await self._transfers.call(
            address, "proteus_partition", _DEADLINE_S, 0, again=True, partition=partition
        )
        pickled: Pickled | None = answer.pickled
        if pickled is None:
            raise Unreachable(address, "proteus_partition", LookupError("it does not send the partition"))
        n_bytes = len(pickled[0]) + sum(buffer.nbytes for buffer, _ in pickled[1])
        count_moved(self._moved, "input", address, n_bytes)
        return await self._off_loop(from_message, pickled)


def to_message(data: Any) -> Pickled:
    """Return prepared data as a pickle whose arrays are apart, without a copy of them."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(data, protocol=5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    return head, [(np.asarray(view), view.readonly) for view in raw]


def from_message(pickled: Pickled) -> Any:
    """Return the data of which `to_message` returned this; arrays are read-only if they were."""
    head, parts = pickled
    buffers = []
    for array, readonly in parts:
        view = (array if array.flags.writeable else array.copy()).data
        buffers.append(view.toreadonly() if readonly else view)
    return pickle.loads(head, buffers=buffers)
