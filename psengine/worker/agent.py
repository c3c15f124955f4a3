"""The agent of a node: carries out the controller's instructions. Dask and the data store are passed in.

It hosts the node's shard server and its client, loads input partitions in the background, and runs batches of
tasks on as many threads as the node has (`node_scheduler`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.base import EntersNodes, MakesDriver, NodeBroken
from proteus_spot.psengine.apps.registry import driver_of, initial_shards, resolve
from proteus_spot.psengine.apps.residents import as_application, initial_rows, prepare, shared_tables
from proteus_spot.psengine.config import JobConfig, JobError
from proteus_spot.psengine.drivers.ssp import Ssp
from proteus_spot.psengine.protocol import events, instructions
from proteus_spot.psengine.protocol.moved_state import StateRef
from proteus_spot.psengine.rpc.cancellation import cancel_all
from proteus_spot.psengine.rpc.transport import Transport, Unreachable
from proteus_spot.psengine.server.read_admission import ReadAdmission, max_concurrent_readers
from proteus_spot.psengine.server.shard_server import ShardServer
from proteus_spot.psengine.tables.sharding import Sharding
from proteus_spot.psengine.telemetry.byte_counts import ReportedBytes, arrays_bytes
from proteus_spot.psengine.telemetry.formatting import format_error
from proteus_spot.psengine.telemetry.memory_use import NodeMemory
from proteus_spot.psengine.worker.batch_runner import BatchRunner, Job
from proteus_spot.psengine.worker.blocking_work import BlockingWork, Kind
from proteus_spot.psengine.worker.hosts.partition_host import PartitionHost
from proteus_spot.psengine.worker.hosts.resident_host import ResidentHost
from proteus_spot.psengine.worker.hosts.shard_host import ShardHost, Unreadable
from proteus_spot.psengine.worker.node_scheduler import Batch, NodeScheduler, RecalledError
from proteus_spot.psengine.worker.parameter_client import ParameterClient
from proteus_spot.psengine.worker.routing import BadSumError, SupersededError

logger = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[np.generic]]

#: (data_url, partition) -> arrays of the partition; blocking, called on a thread.
Loader = Callable[[str, int], Arrays]
#: (checkpoint, shard) -> rows of every table of the shard; blocking, called on a thread.
ShardLoader = Callable[[str, int], Arrays]
#: (checkpoint, partition) -> state of the partition; blocking, called on a thread.
StateLoader = Callable[[str, int], Arrays]

_REPORT_DEADLINE_S = 10.0
_RETRY_S = 0.2
#: Seconds between the attempts to read a partition; after the last one the node reports `NodeUnfit`.
_READ_AGAIN_S = (0.5, 1.0, 2.0, 4.0)


class NodeAgent:
    """State of one node's process.

    Parameters
    ----------
    node, address : str
        Name of the node; address of this process, never used by another one.
    controller : str
        Address that reports are sent to.
    loader, shard_loader, state_loader : callable
        Read one partition, and one shard and one partition's state of a checkpoint. A `JobError` means that it is not
        there, any other exception that it cannot be read at present.
    threads : int
        Number of tasks that run concurrently.
    read_again_s : sequence of float
        Seconds between the attempts to read a partition.
    on_failed : callable
        Called with one line when the agent itself has failed: nothing works any more in this process, which is to end.
    """

    def __init__(
        self,
        node: str,
        address: str,
        controller: str,
        transport: Transport,
        loader: Loader,
        shard_loader: ShardLoader,
        threads: int,
        read_again_s: Sequence[float] = _READ_AGAIN_S,
        on_failed: Callable[[str], None] = logger.error,
        state_loader: StateLoader | None = None,
    ) -> None:
        self.node, self.address, self._controller = node, address, controller
        self.transport, self._loader, self._shard_loader = transport, loader, shard_loader
        self._state_loader = state_loader
        self._read_again_s = tuple(read_again_s)
        self._on_failed, self._threads = on_failed, threads
        self.server = ShardServer()
        #: Admission of readers to the local server.
        self.admission = ReadAdmission()
        self.client = ParameterClient(address, transport, self.server)
        self._job: Job | None = None
        self._adopting = asyncio.Lock()
        self._request = 0
        self._last_instruction = 0
        self._blocking = BlockingWork()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        #: Bytes moved by kind, since the beginning, without those that the client counts (see `byte_counts`).
        self.moved: Counter[str] = Counter()
        self._reported_bytes = ReportedBytes()
        #: The input partitions.
        self.partitions = PartitionHost(
            self.client.transfers,
            lambda partition: self._fetch(partition),
            lambda *work: self._blocking.do("prepare", *work),
            self.moved,
        )
        #: The partitions, ready to run, and their states.
        self.host = ResidentHost(
            address, self.client.transfers, self.partitions.get, self._read_state, self._report_taken, self.moved
        )
        #: The shards, and replicas of other nodes' shards.
        self.shards = ShardHost(
            node,
            address,
            self.server,
            self.host,
            self.client.transfers,
            self._adopt_shards,
            self._make_shards,
            self._read_shard,
            self._report,
            self._line,
            self.moved,
        )
        self._memory = NodeMemory(
            (self.server.stores, self.shards.replicas),
            self.host.states,
            self.partitions.data,
            lambda: self.host.residents,
        )
        self._runner = BatchRunner(self.client, threads, self.host.resident, self.host.states, self.host.find_states)
        self._batches = NodeScheduler(lambda batch: self._run(batch), self._report, self._report_failure)
        self.client.gives_way = self._batches.is_awaited

    async def close(self) -> None:
        """End background work; a running kernel is completed, its result is dropped."""
        self._closing = True
        self._batches.close()
        self._runner.drop_ahead()
        await cancel_all([*self._tasks, *self.partitions.loading.values()])
        self._runner.close()
        if self._job is not None and isinstance(self._job[1], EntersNodes):
            self._job[1].leave_node()

    def instruct(self, instruction: instructions.NodeInstruction, number: int | None = None) -> None:
        """Begin to carry out an instruction; repeated ones, and those for another process of this node, are ignored.

        Instructions are numbered, and each is sent when the previous one was received: one with a number that is not
        above the last is a delayed duplicate; it was carried out, and maybe reversed, since.
        """
        if instruction.address != self.address or (number is not None and number <= self._last_instruction):
            return
        self._last_instruction = self._last_instruction if number is None else number
        match instruction:
            case instructions.OpenShards():
                self._spawn(self._guarded(self.shards.open(instruction)))
            case instructions.TakeShards():
                self.server.expect(instruction.shards, instruction.epoch)
                self._spawn(self._guarded(self.shards.take(instruction)))
            case instructions.BackUp():
                self._spawn(self._guarded(self.shards.back_up(instruction)))
            case instructions.StopBackUp():
                self.shards.stop_back_up(instruction.number)
            case instructions.TakeStates():
                for state in instruction.states:
                    self._spawn(self._guarded(self.host.receive(state)))
            case instructions.UpdateShardMap():
                self._use_map(instruction)
            case instructions.LoadPartitions():
                if instruction.request > self._request:
                    self._request = instruction.request
                    self.partitions.sources = dict(instruction.sources)
                    self.host.drop(self.partitions.drop_others(instruction.partitions))
                    self._spawn(self._guarded(self._load(instruction)))
            case instructions.RecallTasks():
                self._batches.recall(instruction.group)
            case instructions.Dispatch():
                if instruction.read == "rows" and instruction.generation == self.client.routes.generation:
                    # While kernels run: the next push and the reads that wait for it would wait for this, too.
                    self._spawn(self._guarded(self.server.fold(instruction.committed, instruction.generation)))
                if (work := self._batches.add(instruction)) is not None:
                    self._spawn(work)

    # -- instructions ---------------------------------------------------------------------------------------------

    def _use_map(self, instruction: instructions.UpdateShardMap) -> None:
        before = self.client.routes.generation
        self.client.use_map(instruction.version, instruction.owners, instruction.generation)
        self.admission.most = max_concurrent_readers(len({owner.address for owner in instruction.owners}))
        elsewhere = [owner for owner in instruction.owners if owner.address != self.address]
        self.server.forget(elsewhere, instruction.generation)
        self.shards.replicas.forget([owner.shard for owner in elsewhere])
        if self.client.routes.generation != before:
            self._batches.cancel_all()  # they may wait for a lost server
            self._runner.cancel_reads()
            self._runner.drop_ahead()

    async def _load(self, instruction: instructions.LoadPartitions) -> None:
        try:
            self._job = await self._adopt(instruction.config)
            for partition in instruction.partitions:
                if instruction.request != self._request:
                    return  # a later request has replaced this one
                data = await self.partitions.get(partition)
                if isinstance(self._job[1], EntersNodes):
                    await self._blocking.do("prepare", self._job[1].enter_node, self._threads, data)
        except (Unreadable, JobError) as error:
            await self._report(self._unfit(error))
            return
        await self._report(
            events.NodeReady(self.node, self.address, instruction.request, tuple(sorted(self.partitions.data)), 0.0)
        )

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            logger.warning("an instruction failed", exc_info=error)
            await self._report(events.NodeFailed(self.node, self.address, self._line(error), 0.0))

    async def _fetch(self, partition: int) -> Any:
        assert self._job is not None
        config, app, _ = self._job
        arrays = await self._read("read", f"partition {partition}", self._loader, config.data_url, partition)
        self.moved["input"] += arrays_bytes([arrays])
        return await self._blocking.do("prepare", prepare, app, arrays, partition, config.n_partitions)

    async def _adopt_shards(self, config: JobConfig) -> tuple[JobConfig, Sharding]:
        config, _, sharding = await self._adopt(config)
        return config, sharding

    async def _make_shards(self, shards: Sequence[int]) -> Any:
        assert self._job is not None
        config, app, sharding = self._job
        return await self._blocking.do("open", initial_shards, app, sharding, config.seed, shards, config.finite)

    async def _read_shard(self, what: str, checkpoint: str, shard: int) -> Arrays:
        return await self._read("restore", what, self._shard_loader, checkpoint, shard)

    async def _read_state(self, checkpoint: str, partition: int) -> Arrays:
        assert self._state_loader is not None, "this node reads no checkpoints"
        what = f"partition {partition} of {checkpoint}"
        try:
            return await self._read("restore", what, self._state_loader, checkpoint, partition)
        except Unreadable as error:
            raise Unreadable(str(error), error.lasting, checkpoint) from error

    def _report_taken(self, states: tuple[StateRef, ...], attempts: tuple[int, ...]) -> None:
        self._spawn(self._report(events.StatesTaken(self.node, self.address, states, attempts, 0.0)))

    async def _read(self, kind: Kind, what: str, read: Callable[..., Arrays], *arguments: Any) -> Arrays:
        for again_s in (*self._read_again_s, None):
            try:
                arrays: Arrays = await self._blocking.do(kind, read, *arguments)
                return arrays
            except Exception as error:
                # Each store has its own errors, and here all mean the same: this node cannot read at present.
                logger.warning("%s was not read", what, exc_info=error)
                if again_s is None:
                    raise Unreadable(format_error(error), isinstance(error, JobError)) from error
                await asyncio.sleep(again_s)
        raise AssertionError("unreachable")

    async def _run(self, batch: Batch) -> events.BatchDone:
        instruction = batch.order
        if self._job is None or instruction.map_version > self.client.routes.version:
            raise SupersededError(f"map {instruction.map_version} required, {self.client.routes.version} present")
        self.client.begin(instruction.generation, instruction.batch, instruction.completions)
        computed = partial(self._batches.computed, batch)
        stats = await self._runner.run(self._job, instruction, computed)
        return events.BatchDone(self.node, self.address, instruction.group, stats, 0.0, instruction.batch)

    async def _report_failure(self, instruction: instructions.Dispatch, error: Exception, fatal: bool) -> None:
        if isinstance(error, Unreadable):
            # It is reported first, so that nothing is dispatched to this node again.
            damaged = error.lasting and error.checkpoint
            what = self.node, self.address, error.checkpoint, self._line(error)
            await self._report(events.CheckpointDamaged(*what, 0.0) if damaged else self._unfit(error))
            fatal = False
        if isinstance(error, NodeBroken):
            await self._end(str(error))
            return
        if isinstance(error, BadSumError):  # of an earlier group, and of all partitions
            await self._report(events.NodeFailed(self.node, self.address, str(error), 0.0))
        await self._report(self._failed(instruction, error, fatal=fatal))

    # -- utilities ------------------------------------------------------------------------------------------------

    async def _adopt(self, config: JobConfig) -> Job:
        async with self._adopting:
            if self._job is None:
                job, mark_every = await self._blocking.do("open", _make_job, config)
                self.host.adopt(config, job[1])
                self.server.mark_every = self.host.states.mark_every = mark_every
                self.server.sharding, self.server.is_compact = job[2], bool(config.scale_in)
                self.server.finite = config.finite
                self._job = job
        return self._job

    def _line(self, error: BaseException) -> str:
        if isinstance(error, Unreadable):
            return str(error)  # its text is the line of the original error
        return format_error(error, "" if self._job is None else self._job[0].app)

    def _unfit(self, error: Unreadable | JobError) -> events.NodeUnfit:
        again = isinstance(error, Unreadable) and not error.lasting
        return events.NodeUnfit(self.node, self.address, self._line(error), 0.0, again)

    def _failed(self, instruction: instructions.Dispatch, error: Exception, *, fatal: bool) -> events.BatchFailed:
        tasks = tuple((task.partition, task.attempt) for task in instruction.tasks)
        at = error.address if isinstance(error, Unreachable) else ""
        about = (instruction.group, tasks, self._line(error), fatal, 0.0, at, isinstance(error, RecalledError))
        return events.BatchFailed(self.node, self.address, *about)

    async def _report(self, event: events.Event) -> None:
        """Deliver `event`, retrying without limit: if the controller stays away, the process is ended elsewhere."""
        while not self._closing:
            try:
                moved = self._reported_bytes.of(self.moved + Counter(self.client.moved))
                await self.transport.call(
                    self._controller,
                    "proteus_event",
                    _REPORT_DEADLINE_S,
                    event=event,
                    process=self.address,
                    moved=moved,
                    memory=self._memory.by_kind(),
                )
            except Unreachable as error:
                logger.warning("report not delivered: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                return

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("background work of the agent failed", exc_info=error)
            self._spawn(self._end(self._line(error)))

    async def _end(self, line: str) -> None:
        """End this process: its heartbeats would go on, and nothing would show that it works no more."""
        try:
            event = events.NodeFailed(self.node, self.address, f"a fault in the node: {line}", 0.0)
            await self.transport.call(
                self._controller, "proteus_event", _REPORT_DEADLINE_S, event=event, process=self.address
            )
        except Exception as error:  # noqa: BLE001 - maybe the fault that ends this process
            logger.warning("report not delivered: %s", error)
        finally:
            self._on_failed(line)


def _make_job(config: JobConfig) -> tuple[Job, int | None]:
    """Return the job, and the number of groups between two marked states; it runs the user's code."""
    made = resolve(config.app, config.app_params)
    first = initial_rows(made, config.seed, config.n_shards, config.finite)
    app = as_application(made, first, config.finite)
    mark_every = config.clocks_to_evaluate
    if isinstance(made, MakesDriver) and (mark_every or not isinstance(driver_of(config), Ssp)):
        mark_every = 1  # its clocks may be of any groups, or it may have any group evaluated
    return (config, app, Sharding(shared_tables(app), config.n_shards)), mark_every
