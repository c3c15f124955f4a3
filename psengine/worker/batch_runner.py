"""Execution of a batch: the rows that its tasks read, their kernels on the node's threads, the sums to push.

It keeps what was begun of the next batch (`ahead`). It has no connection to the controller: it is passed an order, and
returns the figures to report.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from proteus_spot.psengine.apps.base import Application
from proteus_spot.psengine.apps.residents import Resident, claimed_rows
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.protocol.events import TaskStats
from proteus_spot.psengine.protocol.instructions import Dispatch, TaskKey
from proteus_spot.psengine.protocol.moved_state import PartitionState
from proteus_spot.psengine.rpc.cancellation import raising_plainly
from proteus_spot.psengine.tables.row_sets import Array, RowBlock, RowSet, Wanted, same
from proteus_spot.psengine.tables.sharding import Arrays, Sharding
from proteus_spot.psengine.worker.hosts.partition_states import PartitionStates
from proteus_spot.psengine.worker.kernel_threads import KernelThreads
from proteus_spot.psengine.worker.parameter_client import ParameterClient
from proteus_spot.psengine.worker.routing import SupersededError
from proteus_spot.psengine.worker.shard_messages import sum_up, under
from proteus_spot.psengine.worker.speculative_batch import NOTHING_DONE, Ahead, Begun, Kernels, Sums, TaskResult
from proteus_spot.psengine.worker.task_parameters import (
    TaskParameters,
    WrittenRows,
    checked_reads,
    fewer_named,
    pushed,
    union_of,
)

#: A node's data about the job; the sharding is of the tables on the servers.
Job = tuple[JobConfig, Application, Sharding]
#: Reads rows of tables from the servers, for some partitions.
Read = Callable[[Wanted, Collection[int]], Coroutine[Any, Any, Mapping[str, RowBlock]]]
#: Rows that tasks on this node have written, by partition of the task that reads them next.
HandedOver = Mapping[int, WrittenRows]
#: Reads the sum of what some partitions have added to a table; None if the servers do not keep it.
ReadSum = Callable[[str, tuple[int, ...]], Coroutine[Any, Any, Array | None]]
T = TypeVar("T")
#: No table of which more rows are read than the tasks have named.
_ALL_NAMED: Mapping[str, RowSet] = MappingProxyType({})


@dataclass(frozen=True)
class _Assigned:
    """What a task runs on: its `Resident`, the state it begins with (None: the first one), and its arguments."""

    resident: Resident
    before: Arrays | None
    args: Any


class BatchRunner:
    """Runs batches, several of them in flight.

    Parameters
    ----------
    threads : int
        Tasks that run at one time.
    resident : callable
        Returns the `Resident` of a partition, reading the partition if it is absent.
    states : PartitionStates
        States of partitions on this node.
    find_states : callable
        Returns the states that tasks begin with, from this node or another one.
    """

    def __init__(
        self,
        client: ParameterClient,
        threads: int,
        resident: Callable[[int], Awaitable[Resident]],
        states: PartitionStates,
        find_states: Callable[[Sequence[TaskKey]], Awaitable[dict[int, Arrays | None]]],
    ) -> None:
        self._client, self._resident, self._states, self._find_states = client, resident, states, find_states
        self._kernel_threads = KernelThreads(threads, "kernel")
        self._foresight = ThreadPoolExecutor(1, thread_name_prefix="rows")
        #: {partitions: a group, and the rows that their tasks of it want, by partition}.
        self._foreseen: dict[frozenset[int], tuple[int, asyncio.Future[dict[int, Wanted]]]] = {}
        #: The batch that was begun ahead of its order.
        self._ahead: Ahead | None = None
        #: Reads that running tasks wait for.
        self._task_reads: set[asyncio.Task[Any]] = set()
        #: {partition: the group for which rows of own tables were last reported, and these rows}.
        self._reported_rows: dict[int, tuple[int, dict[str, RowSet]]] = {}
        #: {(generation, group, partition): rows of the last batches that read rows, for their next reader}.
        self._written: dict[tuple[int, int, int], WrittenRows] = {}

    def close(self) -> None:
        """Begin nothing more; a running kernel is completed."""
        self.drop_ahead()
        self._kernel_threads.close()
        self._foresight.shutdown(wait=False, cancel_futures=True)

    def drop_ahead(self) -> None:
        """Drop what was begun ahead."""
        if self._ahead is not None:
            self._ahead.drop()

    def cancel_reads(self) -> None:
        """Cancel the reads that running tasks wait for: the job has rolled back."""
        for task in list(self._task_reads):
            task.cancel()

    async def run(self, job: Job, order: Dispatch, on_computed: Callable[[], None]) -> tuple[TaskStats, ...]:
        """Run the tasks of `order`, and return what is reported of them when every server has their updates.

        Parameters
        ----------
        on_computed : callable
            Called when the kernels have ended, and the states that they leave are in `states`.

        Raises
        ------
        SupersededError, Unreachable
            The batch is to be given up.
        Exception
            What the application raised.
        """
        _, _, sharding = job
        handed = self._handed_over(order)
        done, sums = await self._kernels_of(job, order, handed)
        self._states.drop_before(order.committed)
        for task in order.tasks:
            state = done[task.partition].state
            if state is not None:
                self._states.put(PartitionState(task.partition, order.group, task.attempt, state))
        stats = tuple(self._stats(order.group, task, done[task.partition]) for task in order.tasks)
        named = under(sums, {task.partition: task.attempt for task in order.tasks})
        is_pushed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if order.read == "rows":
            self._written |= {
                (order.generation, order.group, part): WrittenRows(*finished.read, finished.update, is_pushed)
                for part, finished in done.items()
                if finished.read is not None
            }
        on_computed()
        if order.goes_on:
            self.drop_ahead()  # of another batch in flight
            self._ahead = Ahead(order, self._client.routes.version, partial(self._begin_ahead, job, order, done))
        try:
            await pushed(handed.values())
            await self._client.flush(sharding, order.group, named, order.committed)
            is_pushed.set_result(True)
        finally:
            if not is_pushed.done():
                is_pushed.set_result(False)
        self._client.moved["own"] += sum(finished.kept_bytes for finished in done.values())
        return stats

    def _handed_over(self, order: Dispatch) -> HandedOver:
        """Return the rows that tasks of this node wrote and tasks of `order` read next, by partition of the reader."""
        found = {
            task.partition: self._written.pop((order.generation, *task.written_by), None)
            for task in order.tasks
            if task.written_by is not None
        }
        self._written = {key: rows for key, rows in self._written.items() if key[1] >= order.group}
        return {part: rows for part, rows in found.items() if rows is not None}

    async def _kernels_of(self, job: Job, order: Dispatch, handed: HandedOver) -> tuple[dict[int, TaskResult], Sums]:
        """Return the results of the tasks of `order`, begun ahead if that fits, and the sums of their updates."""
        config, _, sharding = job
        ahead, self._ahead = self._ahead, None
        begun = None if ahead is None else await ahead.kernels_for(order, self._client.routes.version)
        done: dict[int, TaskResult] = {}
        attempts = {task.partition: task.attempt for task in order.tasks}
        if begun is not None:
            begun.attempts.update(attempts)
            # While these kernels run, the states of partitions that have moved here are sent.
            states = self._find_states([task for task in order.tasks if not task.withdrawn])
            done, _ = await asyncio.gather(begun.results(), states)
        apart = order.read == "rows" or order.apart
        # What was begun ahead was not begun for a group that is not sealed.
        sums = None if begun is None or len(done) < len(order.tasks) or apart else begun.made()
        done |= {task.partition: NOTHING_DONE for task in order.tasks if task.withdrawn}
        rest = [task for task in order.tasks if task.partition not in done]
        if rest:
            others = await self._do(job, order, rest, handed)
            others.attempts.update(attempts)
            done |= await others.results()
            sums = others.made() if len(rest) == len(order.tasks) else None
        done = {task.partition: done[task.partition] for task in order.tasks}
        if sums is None:
            updates = {part: finished.update for part, finished in done.items()}
            sums = await self._on_threads(sum_up, updates, config.n_partitions, sharding.tables, apart)
        return done, sums

    async def _do(self, job: Job, order: Dispatch, tasks: Sequence[TaskKey], handed: HandedOver) -> Kernels:
        """Read what these tasks of `order` want, and begin them.

        Where some have their rows on this node, these begin at once, and each of the others reads for itself.
        """
        _, _, sharding = job
        residents = {task.partition: await self._resident(task.partition) for task in tasks}
        before = await self._find_states(tasks)
        assigned = {
            task.partition: _Assigned(residents[task.partition], before[task.partition], task.args) for task in tasks
        }
        wanted = await self._wanted(job, assigned, order.group)
        exact = order.read != "parent"

        async def read(
            rows: Wanted, parts: Collection[int], named: Mapping[str, RowSet] = _ALL_NAMED
        ) -> Mapping[str, RowBlock]:
            if order.read == "rows" and order.committed < order.group - 1:
                after = sorted({named for task in tasks if task.partition in parts for named in task.after})
                about = (order.group, after, order.committed, sorted(parts), named)
                return await self._client.read_before(sharding, rows, *about)
            return await self._client.read_rows(sharding, rows, order.completions, order.committed, exact)

        begun_with = {part: handed[part] for part in assigned if part in handed and handed[part].holds(wanted[part])}
        # Those that wait for a read give their cores to the others.
        assigned = {part: assigned[part] for part in sorted(assigned, key=lambda part: part in begun_with)}
        needed = union_of(sharding.tables, list(wanted.values()))
        fewer = fewer_named(needed, list(wanted.values())) if order.read == "rows" else _ALL_NAMED
        blocks = None if begun_with else await read(needed, assigned.keys(), fewer)

        def first(part: int) -> Mapping[str, RowBlock] | None:
            return begun_with[part].after(wanted[part]) if part in begun_with else blocks

        async def read_sum(table: str, partitions: tuple[int, ...]) -> Array | None:
            return await self._client.kept_sum(sharding, table, partitions, order.committed) if exact else None

        read_group = None if exact else order.committed
        return self._start(job, order, order.group, assigned, wanted, first, read, read_sum, read_group)

    async def _begin_ahead(self, job: Job, order: Dispatch, done: Mapping[int, TaskResult]) -> Begun:
        """Read what comes after `order`, as soon as it is there, and begin the partitions' next tasks with it."""
        _, _, sharding = job
        assigned = {
            task.partition: _Assigned(await self._resident(task.partition), done[task.partition].state, None)
            for task in order.tasks
            if not task.withdrawn
        }
        wanted = await self._wanted(job, assigned, order.group + 1)
        needed = union_of(sharding.tables, list(wanted.values()))
        blocks, attempt = await self._client.read_ahead(sharding, needed, order.group)

        async def read(rows: Wanted, parts: Collection[int]) -> Mapping[str, RowBlock]:
            del parts
            found, others = await self._client.read_ahead(sharding, rows, order.group)
            if others != attempt:
                raise SupersededError(f"the updates of clock {order.group} are of attempts {attempt} and {others}")
            return found

        async def read_sum(table: str, partitions: tuple[int, ...]) -> Array | None:
            del table, partitions
            return None  # the group is not committed yet

        return attempt, self._start(job, order, order.group + 1, assigned, wanted, lambda part: blocks, read, read_sum)

    def _start(
        self,
        job: Job,
        order: Dispatch,
        group: int,
        assigned: Mapping[int, _Assigned],
        wanted: Mapping[int, Wanted],
        first: Callable[[int], Mapping[str, RowBlock] | None],
        read: Read,
        read_sum: ReadSum,
        read_group: int | None = None,
    ) -> Kernels:
        """Begin tasks of `order`, or of the group after it.

        `first` returns the rows that a partition begins with, None if they are to be read; `read` reads others.
        `read_group` is the last group that is whole in these rows; None: the one before.
        """
        config, _, sharding = job
        tables = {table.name: table for table in sharding.tables}

        generation, loop = self._client.routes.generation, asyncio.get_running_loop()
        attempts: dict[int, int] = {}

        async def fetched(read: Callable[..., Coroutine[Any, Any, T]], *wanted: Any) -> T:
            # A kernel may outlive its batch: by the map of a later generation it would read what is not there yet.
            if self._client.routes.generation != generation:
                raise SupersededError(f"a task of generation {generation} still runs")
            task = asyncio.current_task()
            assert task is not None
            self._task_reads.add(task)
            try:
                return await read(*wanted)
            finally:
                self._task_reads.discard(task)

        def fetch(part: int, table: str, rows: RowSet | None) -> RowBlock:
            return self._kernel_threads.wait_for(fetched(read, {table: rows}, (part,)))[table]

        def fetch_sum(table: str, partitions: tuple[int, ...]) -> Array | None:
            return self._kernel_threads.wait_for(fetched(read_sum, table, partitions))

        def kernel(part: int) -> TaskResult:
            task = assigned[part]
            blocks = first(part)
            if blocks is None:
                blocks = self._kernel_threads.wait_for(fetched(read, wanted[part], (part,)))
            fetches = partial(fetch, part), fetch_sum, read_group
            params = TaskParameters(group, tables, wanted[part], blocks, *fetches, config.finite)
            rng = np.random.default_rng([config.seed, group, part])
            began_s = perf_counter()
            result, loss_sum, examples, state = task.resident.run(task.before, task.args, params, rng)
            took_s = perf_counter() - began_s
            attempt = attempts.get(part)
            if state is not None and attempt is not None:
                # Another node may wait for it, while this one runs other tasks of the batch.
                with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                    loop.call_soon_threadsafe(self._states.put, PartitionState(part, group, attempt, state))
            kept_bytes = sum(array.nbytes for array in (task.before or {}).values())
            read_rows = (wanted[part], params.blocks) if order.read == "rows" else None
            return TaskResult(params.updates(), state, kept_bytes, result, loss_sum, examples, took_s, read_rows)

        apart = order.read == "rows" or order.apart

        def sums(done: Mapping[int, TaskResult]) -> Sums:
            updates = {part: finished.update for part, finished in done.items()}
            return sum_up(updates, config.n_partitions, sharding.tables, apart)

        kernels = self._kernel_threads.start({part: partial(kernel, part) for part in assigned}, sums)
        kernels.attempts = attempts
        self._foresee(job, assigned, group + 1)
        return kernels

    async def _wanted(self, job: Job, assigned: Mapping[int, _Assigned], group: int) -> dict[int, Wanted]:
        """Return the rows that the tasks want, by partition."""
        foreseen_group, rows = self._foreseen.get(frozenset(assigned), (0, None))
        if rows is not None and foreseen_group == group and all(task.args is None for task in assigned.values()):
            await asyncio.wait([rows])  # a reader that is cancelled leaves it to the others
            if (error := rows.exception()) is not None:
                raise error  # `result` would raise it without its place, which has been asked for before
            return rows.result()
        return await self._on_threads(_wants, job, assigned, group)

    def _foresee(self, job: Job, assigned: Mapping[int, _Assigned], group: int) -> None:
        """Determine the rows of a later group on a thread of its own, while the kernels before it run.

        Tasks with arguments are followed by tasks with others, which are not known yet.
        """
        config, _, _ = job
        without_args = all(task.args is None for task in assigned.values())
        if without_args and (config.clocks is None or group <= config.clocks):
            future = asyncio.get_running_loop().run_in_executor(self._foresight, _wants, job, assigned, group)
            future.add_done_callback(lambda done: done.cancelled() or done.exception())  # maybe no batch asks for it
            others = {parts: rows for parts, rows in self._foreseen.items() if parts.isdisjoint(assigned)}
            self._foreseen = others | {frozenset(assigned): (group, future)}

    def _stats(self, group: int, task: TaskKey, done: TaskResult) -> TaskStats:
        rows: dict[str, RowSet] = {} if done.state is None else claimed_rows(done.state)
        last_clock, before = self._reported_rows.get(task.partition, (0, {}))
        # The report of a group that is repeated may not have arrived, or was not counted.
        is_new = (
            group <= last_clock
            or rows.keys() != before.keys()
            or any(not same(claimed, before[name]) for name, claimed in rows.items())
        )
        self._reported_rows[task.partition] = group, rows
        return TaskStats(
            task.partition,
            task.attempt,
            done.loss_sum,
            done.examples,
            done.kernel_s,
            done.result,
            done.state is not None,
            rows if is_new else None,
        )

    async def _on_threads(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._kernel_threads.pool, work, *arguments)


@raising_plainly
def _wants(job: Job, assigned: Mapping[int, _Assigned], group: int) -> dict[int, Wanted]:
    _, _, sharding = job
    tables = {table.name: table for table in sharding.tables}
    return {part: checked_reads(task.resident.reads(task.args, group), tables) for part, task in assigned.items()}
