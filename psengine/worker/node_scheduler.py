"""The batches in flight on a node: each is worked on as soon as it may, and reported when it has ended.

While one batch reads or pushes, the kernels of another one run. Order is kept for each executor: of two batches with a
task of the same executor, the later one begins when the earlier one has ended, and is reported after it.

Source: Litz (2017), 3.2 (worker threads switch between micro-tasks).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from psengine.protocol.events import BatchDone
from psengine.protocol.instructions import Dispatch
from psengine.rpc.transport import Unreachable
from psengine.worker.routing import SupersededError

logger = logging.getLogger(__name__)

#: Carries out a batch; None: another node reports it.
Run = Callable[[Dispatch], Coroutine[Any, Any, BatchDone | None]]


@dataclass(eq=False)
class _Batch:
    """A batch in flight, and what later batches of its executors wait for."""

    order: Dispatch
    executors: frozenset[int]
    work: asyncio.Task[BatchDone | None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    reported: asyncio.Event = field(default_factory=asyncio.Event)


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
        self._in_flight: list[_Batch] = []
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
        batch = _Batch(order, frozenset(task.partition for task in order.tasks))
        earlier = [other for other in self._in_flight if not other.executors.isdisjoint(batch.executors)]
        self._in_flight.append(batch)
        return self._carry_out(batch, earlier)

    def is_awaited(self) -> bool:
        """Return whether a batch waits for the end of another one."""
        return self._waiting > 0

    def cancel_all(self) -> None:
        """Give up every batch: the job has rolled back."""
        for batch in self._in_flight:
            if batch.work is not None:
                batch.work.cancel()

    def close(self) -> None:
        """Report nothing more."""
        self._closing = True

    async def _carry_out(self, batch: _Batch, earlier: list[_Batch]) -> None:
        batch.work = asyncio.get_running_loop().create_task(self._work(batch, earlier))
        try:
            await self._finish(batch, earlier)
        finally:
            self._in_flight.remove(batch)
            batch.work.cancel()
            batch.ended.set()
            batch.reported.set()

    async def _work(self, batch: _Batch, earlier: list[_Batch]) -> BatchDone | None:
        self._waiting += 1
        try:
            for other in earlier:
                await other.ended.wait()
        finally:
            self._waiting -= 1
        return await self._run(batch.order)

    async def _finish(self, batch: _Batch, earlier: list[_Batch]) -> None:
        """Wait until the batch has ended, and report it."""
        assert batch.work is not None
        order, clock = batch.order, batch.order.clock
        done: BatchDone | None = None
        failure: Exception | None = None
        fatal = False
        try:
            done = await batch.work
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr] # this runs in a task
                raise
            failure = SupersededError("the job has rolled back")
        except (Unreachable, SupersededError) as error:
            logger.info("clock %d is given up: %s", clock, error)
            failure = error
        except Exception as error:
            logger.exception("clock %d failed", clock)
            failure, fatal = error, True
        batch.ended.set()
        if self._closing:
            return  # an error of a kernel has replaced the cancellation of this task
        for other in earlier:
            await other.reported.wait()
        if done is not None:
            await self._report(done)
        elif failure is not None:
            await self._report_failure(order, failure, fatal)
