"""The agent of a node: carries the controller's instructions out. No Dask, no data store: both are handed in.

It hosts the node's shard server and its client, loads input partitions in the background, and runs batches of
micro-tasks one after the other, the tasks of a batch on as many threads as the node has.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
)
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
from psengine.rpc.transport import Transport, Unreachable, call_again, deadline_s
from psengine.server.read_admission import ReadAdmission, max_concurrent_readers
from psengine.server.replica_store import ReplicaStore
from psengine.server.shard_server import ShardServer
from psengine.server.shard_store import StaleReadError
from psengine.tables.sharding import Sharding
from psengine.telemetry.byte_counts import arrays_bytes, state_bytes
from psengine.telemetry.formatting import format_error
from psengine.worker.batch_runner import BatchRunner, Job
from psengine.worker.parameter_client import ParameterClient
from psengine.worker.routing import SupersededError

logger = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[np.generic]]

#: (data_url, partition) -> the arrays of that partition; blocking, called on a thread
Loader = Callable[[str, int], Arrays]
#: (checkpoint, shard) -> the rows of every table that it kept; blocking, called on a thread
ShardLoader = Callable[[str, int], Arrays]

_REPORT_DEADLINE_S = 10.0
_HAND_OVER_DEADLINE_S = 60.0
_COPY_DEADLINE_S = 60.0
#: In shards: what has come of a clock that is not common yet travels with a shard.
_WITH_UPDATES = 4
_RETRY_S = 0.2
#: seconds between the tries at reading one partition; after the last one the node says that it cannot
_READ_AGAIN_S = (0.5, 1.0, 2.0, 4.0)


class Unreadable(Exception):
    """A partition could not be read on this node, however often it was tried; another node may be able to."""


class NodeAgent:
    """State of one node's process.

    Parameters
    ----------
    node, address : str
        Name of the node; address of this process, which nobody had before.
    controller : str
        Address that reports go to.
    loader, shard_loader : callable
        Read one partition, and one shard of a checkpoint.
    threads : int
        Micro-tasks that run at one time.
    read_again_s : sequence of float
        Seconds to wait between the tries at reading a partition.
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
    ) -> None:
        self.node, self.address, self._controller = node, address, controller
        self.transport, self._loader, self._shard_loader = transport, loader, shard_loader
        self._read_again_s = tuple(read_again_s)
        self.server = ShardServer()
        self.replicas = ReplicaStore()
        #: of those who read from our server
        self.admission = ReadAdmission()
        self.client = ParameterClient(f"{node}@{address}", address, transport, self.server)
        #: {partition: what the application prepared}
        self.data: dict[int, Any] = {}
        self._job: Job | None = None
        self._loading: dict[int, asyncio.Task[Any]] = {}
        #: number of the newest batch that came; they come in order, and only copies of one come again
        self._last_batch = 0
        self._request = 0
        self._last_order = 0
        self._batches: asyncio.Queue[Dispatch] = asyncio.Queue()
        #: the batch under way
        self._running: asyncio.Task[BatchDone] | None = None
        self._runner = BatchRunner(self.client, threads, self._partition)
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        #: bytes moved by kind, since the beginning; what the client moves it counts itself (see `traffic`)
        self.moved: Counter[str] = Counter()

    def start(self) -> None:
        """Begin to work off batches; needs a running event loop."""
        self._spawn(self._work())

    async def close(self) -> None:
        """End background work; a kernel that runs is let run out, its result is dropped."""
        self._closing = True
        self._runner.drop_ahead()
        await cancel_all([*self._tasks, *self._loading.values()])
        self._runner.close()
        self._readers.shutdown(wait=False, cancel_futures=True)

    def instruct(self, order: NodeInstruction, number: int | None = None) -> None:
        """Take an order; repeated ones are ignored, and one for another process of this name is, too.

        Orders are numbered, and each is sent when the one before was taken: one that comes with a number that is not
        above the last is a copy that was under way for long, and what it wanted was done, and maybe undone, since.
        """
        if order.address != self.address or (number is not None and number <= self._last_order):
            return
        self._last_order = self._last_order if number is None else number
        match order:
            case OpenShards():
                self._spawn(self._guarded(self._open(order)))
            case TakeShards():
                self.server.expect(order.shards, order.epoch)
                self._spawn(self._guarded(self._take(order)))
            case BackUp():
                self._spawn(self._guarded(self._back_up(order)))
            case UpdateShardMap():
                self._use_map(order)
            case LoadPartitions():
                if order.request > self._request:
                    self._request = order.request
                    self._make_room(order.partitions)
                    self._spawn(self._guarded(self._load(order)))
            case Dispatch():
                if order.batch > self._last_batch:
                    self._last_batch = order.batch
                    self._batches.put_nowait(order)

    # -- orders ---------------------------------------------------------------------------------------------------

    async def _open(self, order: OpenShards) -> None:
        config, app, sharding = self._adopt(order.config)
        if order.kept is not None:
            try:
                states = await self._kept(sharding, order.shards, order.kept)
            except (Unreachable, KeyError) as error:
                reason = self._line(error)
                await self._report(ShardsNotOpened(self.node, self.address, order.shards, order.epoch, reason, 0.0))
                return
            self.server.go_on_from(states, order.epoch, config.n_partitions)
        elif order.checkpoint is None:
            self.server.open(app, sharding, config.n_partitions, config.seed, order.shards, order.epoch)
        else:
            saved = order.checkpoint
            for shard in order.shards:
                try:
                    arrays = await self._read(f"shard {shard} of {saved.name}", self._shard_loader, saved.name, shard)
                except Unreadable as error:  # a newer one has taken its place, say
                    reason = self._line(error)
                    await self._report(ShardsNotOpened(self.node, self.address, order.shards, order.epoch, reason, 0.0))
                    return
                rows = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
                self.moved["restore"] += arrays_bytes([rows])
                self.server.restore(shard, order.epoch, rows, config.n_partitions, saved.clock)
        await self._report(ShardsOpened(self.node, self.address, order.shards, order.epoch, 0.0))

    async def _kept(self, sharding: Sharding, shards: Sequence[int], kept: ReplicaSet) -> dict[int, ShardState]:
        """Return copies of shards: our own, and where there is none, those of their keepers."""
        states = self.replicas.get(shards, kept.number)
        places = dict(kept.at)
        wanted: dict[str, list[int]] = {}
        for shard in shards:
            if shard not in states:
                wanted.setdefault(places[shard], []).append(shard)
        for address, of in wanted.items():
            within_s = deadline_s(_COPY_DEADLINE_S, sharding.all_bytes(of))
            answer = await call_again(self.transport, address, "proteus_kept", within_s, shards=of, number=kept.number)
            sent = {int(shard): state for shard, state in answer["states"].items()}
            self.moved["restore"] += state_bytes(sent.values())
            states |= sent
        if missing := [shard for shard in shards if shard not in states]:
            raise KeyError(f"nobody has round {kept.number} of shards {missing}")
        return states

    async def _back_up(self, order: BackUp) -> None:
        """Copy what we serve to its keepers; the arrays are never written again, so nobody waits for it."""
        try:
            states = self.server.copy(dict(zip(order.shards, order.epochs, strict=True)), order.clock)
            self.replicas.put(order.number, order.whole, states, keeper=False)
            by_keeper: dict[str, dict[int, ShardState]] = {}
            for shard, keeper in zip(order.shards, order.keepers, strict=True):
                if keeper:
                    by_keeper.setdefault(keeper, {})[shard] = states[shard]
            await asyncio.gather(*(self._give(order, keeper, of) for keeper, of in by_keeper.items()))
        except (StaleReadError, Unreachable) as error:
            at = error.address if isinstance(error, Unreachable) else ""
            await self._report(NotBackedUp(self.node, self.address, order.number, self._line(error), 0.0, at))
        else:
            await self._report(BackedUp(self.node, self.address, order.number, order.shards, 0.0))

    async def _give(self, order: BackUp, keeper: str, states: dict[int, ShardState]) -> None:
        if keeper == self.address:
            self.replicas.put(order.number, order.whole, states, keeper=True)
        else:
            n_bytes = state_bytes(states.values())
            within_s = deadline_s(_COPY_DEADLINE_S, n_bytes)
            await self.transport.call(
                keeper, "proteus_keep", within_s, number=order.number, whole=order.whole, states=states
            )
            self.moved["copy"] += n_bytes

    def _use_map(self, order: UpdateShardMap) -> None:
        before = self.client.routes.generation
        self.client.use_map(order.version, order.owners, order.generation)
        self.admission.most = max_concurrent_readers(len({owner.address for owner in order.owners}))
        elsewhere = [owner for owner in order.owners if owner.address != self.address]
        self.server.forget(elsewhere, order.generation)
        self.replicas.forget([owner.shard for owner in elsewhere])
        if self.client.routes.generation != before:
            if self._running is not None:
                self._running.cancel()  # it waits, maybe, for a server that is gone
            self._runner.drop_ahead()

    async def _take(self, order: TakeShards) -> None:
        config, _, sharding = self._adopt(order.config)
        epochs = dict(zip(order.shards, order.served_under, strict=True))
        to: dict[str, Any] = {"to_node": self.node, "to_address": self.address, "epoch": order.epoch}
        to["committed"] = order.committed
        try:
            if order.from_address == self.address:  # taken back: it may be that somebody else was to have them
                answer = self.server.hand_over(epochs, **to)
            else:
                within_s = deadline_s(_HAND_OVER_DEADLINE_S, _WITH_UPDATES * sharding.all_bytes(order.shards))
                answer = await self.transport.call(
                    order.from_address, "proteus_hand_over", within_s, epochs=epochs, **to
                )
            error = answer.get("error", "")
        except Unreachable as unreachable:
            error = str(unreachable)
        if error:
            self.server.expect_no_more(order.shards, order.epoch)
            await self._report(ShardsNotTaken(self.node, self.address, order.shards, order.epoch, error, 0.0))
            return
        states = {int(shard): state for shard, state in answer["states"].items()}
        self.moved["hand_over"] += state_bytes(states.values())
        self.server.take(config.n_partitions, states, order.epoch)
        await self._report(ShardsTaken(self.node, self.address, order.shards, order.epoch, 0.0))

    async def _load(self, order: LoadPartitions) -> None:
        try:
            self._adopt(order.config)
            for partition in order.partitions:
                if order.request != self._request:
                    return  # a later request has replaced this one
                await self._partition(partition)
        except (Unreadable, JobError) as error:
            await self._report(NodeUnfit(self.node, self.address, self._line(error), 0.0))
            return
        await self._report(NodeReady(self.node, self.address, order.request, tuple(sorted(self.data)), 0.0))

    def _make_room(self, wanted: Collection[int]) -> None:
        """Let go of the partitions that are wanted no more; a batch that works on one has it until it is done."""
        for partition in self.data.keys() - set(wanted):
            del self.data[partition]

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            logger.warning("an order could not be carried out", exc_info=error)
            await self._report(NodeFailed(self.node, self.address, self._line(error), 0.0))

    async def _partition(self, partition: int) -> Any:
        """Return what the application prepared from a partition, reading it if it is not here; raises `Unreadable`."""
        if partition in self.data:
            return self.data[partition]
        if partition not in self._loading:
            self._loading[partition] = asyncio.get_running_loop().create_task(self._fetch(partition))
        try:
            self.data[partition] = await asyncio.shield(self._loading[partition])
        finally:
            self._loading.pop(partition, None)
        return self.data[partition]

    async def _fetch(self, partition: int) -> Any:
        assert self._job is not None
        config, app, _ = self._job
        arrays = await self._read(f"partition {partition}", self._loader, config.data_url, partition)
        self.moved["input"] += arrays_bytes([arrays])
        return await asyncio.get_running_loop().run_in_executor(self._readers, app.prepare, arrays)

    async def _read(self, what: str, read: Callable[..., Arrays], *arguments: Any) -> Arrays:
        loop = asyncio.get_running_loop()
        for again_s in (*self._read_again_s, None):
            try:
                return await loop.run_in_executor(self._readers, read, *arguments)
            except Exception as error:
                # Each store has errors of its own, and all mean the same here: this node cannot read, just now.
                logger.warning("%s was not read", what, exc_info=error)
                if again_s is None:
                    raise Unreadable(format_error(error)) from error
                await asyncio.sleep(again_s)
        raise AssertionError("unreachable")

    async def _work(self) -> None:
        while True:
            order = await self._batches.get()
            report: Event
            self._running = asyncio.get_running_loop().create_task(self._run(order))
            try:
                report = await self._running
            except asyncio.CancelledError:
                if asyncio.current_task().cancelling():  # type: ignore[union-attr] # we are a task
                    self._running.cancel()
                    raise
                report = self._failed(order, SupersededError("all have gone back"), fatal=False)
            except (Unreachable, SupersededError) as error:
                logger.info("clock %d is given up: %s", order.clock, error)
                report = self._failed(order, error, fatal=False)
            except Unreadable as error:
                # First this, so that nothing is dispatched here again.
                await self._report(NodeUnfit(self.node, self.address, self._line(error), 0.0))
                report = self._failed(order, error, fatal=False)
            except Exception as error:
                logger.exception("clock %d failed", order.clock)
                report = self._failed(order, error, fatal=True)
            if self._closing:
                return  # what a kernel raised at this moment has taken the place of our cancellation
            await self._report(report)

    async def _run(self, order: Dispatch) -> BatchDone:
        if self._job is None or order.map_version > self.client.routes.version:
            raise SupersededError(f"map {order.map_version} wanted, {self.client.routes.version} here")
        self.client.begin(order.generation, order.batch)
        stats = await self._runner.run(self._job, order)
        return BatchDone(self.node, self.address, order.clock, stats, 0.0)

    # -- small things ---------------------------------------------------------------------------------------------

    def _adopt(self, config: JobConfig) -> Job:
        if self._job is None:
            app = resolve(config.app, config.app_params)
            self._job = (config, app, Sharding(app.tables(), config.n_shards))
            self.server.mark_every = config.evaluate_every
        return self._job

    def _line(self, error: BaseException) -> str:
        if isinstance(error, Unreadable):
            return str(error)  # it is the line of what was raised
        return format_error(error, "" if self._job is None else self._job[0].app)

    def _failed(self, order: Dispatch, error: Exception, *, fatal: bool) -> BatchFailed:
        tasks = tuple((task.partition, task.attempt) for task in order.tasks)
        at = error.address if isinstance(error, Unreachable) else ""
        return BatchFailed(self.node, self.address, order.clock, tasks, self._line(error), fatal, 0.0, at)

    async def _report(self, event: Event) -> None:
        """Deliver `event`, however long it takes: a controller that stays away ends this process by other ways."""
        while not self._closing:
            try:
                moved = dict(self.moved + Counter(self.client.moved))
                await self.transport.call(
                    self._controller,
                    "proteus_event",
                    _REPORT_DEADLINE_S,
                    event=event,
                    process=self.address,
                    moved=moved,
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
