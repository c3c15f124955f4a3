"""The batches in flight on a node: each is worked on as soon as it may, and reported when it has ended.

While one batch reads or pushes, the kernels of another one run. Order is kept for each partition: of two batches with a
task of the same partition, the later one begins when the earlier one has ended, or, if its tasks follow those of the
earlier one, when the kernels of that one have ended; and it is reported after it.

Source: Litz (2017), 3.2 (worker threads switch between tasks).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from proteus_spot.psengine.protocol.events import BatchDone
from proteus_spot.psengine.protocol.instructions import Dispatch
from proteus_spot.psengine.rpc.transport import Unreachable
from proteus_spot.psengine.worker.routing import SupersededError

logger = logging.getLogger(__name__)

_RECALLED = "the controller has recalled the tasks"


class RecalledError(SupersededError):
    """The controller has recalled a batch that had not begun."""


@dataclass(eq=False)
class Batch:
    """A batch in flight, and what later batches of its partitions wait for.

    Attributes
    ----------
    earlier : sequence of Batch
        Those in flight that have tasks of the same partitions.
    computed : Event
        Its kernels have ended, or it was given up.
    """

    order: Dispatch
    earlier: Sequence[Batch]
    work: asyncio.Task[BatchDone] | None = None
    is_begun: bool = False
    is_recalled: bool = False
    computed: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    reported: asyncio.Event = field(default_factory=asyncio.Event)

    @cached_property
    def partitions(self) -> frozenset[int]:
        """The partitions of its tasks."""
        return frozenset(task.partition for task in self.order.tasks)

    @cached_property
    def followed(self) -> Mapping[int, tuple[int, int]]:
        """{partition: group and attempt of the task that its task follows}."""
        return {task.partition: task.follows for task in self.order.tasks if task.follows is not None}

    def follows(self, other: Batch) -> bool:
        """Return whether tasks of this batch follow those of another one."""
        group = other.order.group
        return any(self.followed.get(task.partition) == (group, task.attempt) for task in other.order.tasks)


#: Carries out a batch, and calls `NodeScheduler.computed`.
Run = Callable[[Batch], Coroutine[Any, Any, BatchDone]]


class NodeScheduler:
    """Batches of one process.

    Parameters
    ----------
    run : callable
        Carries out a batch.
    report, report_failure : callable
        Report a completed batch, and one that is given up with its error, and whether that fails the job.
    """

    def __init__(
        self,
        run: Run,
        report: Callable[[BatchDone], Awaitable[None]],
        report_failure: Callable[[Dispatch, Exception, bool], Awaitable[None]],
    ) -> None:
        self._run, self._report, self._report_failure = run, report, report_failure
        self._in_flight: list[Batch] = []
        #: {partition: group and attempt of its last task of which the kernel has ended here}.
        self._computed: dict[int, tuple[int, int]] = {}
        #: Number of the newest batch received; later instructions with a number up to it are duplicates.
        self._last_batch = 0
        #: Number of batches that wait for the end of an earlier one.
        self._waiting = 0
        self._closing = False

    def add(self, order: Dispatch) -> Coroutine[Any, Any, None] | None:
        """Return the work on a batch until it is reported, which begins now; None for a duplicate."""
        if order.batch <= self._last_batch:
            return None
        self._last_batch = order.batch
        partitions = frozenset(task.partition for task in order.tasks)
        batch = Batch(order, [other for other in self._in_flight if not other.partitions.isdisjoint(partitions)])
        self._in_flight.append(batch)
        return self._carry_out(batch)

    def computed(self, batch: Batch) -> None:
        """Note that the kernels of a batch have ended, and the states that they leave are here."""
        self._computed |= {task.partition: (batch.order.group, task.attempt) for task in batch.order.tasks}
        batch.computed.set()

    def is_awaited(self) -> bool:
        """Return whether a batch waits for the end of another one."""
        return self._waiting > 0

    def cancel_all(self) -> None:
        """Give up every batch: the job has rolled back."""
        for batch in self._in_flight:
            if batch.work is not None:
                batch.work.cancel()

    def recall(self, group: int) -> None:
        """Give up the batches of a group that follow others and have not begun."""
        for batch in self._in_flight:
            if batch.order.group == group and batch.followed and not batch.is_begun:
                batch.is_recalled = True
                if batch.work is not None:
                    batch.work.cancel()

    def close(self) -> None:
        """Report nothing more."""
        self._closing = True

    async def _carry_out(self, batch: Batch) -> None:
        batch.work = asyncio.get_running_loop().create_task(self._work(batch))
        try:
            await self._finish(batch)
        finally:
            self._in_flight.remove(batch)
            batch.work.cancel()
            batch.computed.set()
            batch.ended.set()
            batch.reported.set()
            batch.earlier = ()

    async def _work(self, batch: Batch) -> BatchDone:
        if batch.is_recalled:
            raise RecalledError(_RECALLED)
        for other in batch.earlier:
            if batch.follows(other):
                await other.computed.wait()
        self._waiting += 1
        try:
            for other in batch.earlier:
                if not batch.follows(other):
                    await other.ended.wait()
        finally:
            self._waiting -= 1
        if missing := [e for e, task in batch.followed.items() if self._computed.get(e) != task]:
            raise SupersededError(f"the tasks before those of partitions {missing} were given up")
        batch.is_begun = True
        return await self._run(batch)

    async def _finish(self, batch: Batch) -> None:
        """Wait until the batch has ended, and report it."""
        assert batch.work is not None
        order, group = batch.order, batch.order.group
        done: BatchDone | None = None
        failure: Exception | None = None
        fatal = False
        try:
            done = await batch.work
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr] # this runs in a task
                raise
            rolled_back = SupersededError("the job has rolled back")
            failure = RecalledError(_RECALLED) if batch.is_recalled else rolled_back
        except (Unreachable, SupersededError) as error:
            logger.info("clock %d is given up: %s", group, error)
            failure = error
        except Exception as error:
            logger.exception("clock %d failed", group)
            failure, fatal = error, True
        batch.computed.set()
        batch.ended.set()
        if self._closing:
            return  # an error of a kernel has replaced the cancellation of this task
        for other in () if batch.is_recalled else batch.earlier:
            await other.reported.wait()
        if done is not None:
            await self._report(done)
        elif failure is not None:
            await self._report_failure(order, failure, fatal)
