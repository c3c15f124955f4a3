"""How a node does a batch: what its micro-tasks read, their kernels on the node's threads, the sums that are pushed.

It keeps what was begun of the next batch (`ahead`). It knows no controller: an order comes in, figures of what was done go out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from psengine import reading
from psengine.ahead import Ahead, Begun, Done
from psengine.apps.base import App, ReadsRows, RowSet
from psengine.client import ParameterClient
from psengine.instructions import Dispatch
from psengine.lanes import Lanes
from psengine.model import JobConfig, TaskKey, TaskStats
from psengine.own import unchanged
from psengine.rows import Array, RowBlock
from psengine.sharding import Sharding
from psengine.updates import sum_up

#: what a node knows of the job
Job = tuple[JobConfig, App, Sharding]


class BatchRunner:
    """Runs one batch after the other.

    Parameters
    ----------
    threads : int
        Micro-tasks that run at one time.
    partition : callable
        Returns what the application prepared from a partition, reading it if it is not here.
    """

    def __init__(self, client: ParameterClient, threads: int, partition: Callable[[int], Awaitable[Any]]) -> None:
        self._client, self._partition = client, partition
        self._lanes = Lanes(threads, "kernel")
        #: the batch that was begun ahead of its order
        self._ahead: Ahead | None = None

    def close(self) -> None:
        """Begin nothing more; a kernel that runs is let run out."""
        self.drop_ahead()
        self._lanes.close()

    def drop_ahead(self) -> None:
        """Do without what was begun ahead."""
        if self._ahead is not None:
            self._ahead.drop()

    async def run(self, job: Job, order: Dispatch) -> tuple[TaskStats, ...]:
        """Do the micro-tasks of `order` and return when every server has their updates.

        Raises
        ------
        SupersededError, Unreachable
            The batch is to be given up.
        Exception
            What the application raised.
        """
        config, _, sharding = job
        ahead, self._ahead = self._ahead, None
        done = {} if ahead is None else await ahead.done_for(order, self._client.routes.version)
        rest = [task for task in order.tasks if task.partition not in done]
        if rest:
            done |= await self._do(job, order, rest)
        log = {(task.partition, task.attempt): done[task.partition].update for task in order.tasks}
        loop = asyncio.get_running_loop()
        sums = await loop.run_in_executor(self._lanes.pool, sum_up, log, config.n_partitions, sharding.tables)
        if order.goes_on:
            self._ahead = Ahead(order, self._client.routes.version, partial(self._begin_ahead, job, order, done))
        await self._client.flush(sharding, order.clock, sums, order.committed, order.goes_on)
        left = [(task, done[task.partition].left) for task in order.tasks]
        self._client.keep(order.clock, order.committed, left)
        return tuple(_stats(task, done[task.partition]) for task in order.tasks)

    async def _do(self, job: Job, order: Dispatch, tasks: Sequence[TaskKey]) -> dict[int, Done]:
        """Read what these micro-tasks of `order` want, and do them; by partition."""
        config, _, sharding = job
        data = {task.partition: await self._partition(task.partition) for task in tasks}
        wanted = await self._wanted(job, data, order.clock)
        own = {part: reading.own_of(sharding.tables, of) for part, of in wanted.items()}
        kept = {task.partition: self._client.kept(task, order.clock, own[task.partition]) for task in tasks}
        needed = reading.union_of(sharding.tables, list(wanted.values()), list(kept.values()))
        exact = config.staleness == 0
        read = await self._client.read_rows(sharding, needed, order.parent_clock, order.committed, exact, order.clock)
        return await self._lanes.start(_kernels(job, order.clock, data, wanted, own, kept, read)).results()

    async def _begin_ahead(self, job: Job, order: Dispatch, done: Mapping[int, Done]) -> Begun:
        """Read what comes after `order`, as soon as it is there, and begin the same partitions' next micro-tasks with it."""
        _, _, sharding = job
        clock = order.clock + 1
        data = {task.partition: await self._partition(task.partition) for task in order.tasks}
        wanted = await self._wanted(job, data, clock)
        own = {part: reading.own_of(sharding.tables, of) for part, of in wanted.items()}
        kept = {part: unchanged(done[part].left, own[part]) for part in data}
        needed = reading.union_of(sharding.tables, list(wanted.values()), list(kept.values()))
        read, attempt = await self._client.read_ahead(sharding, needed, order.clock)
        self._client.count_own(kept.values())
        return attempt, self._lanes.start(_kernels(job, clock, data, wanted, own, kept, read))

    async def _wanted(self, job: Job, data: Mapping[int, Any], clock: int) -> dict[int, dict[str, RowSet]]:
        """Return the rows that the micro-tasks want, by partition."""
        _, app, sharding = job
        if not isinstance(app, ReadsRows):
            return {part: {} for part in data}
        return await asyncio.get_running_loop().run_in_executor(
            self._lanes.pool,
            lambda: {part: reading.wants(app, sharding.tables, of, clock) for part, of in data.items()},
        )


def _kernels(
    job: Job,
    clock: int,
    data: Mapping[int, Any],
    wanted: Mapping[int, Mapping[str, RowSet]],
    own: Mapping[int, Mapping[str, RowSet]],
    kept: Mapping[int, Mapping[str, Array]],
    read: Mapping[str, RowBlock],
) -> dict[int, Callable[[], Done]]:
    """Return the micro-tasks by partition, as what is to be called for each; all but `read` is by partition, too."""
    _, app, sharding = job

    def kernel(part: int) -> Done:
        params = reading.given(wanted[part], kept[part], read, sharding.tables)
        began_s = perf_counter()
        work = app.run(data[part], params, clock)
        took_s = perf_counter() - began_s
        update = reading.as_delta(wanted[part], params, work.updates)
        return Done(update, reading.left_behind(own[part], params, work.updates), work, took_s)

    return {part: partial(kernel, part) for part in data}


def _stats(task: TaskKey, done: Done) -> TaskStats:
    return TaskStats(task.partition, task.attempt, done.work.loss_sum, done.work.examples, done.kernel_s)
