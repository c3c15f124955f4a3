"""A batch that a node begins ahead of its order: the way from one bulk-synchronous group to the next.

Between two groups lie a push, a report, a dispatch and a read, one after the other. A node that sends its updates
therefore requests the next group at the same moment. The servers answer when they have the updates of all partitions,
and the node begins its next tasks with the answer, while the controller processes the reports and sends its
orders. Only a push and a read are on the critical path.

No update leaves the node before the order arrives. The order names the attempt under which the controller counts the
group before. If the rows that were read are of other attempts, or the map has changed, what was begun is dropped, and
the batch runs as ordered. Tasks that other nodes have now are dropped individually.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proteus_spot.psengine.protocol.instructions import Dispatch, TaskKey
from proteus_spot.psengine.tables.row_sets import RowBlock, Wanted
from proteus_spot.psengine.tables.sharding import Arrays
from proteus_spot.psengine.tables.tree_sum import Delta, Subtree
from proteus_spot.psengine.worker.kernel_threads import KernelBatch


@dataclass(frozen=True)
class TaskResult:
    """The result of a task.

    Attributes
    ----------
    update : what it adds to the tables on the servers.
    state : the state of its partition after it; None if it has none.
    kept_bytes : size of the state that it began with.
    result : what its partition returned for the driver.
    kernel_s : how long its kernel took.
    read : of a task that reads rows: those that its partition has named, and what was read.
    """

    update: Delta
    state: Arrays | None
    kept_bytes: int
    result: Any
    loss_sum: float
    examples: int
    kernel_s: float
    read: tuple[Wanted, Mapping[str, RowBlock]] | None = None


#: Result of a withdrawn task.
NOTHING_DONE = TaskResult({}, None, 0, None, 0.0, 0, 0.0)

#: Of blocks of partitions.
Sums = list[tuple[Subtree, Delta]]
#: The tasks of a batch, by partition, and the sums of their updates.
Kernels = KernelBatch[int, TaskResult, Sums]
#: The attempt of the updates that were read, and the tasks under way.
Begun = tuple[int, Kernels]


class Ahead:
    """The tasks of the group after `order`, begun.

    Parameters
    ----------
    order : Dispatch
        What the node has just done; the same partitions are worked on.
    map_version : int
        Of the map that the node has.
    begin : callable
        Reads and starts the kernels. If it raises, nothing is begun ahead.
    """

    def __init__(self, order: Dispatch, map_version: int, begin: Callable[[], Awaitable[Begun]]) -> None:
        self._group, self._generation, self._map_version = order.group + 1, order.generation, map_version
        self._attempts = {task.partition: task.attempt for task in order.tasks}
        self._task = asyncio.get_running_loop().create_task(_begun(begin))

    async def kernels_for(self, order: Dispatch, map_version: int) -> Kernels | None:
        """Return the tasks wanted for `order`, once they are begun; None if what was begun does not fit."""
        asked = [task.partition for task in order.tasks if self._begins_with(task)]
        mine = (self._group, self._generation, self._map_version)
        if not asked or not order.completed_by or mine != (order.group, order.generation, map_version):
            self.drop()
            return None
        begun = await self._task
        if begun is None or begun[0] != order.completed_by:
            self.drop()
            return None
        begun[1].want(asked)
        return begun[1]

    def _begins_with(self, task: TaskKey) -> bool:
        """Return whether a task was begun with the state that it is to begin with."""
        attempt = None if task.withdrawn or task.args is not None else self._attempts.get(task.partition)
        if attempt is None or task.state is None:
            return attempt is not None
        return (task.state.group, task.state.attempt) == (self._group - 1, attempt)

    def drop(self) -> None:
        """Drop it: no further task of it begins."""
        self._task.cancel()
        if self._task.done() and not self._task.cancelled():
            begun = self._task.result()
            if begun is not None:
                begun[1].want(())


async def _begun(begin: Callable[[], Awaitable[Begun]]) -> Begun | None:
    try:
        return await begin()
    except Exception:  # noqa: BLE001 - a server that is gone, an application that raises: the order will show which
        return None
