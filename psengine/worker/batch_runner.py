"""How a node does a batch: what its micro-tasks read, their kernels on the node's threads, the sums that are pushed.

It keeps what was begun of the next batch (`ahead`). It knows no controller: an order comes in, figures of what was done
go out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from psengine.apps.base import App, ReadsRows
from psengine.config import JobConfig
from psengine.protocol.events import TaskStats
from psengine.protocol.instructions import Dispatch, TaskKey
from psengine.tables.row_sets import Array, RowBlock, RowSet
from psengine.tables.sharding import Sharding
from psengine.worker import batch_io as reading
from psengine.worker.executor_cache import Left, unchanged
from psengine.worker.kernel_threads import KernelThreads
from psengine.worker.parameter_client import ParameterClient
from psengine.worker.push_messages import announced, sum_up, under
from psengine.worker.speculative_batch import Ahead, Begun, Kernels, MicroTaskResult, Sums

#: what a node knows of the job
Job = tuple[JobConfig, App, Sharding]
T = TypeVar("T")


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
        self._kernel_threads = KernelThreads(threads, "kernel")
        self._foresight = ThreadPoolExecutor(1, thread_name_prefix="rows")
        #: the rows that the micro-tasks of a clock will want, by partition, as soon as that is known
        self._foreseen: tuple[int, frozenset[int], asyncio.Future[dict[int, dict[str, RowSet]]]] | None = None
        #: the batch that was begun ahead of its order
        self._ahead: Ahead | None = None

    def close(self) -> None:
        """Begin nothing more; a kernel that runs is let run out."""
        self.drop_ahead()
        self._kernel_threads.close()
        self._foresight.shutdown(wait=False, cancel_futures=True)

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
        _, _, sharding = job
        done, sums = await self._kernels_of(job, order)
        leaving = {part: self._kernel_threads.pool.submit(of.leave) for part, of in done.items() if of.own}
        came = None
        if order.goes_on:
            came = asyncio.Event()
            own = {part: of.own for part, of in done.items()}
            begin = partial(self._begin_ahead, job, order, own, leaving, came)
            self._ahead = Ahead(order, self._client.routes.version, begin)
        named = under(sums, {task.partition: task.attempt for task in order.tasks})
        await self._client.flush(sharding, order.clock, named, order.committed, came)
        left = {part: of.result() if of.done() else await asyncio.wrap_future(of) for part, of in leaving.items()}
        tasks = [(task, left[task.partition]) for task in order.tasks if task.partition in left]
        self._client.keep(order.clock, order.committed, tasks, sum(of.kept_bytes for of in done.values()))
        return tuple(_stats(task, done[task.partition]) for task in order.tasks)

    async def _kernels_of(self, job: Job, order: Dispatch) -> tuple[dict[int, MicroTaskResult], Sums]:
        """Return what the micro-tasks of `order` come to, begun ahead if that fits, and the sums of their updates."""
        config, _, sharding = job
        ahead, self._ahead = self._ahead, None
        begun = None if ahead is None else await ahead.kernels_for(order, self._client.routes.version)
        done = {} if begun is None else await begun.results()
        sums = None if begun is None else begun.made()
        rest = [task for task in order.tasks if task.partition not in done]
        if rest:
            others = await self._do(job, order, rest)
            done |= await others.results()
            sums = others.made() if len(rest) == len(order.tasks) else None
        done = {task.partition: done[task.partition] for task in order.tasks}
        if sums is None:
            updates = {part: of.update for part, of in done.items()}
            sums = await self._on_threads(sum_up, updates, config.n_partitions, sharding.tables)
        return done, sums

    async def _do(self, job: Job, order: Dispatch, tasks: Sequence[TaskKey]) -> Kernels:
        """Read what these micro-tasks of `order` want, and begin them."""
        _, _, sharding = job
        data = {task.partition: await self._partition(task.partition) for task in tasks}
        wanted = await self._wanted(job, data, order.clock)
        own = {part: reading.own_of(sharding.tables, of) for part, of in wanted.items()}
        kept = {task.partition: self._client.kept(task, order.clock, own[task.partition]) for task in tasks}
        needed = reading.union_of(sharding.tables, list(wanted.values()), list(kept.values()))
        exact = order.read != "parent"
        read = await self._client.read_rows(sharding, needed, order.parent_clock, order.committed, exact, order.clock)
        here = {part: partial(_as_kept, of) for part, of in kept.items()}
        return self._start(job, order.clock, data, wanted, own, here, read)

    async def _begin_ahead(
        self,
        job: Job,
        order: Dispatch,
        before: Mapping[int, Mapping[str, RowSet]],
        leaving: Mapping[int, Future[Left]],
        came: asyncio.Event,
    ) -> Begun:
        """Read what comes after `order`, as soon as it is there, and begin the partitions' next micro-tasks with it.

        What those of `order` left of the rows of their own, which were `before`, is waited for by the kernels alone.
        `came` is set when what is read has come, or will not, and at once where it does not come before all is pushed.
        """
        _, _, sharding = job
        clock = order.clock + 1
        try:
            data = {task.partition: await self._partition(task.partition) for task in order.tasks}
            wanted = await self._wanted(job, data, clock)
            own = {part: reading.own_of(sharding.tables, of) for part, of in wanted.items()}
            kept = {part: unchanged(before[part], own[part]) for part in data}
            needed = reading.union_of(sharding.tables, list(wanted.values()), list(kept.values()))
            if not announced(sharding, needed):
                came.set()
            read, attempt = await self._client.read_ahead(sharding, needed, order.clock)
        finally:
            came.set()
        here = {part: partial(_as_left, leaving.get(part), names) for part, names in kept.items()}
        return attempt, self._start(job, clock, data, wanted, own, here, read)

    def _start(
        self,
        job: Job,
        clock: int,
        data: Mapping[int, Any],
        wanted: Mapping[int, Mapping[str, RowSet]],
        own: Mapping[int, Mapping[str, RowSet]],
        here: Mapping[int, Callable[[], Mapping[str, Array]]],
        read: Mapping[str, RowBlock],
    ) -> Kernels:
        """Begin micro-tasks; all but `read` is by partition; `here` holds the rows of its own that need not be read."""
        config, app, sharding = job

        def kernel(part: int) -> MicroTaskResult:
            kept = here[part]()
            params = reading.given(wanted[part], kept, read, sharding.tables)
            began_s = perf_counter()
            work = app.run(data[part], params, clock)
            took_s = perf_counter() - began_s
            update = reading.as_delta(wanted[part], params, work.updates)
            before, change = ({name: of[name] for name in own[part] if name in of} for of in (params, work.updates))
            leave = partial(reading.left_behind, own[part], before, change)
            return MicroTaskResult(update, own[part], leave, sum(of.nbytes for of in kept.values()), work, took_s)

        def sums(done: Mapping[int, MicroTaskResult]) -> Sums:
            return sum_up({part: of.update for part, of in done.items()}, config.n_partitions, sharding.tables)

        kernels = self._kernel_threads.start({part: partial(kernel, part) for part in data}, sums)
        self._foresee(job, data, clock + 1)
        return kernels

    async def _wanted(self, job: Job, data: Mapping[int, Any], clock: int) -> dict[int, dict[str, RowSet]]:
        """Return the rows that the micro-tasks want, by partition."""
        if not isinstance(job[1], ReadsRows):
            return {part: {} for part in data}
        if self._foreseen is not None and self._foreseen[:2] == (clock, frozenset(data)):
            return await asyncio.shield(self._foreseen[2])  # who gives up waits for it no more, and others may
        return await self._on_threads(_wants, job, data, clock)

    def _foresee(self, job: Job, data: Mapping[int, Any], clock: int) -> None:
        """Begin to ask for rows of a clock to come: when the kernels before it are done, others wait for the answer."""
        config, app, _ = job
        if (config.clocks is None or clock <= config.clocks) and isinstance(app, ReadsRows):
            future = asyncio.get_running_loop().run_in_executor(self._foresight, _wants, job, data, clock)
            future.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may be that nobody asks
            self._foreseen = clock, frozenset(data), future

    async def _on_threads(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._kernel_threads.pool, work, *arguments)


def _wants(job: Job, data: Mapping[int, Any], clock: int) -> dict[int, dict[str, RowSet]]:
    _, app, sharding = job
    return {part: reading.wants(app, sharding.tables, of, clock) for part, of in data.items()}


def _as_kept(kept: Mapping[str, Array]) -> Mapping[str, Array]:
    return kept


def _as_left(leaving: Future[Left] | None, names: Collection[str]) -> dict[str, Array]:
    """Return the rows of the tables of these names as they were left, when that is known."""
    return {name: leaving.result()[name][1] for name in names} if leaving is not None else {}


def _stats(task: TaskKey, done: MicroTaskResult) -> TaskStats:
    return TaskStats(task.partition, task.attempt, done.work.loss_sum, done.work.examples, done.kernel_s)
