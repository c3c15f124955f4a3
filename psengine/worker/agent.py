"""The agent of a node: carries out the controller's instructions. Dask and the data store are passed in.

It hosts the node's shard server and its client, loads input partitions in the background, and runs batches of
micro-tasks on as many threads as the node has (`node_scheduler`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psengine.apps.base import MakesDriver
from psengine.apps.executors import as_application, initial_rows, prepare, shared_tables
from psengine.apps.registry import resolve
from psengine.config import JobConfig, JobError
from psengine.protocol.events import (
    BackedUp,
    BatchDone,
    BatchFailed,
    Event,
    NodeFailed,
    NodeReady,
    NodeUnfit,
    NotBackedUp,
    ShardsNotOpened,
    ShardsNotTaken,
    ShardsOpened,
    ShardsTaken,
    StatesTaken,
)
from psengine.protocol.executor_state import ExecutorState, StateRef
from psengine.protocol.instructions import (
    BackUp,
    Dispatch,
    LoadPartitions,
    NodeInstruction,
    OpenShards,
    ReplicaSet,
    TakeShards,
    UpdateShardMap,
)
from psengine.protocol.shard_state import ShardState
from psengine.rpc.cancellation import cancel_all
from psengine.rpc.transport import Transport, Unreachable
from psengine.server.read_admission import ReadAdmission, max_concurrent_readers
from psengine.server.replica_store import ReplicaStore
from psengine.server.shard_server import ShardServer, initial_shards
from psengine.server.shard_store import StaleReadError
from psengine.tables.sharding import Sharding
from psengine.telemetry.byte_counts import ReportedBytes, arrays_bytes, link, state_bytes
from psengine.telemetry.formatting import format_error
from psengine.telemetry.memory_use import NodeMemory
from psengine.worker.batch_runner import BatchRunner, Job
from psengine.worker.blocking_work import BlockingWork, Kind
from psengine.worker.executor_host import ExecutorHost, states_bytes
from psengine.worker.hosts.partition_host import PartitionHost
from psengine.worker.node_scheduler import NodeScheduler
from psengine.worker.parameter_client import ParameterClient
from psengine.worker.push_tree import PushTree
from psengine.worker.routing import SupersededError

logger = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[np.generic]]

#: (data_url, partition) -> arrays of the partition; blocking, called on a thread.
Loader = Callable[[str, int], Arrays]
#: (checkpoint, shard) -> rows of every table of the shard; blocking, called on a thread.
ShardLoader = Callable[[str, int], Arrays]
#: (checkpoint, executor) -> state of the executor; blocking, called on a thread.
StateLoader = Callable[[str, int], Arrays]

_REPORT_DEADLINE_S = 10.0
_HAND_OVER_DEADLINE_S = 60.0
_COPY_DEADLINE_S = 60.0
#: Factor on the size of a shard that is handed over: the updates of clocks that are not common yet travel with it.
_WITH_UPDATES = 4
_RETRY_S = 0.2
#: Seconds between the attempts to read a partition; after the last one the node reports `NodeUnfit`.
_READ_AGAIN_S = (0.5, 1.0, 2.0, 4.0)


class Unreadable(Exception):
    """A partition could not be read on this node in any attempt; another node, or a later attempt, may be able to.

    `lasting`: it is not there, so that no later attempt can succeed.
    """

    def __init__(self, line: str, lasting: bool) -> None:
        super().__init__(line)
        self.lasting = lasting


class NodeAgent:
    """State of one node's process.

    Parameters
    ----------
    node, address : str
        Name of the node; address of this process, never used by another one.
    controller : str
        Address that reports are sent to.
    loader, shard_loader, state_loader : callable
        Read one partition, and one shard and one executor's state of a checkpoint. A `JobError` means that it is not
        there, any other exception that it cannot be read at present.
    threads : int
        Number of micro-tasks that run concurrently.
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
        self._on_failed = on_failed
        self.server = ShardServer()
        self.replicas = ReplicaStore()
        #: Admission of readers to the local server.
        self.admission = ReadAdmission()
        self.client = ParameterClient(f"{node}@{address}", address, transport, self.server)
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
        #: Executors of the partitions, and their states.
        self.host = ExecutorHost(
            address, self.client.transfers, self.partitions.get, self._read_state, self._report_taken, self.moved
        )
        self._memory = NodeMemory(
            (self.server.stores, self.replicas), self.host.states, self.partitions.data, lambda: self.host.executors
        )
        #: The part of this node in the tree of pushes.
        self.tree = PushTree(node, address, self.client)
        self._runner = BatchRunner(
            self.client, self.tree, threads, self.host.executor, self.host.states, self.host.find_states
        )
        self._batches = NodeScheduler(lambda order: self._run(order), self._report_done, self._report_failure)
        self.client.gives_way = self._batches.is_awaited

    async def close(self) -> None:
        """End background work; a running kernel is completed, its result is dropped."""
        self._closing = True
        self._batches.close()
        self._runner.drop_ahead()
        await cancel_all([*self._tasks, *self.partitions.loading.values()])
        self._runner.close()

    def instruct(self, instruction: NodeInstruction, number: int | None = None) -> None:
        """Begin to carry out an instruction; repeated ones, and those for another process of this node, are ignored.

        Instructions are numbered, and each is sent when the previous one was received: one with a number that is not
        above the last is a delayed duplicate; it was carried out, and maybe reversed, since.
        """
        if instruction.address != self.address or (number is not None and number <= self._last_instruction):
            return
        self._last_instruction = self._last_instruction if number is None else number
        match instruction:
            case OpenShards():
                self._spawn(self._guarded(self._open(instruction)))
            case TakeShards():
                self.server.expect(instruction.shards, instruction.epoch)
                self._spawn(self._guarded(self._take(instruction)))
            case BackUp():
                self._spawn(self._guarded(self._back_up(instruction)))
            case UpdateShardMap():
                self._use_map(instruction)
            case LoadPartitions():
                if instruction.request > self._request:
                    self._request = instruction.request
                    self.partitions.sources = dict(instruction.sources)
                    self.host.drop(self.partitions.drop_others(instruction.partitions))
                    self._spawn(self._guarded(self._load(instruction)))
            case Dispatch():
                if (work := self._batches.add(instruction)) is not None:
                    self._spawn(work)

    # -- instructions ---------------------------------------------------------------------------------------------

    async def _open(self, instruction: OpenShards) -> None:
        config, app, sharding = await self._adopt(instruction.config)
        if instruction.replicas is not None:
            try:
                states = await self._find_replicas(sharding, instruction.shards, instruction.replicas)
            except (Unreachable, KeyError) as error:
                again = isinstance(error, Unreachable)
                await self._report(self._not_opened(instruction, error, again))
                return
            self.server.restore_replicas(states, instruction.epoch, config.n_partitions)
        elif instruction.checkpoint is None:
            made_of = app, sharding, config.seed, instruction.shards
            initial = await self._blocking.do("open", initial_shards, *made_of)
            self.server.open(initial, config.n_partitions, instruction.epoch)
        else:
            saved = instruction.checkpoint
            for shard in instruction.shards:
                try:
                    what = f"shard {shard} of {saved.name}"
                    arrays = await self._read("restore", what, self._shard_loader, saved.name, shard)
                except Unreadable as error:  # for example because a newer checkpoint has replaced it
                    await self._report(self._not_opened(instruction, error, not error.lasting))
                    return
                rows = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
                self.moved["restore"] += arrays_bytes([rows])
                effects = saved.effects(config.n_partitions)
                self.server.restore(shard, instruction.epoch, rows, config.n_partitions, saved.clock, effects)
        await self._report(ShardsOpened(self.node, self.address, instruction.shards, instruction.epoch, 0.0))

    async def _find_replicas(
        self, sharding: Sharding, shards: Sequence[int], replicas: ReplicaSet
    ) -> dict[int, ShardState]:
        """Return replicas of shards: local ones, and if absent, those of the backup owners."""
        states = self.replicas.get(shards, replicas.number)
        addresses = dict(replicas.at)
        wanted: dict[str, list[int]] = {}
        for shard in shards:
            if shard not in states:
                wanted.setdefault(addresses[shard], []).append(shard)
        for address, missing in wanted.items():
            n_bytes, wanted_round = sharding.all_bytes(missing), {"shards": missing, "number": replicas.number}
            answer = await self.client.transfers.call(
                address, "proteus_kept", _COPY_DEADLINE_S, n_bytes, again=True, **wanted_round
            )
            sent = {int(shard): state for shard, state in answer["states"].items()}
            self._count("restore", address, state_bytes(sent.values()))
            states |= sent
        if lost := [shard for shard in shards if shard not in states]:
            raise KeyError(f"no replica of round {replicas.number} of shards {lost}")
        return states

    async def _back_up(self, instruction: BackUp) -> None:
        """Copy the served shards, and states of executors, to their backup owners.

        Their arrays are never written again, so nothing waits.
        """
        number, last_complete = instruction.number, instruction.last_complete
        try:
            states = self.server.copy(dict(zip(instruction.shards, instruction.epochs, strict=True)), instruction.clock)
            executors = self.host.copies(instruction.states)
            self.replicas.put(number, last_complete, states, is_backup_owner=False)
            self.host.states.replicate(number, last_complete, [state for copy in executors.values() for state in copy])
            shards: dict[str, dict[int, ShardState]] = {}
            for shard, owner in zip(instruction.shards, instruction.backup_owners, strict=True):
                shards.setdefault(owner, {})[shard] = states[shard]
            await asyncio.gather(
                *(
                    self._send_replicas(instruction, owner, shards.get(owner, {}), executors.get(owner, []))
                    for owner in shards.keys() | executors.keys()
                    if owner
                )
            )
        except (StaleReadError, Unreachable) as error:
            at = error.address if isinstance(error, Unreachable) else ""
            await self._report(NotBackedUp(self.node, self.address, number, self._line(error), 0.0, at))
        else:
            copied = tuple(ref.executor for ref, _ in instruction.states)
            await self._report(BackedUp(self.node, self.address, number, instruction.shards, 0.0, copied))

    async def _send_replicas(
        self,
        instruction: BackUp,
        backup_owner: str,
        states: dict[int, ShardState],
        executors: list[ExecutorState],
    ) -> None:
        if backup_owner == self.address:
            self.replicas.put(instruction.number, instruction.last_complete, states, is_backup_owner=True)
            return
        n_bytes = state_bytes(states.values()) + states_bytes(executors)
        message: dict[str, Any] = {"number": instruction.number, "last_complete": instruction.last_complete}
        message |= {"states": states, "executors": executors}
        await self.client.transfers.call(backup_owner, "proteus_keep", _COPY_DEADLINE_S, n_bytes, **message)
        self._count("copy", backup_owner, n_bytes)

    def keep_replicas(
        self, number: int, last_complete: int, states: dict[int, ShardState], executors: Sequence[ExecutorState]
    ) -> None:
        """Store what another node has copied here in the replication round `number`."""
        self.replicas.put(number, last_complete, states, is_backup_owner=True)
        self.host.states.replicate(number, last_complete, executors)

    def _count(self, kind: str, address: str, n_bytes: int) -> None:
        self.moved[kind] += n_bytes
        if address != self.address:
            self.moved[link(address)] += n_bytes

    def _use_map(self, instruction: UpdateShardMap) -> None:
        before = self.client.routes.generation
        self.client.use_map(instruction.version, instruction.owners, instruction.generation)
        self.admission.most = max_concurrent_readers(len({owner.address for owner in instruction.owners}))
        elsewhere = [owner for owner in instruction.owners if owner.address != self.address]
        self.server.forget(elsewhere, instruction.generation)
        self.replicas.forget([owner.shard for owner in elsewhere])
        if self.client.routes.generation != before:
            self._batches.cancel_all()  # they may wait for a lost server
            self._runner.cancel_reads()
            self._runner.drop_ahead()

    async def _take(self, instruction: TakeShards) -> None:
        config, _, sharding = await self._adopt(instruction.config)
        epochs = dict(zip(instruction.shards, instruction.served_under, strict=True))
        to: dict[str, Any] = {"to_node": self.node, "to_address": self.address, "epoch": instruction.epoch}
        to["committed"] = instruction.committed
        try:
            if instruction.from_address == self.address:  # taken back: another node may have been the next owner
                answer = self.server.hand_over(epochs, **to)
            else:
                n_bytes = _WITH_UPDATES * sharding.all_bytes(instruction.shards)
                answer = await self.client.transfers.call(
                    instruction.from_address, "proteus_hand_over", _HAND_OVER_DEADLINE_S, n_bytes, epochs=epochs, **to
                )
            error = answer.get("error", "")
        except Unreachable as unreachable:
            error = str(unreachable)
        if error:
            self.server.cancel_expected(instruction.shards, instruction.epoch)
            await self._report(
                ShardsNotTaken(self.node, self.address, instruction.shards, instruction.epoch, error, 0.0)
            )
            return
        states = {int(shard): state for shard, state in answer["states"].items()}
        self._count("hand_over", instruction.from_address, state_bytes(states.values()))
        self.server.take(config.n_partitions, states, instruction.epoch)
        await self._report(ShardsTaken(self.node, self.address, instruction.shards, instruction.epoch, 0.0))

    async def _load(self, instruction: LoadPartitions) -> None:
        try:
            await self._adopt(instruction.config)
            for partition in instruction.partitions:
                if instruction.request != self._request:
                    return  # a later request has replaced this one
                await self.partitions.get(partition)
        except (Unreadable, JobError) as error:
            await self._report(self._unfit(error))
            return
        await self._report(
            NodeReady(self.node, self.address, instruction.request, tuple(sorted(self.partitions.data)), 0.0)
        )

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            logger.warning("an instruction failed", exc_info=error)
            await self._report(NodeFailed(self.node, self.address, self._line(error), 0.0))

    async def _fetch(self, partition: int) -> Any:
        assert self._job is not None
        config, app, _ = self._job
        arrays = await self._read("read", f"partition {partition}", self._loader, config.data_url, partition)
        self.moved["input"] += arrays_bytes([arrays])
        return await self._blocking.do("prepare", prepare, app, arrays, partition, config.n_partitions)

    async def _read_state(self, checkpoint: str, executor: int) -> Arrays:
        assert self._state_loader is not None, "this node reads no checkpoints"
        what = f"executor {executor} of {checkpoint}"
        return await self._read("restore", what, self._state_loader, checkpoint, executor)

    def _report_taken(self, states: tuple[StateRef, ...], attempts: tuple[int, ...]) -> None:
        self._spawn(self._report(StatesTaken(self.node, self.address, states, attempts, 0.0)))

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

    async def _run(self, instruction: Dispatch) -> BatchDone | None:
        if self._job is None or instruction.map_version > self.client.routes.version:
            raise SupersededError(f"map {instruction.map_version} required, {self.client.routes.version} present")
        self.client.begin(instruction.generation, instruction.batch, instruction.parent_clock)
        ran = await self._runner.run(self._job, instruction)
        if ran.others is None:
            return None
        about = (ran.others, ran.push_s, instruction.batch)
        return BatchDone(self.node, self.address, instruction.clock, ran.stats, 0.0, *about)

    async def _report_done(self, done: BatchDone) -> None:
        await self._report(done)
        self.tree.settle(done.batch, done=True)

    async def _report_failure(self, instruction: Dispatch, error: Exception, fatal: bool) -> None:
        if isinstance(error, Unreadable):
            # It is reported first, so that nothing is dispatched to this node again.
            await self._report(self._unfit(error))
            fatal = False
        await self._report(self._failed(instruction, error, fatal=fatal))
        self.tree.settle(instruction.batch, done=False)

    # -- utilities ------------------------------------------------------------------------------------------------

    async def _adopt(self, config: JobConfig) -> Job:
        async with self._adopting:
            if self._job is None:
                job, mark_every = await self._blocking.do("open", _make_job, config)
                self.host.adopt(config, job[1])
                self.server.mark_every = self.host.states.mark_every = mark_every
                self.server.sharding, self.server.is_compact = job[2], bool(config.scale_in)
                self._job = job
        return self._job

    def _line(self, error: BaseException) -> str:
        if isinstance(error, Unreadable):
            return str(error)  # its text is the line of the original error
        return format_error(error, "" if self._job is None else self._job[0].app)

    def _unfit(self, error: Unreadable | JobError) -> NodeUnfit:
        again = isinstance(error, Unreadable) and not error.lasting
        return NodeUnfit(self.node, self.address, self._line(error), 0.0, again)

    def _not_opened(self, instruction: OpenShards, error: Exception, again: bool) -> ShardsNotOpened:
        what = instruction.shards, instruction.epoch, self._line(error)
        return ShardsNotOpened(self.node, self.address, *what, 0.0, again)

    def _failed(self, instruction: Dispatch, error: Exception, *, fatal: bool) -> BatchFailed:
        tasks = tuple((task.partition, task.attempt) for task in instruction.tasks)
        at = error.address if isinstance(error, Unreachable) else ""
        return BatchFailed(self.node, self.address, instruction.clock, tasks, self._line(error), fatal, 0.0, at)

    async def _report(self, event: Event) -> None:
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
            event = NodeFailed(self.node, self.address, f"a fault in the node: {line}", 0.0)
            await self.transport.call(
                self._controller, "proteus_event", _REPORT_DEADLINE_S, event=event, process=self.address
            )
        except Exception as error:  # noqa: BLE001 - maybe the fault that ends this process
            logger.warning("report not delivered: %s", error)
        finally:
            self._on_failed(line)


def _make_job(config: JobConfig) -> tuple[Job, int | None]:
    """Return the job, and the number of clocks between two marked states; it runs the user's code."""
    made = resolve(config.app, config.app_params)
    app = as_application(made, initial_rows(made, config.seed, config.n_shards))
    mark_every = 1 if isinstance(made, MakesDriver) else config.evaluate_every  # a driver may have any group evaluated
    return (config, app, Sharding(shared_tables(app), config.n_shards)), mark_every
