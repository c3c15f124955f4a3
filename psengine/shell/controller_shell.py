"""The shell around the controller: feeds it events, carries its instructions out by calls to the nodes.

It lives in the scheduler's process and survives any client. Everything here runs on that process's event loop; only
evaluation and saving run on a thread. What it decides is nothing: see `controller`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from distributed import Scheduler
from numpy.typing import NDArray

from psengine.apps.registry import resolve
from psengine.config import JobConfig, JobError, Tier
from psengine.controller.controller import Controller
from psengine.controller.state import ENDED
from psengine.controller.status import describe
from psengine.membership.failure_detector import FailureDetector
from psengine.membership.reachability import End, Links
from psengine.protocol.checkpoint import Checkpoint
from psengine.protocol.events import (
    BytesMoved,
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    DrainRequested,
    EffectsMissing,
    Evaluated,
    Event,
    HoldRequested,
    JobFoundFinished,
    JobStarted,
    ModelSaved,
    NodeJoined,
    NodesLost,
    NodeUnfit,
    NoticeReceived,
    SaveFailed,
    StopRequested,
    TimerFired,
)
from psengine.protocol.instructions import Evaluate, GatherModel, Instruction, LoadPartitions, SaveCheckpoint
from psengine.rpc.cancellation import cancel_all
from psengine.rpc.transport import Transport
from psengine.scheduling.micro_tasks import lost_effects
from psengine.shell.dask_plugins import MembershipPlugin
from psengine.shell.dask_transport import DaskTransport, unpack
from psengine.shell.evaluator import ApplicationRaised, Evaluator, sharding_of, whole_tables
from psengine.shell.event_log_writer import KeepPage, Storybook
from psengine.shell.instruction_queues import InstructionQueues
from psengine.shell.shard_gathering import GoneOn, from_keepers, from_servers
from psengine.tables.sharding import Arrays
from psengine.telemetry.byte_counts import CONTROLLER, sent_bytes
from psengine.telemetry.event_log import Entry
from psengine.telemetry.formatting import format_ranges
from psengine.telemetry.training_progress import losses_of

logger = logging.getLogger(__name__)

_TICK_S = 0.25
_CLOSE_DEADLINE_S = 5.0
#: Seconds for which another loss is waited for after one, and for which the first one waits at most.
_LOSSES_APART_S, _LOSSES_TOGETHER_S = 0.02, 0.25
#: so long a checkpoint that is gathered waits for evaluations of what lies before it
_EVALUATION_PATIENCE_S = 10.0
#: So often the servers are asked for a checkpoint that somebody waits for, where they have gone on before they were asked.
_TRIES = 20


def _installed(config: JobConfig) -> None:
    """Load no code: the application's module is on this machine."""


def _tell_nobody(number: int, entries: Sequence[Entry]) -> None:
    """Keep no story."""


@dataclasses.dataclass(frozen=True)
class ControllerCallbacks:
    """What the shell needs of the world, handed in by infra.

    `read_heldout(data_url)` returns arrays, `save(config, arrays, result)` writes the model and then its manifest,
    `find_finished(config)` returns the result of an existing manifest or None. `save_checkpoint(config, clock, shards,
    summary)` writes a checkpoint, reads it back and drops the older ones; `find_checkpoint(config)` returns the newest
    whole one or None, and raises `JobError` where it is of another job. `load_code(config)` makes the application's
    module ready for import, and raises `JobError` where it is not the config's. `keep_page(number, entries)` keeps a page
    of the job's story. All block and run on threads.
    `wall_s()` is the time of day, for what people read.
    """

    read_heldout: Callable[[str], Mapping[str, NDArray[np.generic]]]
    save: Callable[[JobConfig, Arrays, dict[str, Any]], None]
    find_finished: Callable[[JobConfig], dict[str, Any] | None]
    wall_s: Callable[[], float]
    report_notice: Callable[[Mapping[str, Any]], None]
    save_checkpoint: Callable[[JobConfig, int, Mapping[int, Arrays], Mapping[str, Any]], Checkpoint]
    find_checkpoint: Callable[[JobConfig], Checkpoint | None]
    load_code: Callable[[JobConfig], None] = _installed
    keep_page: KeepPage = _tell_nobody


class ControllerShell:
    """The controller's process, apart from Dask's scheduler itself."""

    def __init__(self, scheduler: Scheduler, world: ControllerCallbacks, transport: Transport | None = None) -> None:
        self.controller = Controller()
        self.closing = asyncio.Event()
        #: how often somebody has asked after the job; the machine's dead-man timer looks whether it rises
        self.asked = 0
        self._reported: set[str] = set()
        self._scheduler = scheduler
        self._transport: Transport = transport or DaskTransport(scheduler)
        self._world = world
        self._failure_detector = FailureDetector()
        self._links = Links()
        self._queues = InstructionQueues(self._transport, self._spawn, self._refused)
        #: why, by address, of those who are gone and not told of yet
        self._lost: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Lock()
        #: set anew whenever a checkpoint has been written, or could not be
        self._kept = asyncio.Event()
        self._keep_error = ""
        self._gone_on = False
        self._evaluator = Evaluator(self._transport, world.read_heldout, partial(self._count, "evaluate"))
        #: the clock that each is of
        self._evaluations: dict[asyncio.Task[None], int] = {}
        #: bytes gathered by kind, since the beginning
        self._moved: Counter[str] = Counter()
        self._book = Storybook(world.keep_page, world.wall_s)

    def open(self) -> None:
        """Register handlers and plugin; the scheduler is up."""
        self._scheduler.add_plugin(MembershipPlugin(self._on_joined, self._on_lost))
        self._scheduler.handlers.update(
            proteus_start=self.start,
            proteus_status=self.status,
            proteus_stop=self.stop,
            proteus_hold=self.hold,
            proteus_drain=self.drain,
            proteus_notice=self.notice,
            proteus_checkpoint=self.checkpoint,
            proteus_event=self.event,
            proteus_shutdown=self.shutdown,
        )
        self._spawn(self._tick())
        self._spawn(self._book.run())

    async def close(self) -> None:
        """End background work, and the story."""
        await self._book.write(last=True)
        self._queues.clear()
        await cancel_all(self._tasks)

    # -- handlers: what tasks, flows and nodes call -----------------------------------------------------------------

    async def start(self, job: dict[str, Any]) -> dict[str, Any]:
        """Start the job, attach to it when it runs, or find it finished. Answers {"error": line} for a bad job."""
        try:
            config = JobConfig.from_dict(job)
            await asyncio.to_thread(self._world.load_code, config)
            await asyncio.to_thread(resolve, config.app, config.app_params)  # a user's imports may take their time
        except JobError as error:
            return {"error": str(error)}
        async with self._starting:
            known = self.controller.config
            if known is not None and known.job_id != config.job_id:
                return {"error": f"this controller runs job {known.job_id!r}, not {config.job_id!r}"}
            if known is None:
                finished = await asyncio.to_thread(self._world.find_finished, config)
                if finished is not None:
                    self._feed(
                        JobFoundFinished(
                            config, finished, tuple(losses_of(finished)), finished["lost_micro_tasks"], _now()
                        )
                    )
                else:
                    try:
                        checkpoint = await asyncio.to_thread(self._world.find_checkpoint, config)
                    except JobError as error:
                        return {"error": str(error)}
                    if checkpoint is not None:
                        logger.info("job %s goes on from its checkpoint of clock %d", config.job_id, checkpoint.clock)
                    self._feed(JobStarted(config, _now(), checkpoint))
        return await self.status(since_clock=describe(self.controller, 0, _now())["clock"])

    async def status(self, since_clock: int = 0) -> dict[str, Any]:
        """Return the status (see `status.describe`), JSON-able, with the losses of the clocks after `since_clock`."""
        self.asked += 1
        now_s = _now()
        status = describe(self.controller, since_clock, now_s)
        elapsed = status["elapsed_s"]
        status["started"] = None if elapsed is None else self._world.wall_s() - elapsed
        return status

    async def stop(self, reason: str = "asked to stop") -> dict[str, Any]:
        """End the job at the clock under way; the model is saved, unless no clock was begun."""
        self._feed(StopRequested(reason, _now()))
        return await self.status(since_clock=self.controller.book.common if self.controller.book else 0)

    async def checkpoint(self) -> dict[str, Any]:
        """Keep what is committed now; answers {"clock": that of the newest checkpoint} and, where it failed, "error"."""
        book, self._keep_error, tries = self.controller.book, "", 0
        wanted = 0 if book is None else book.common
        while self.controller.checkpoints.clock < wanted and self.controller.state not in ENDED:
            if self._gone_on and tries < _TRIES:  # a clock was over sooner than its servers could be asked
                self._keep_error = ""
            self._feed(CheckpointRequested(_now()))
            if self.controller.checkpoints.under_way is None or self._keep_error:
                break  # there is nothing to keep (any more), or the store does not take it
            tries += 1
            await self._kept.wait()
        return {"clock": self.controller.checkpoints.clock, "error": self._keep_error}

    async def hold(self, clock: int | None) -> str:
        """Begin no clock after `clock` until another one, or None, is asked for; also before the job is started."""
        self._feed(HoldRequested(clock, _now()))
        return "ok"

    async def drain(self, nodes: Sequence[str], deadline_s: float) -> dict[str, Any]:
        """Begin a planned departure within `deadline_s`.

        Answers which names are `draining`, and which were `refused`: they are not known, or serve or keep shards that
        nobody else could. That is no status; ask for one to see when a node is drained.
        """
        controller, known = self.controller, self.controller.members.nodes
        held = not controller.leaving.may_leave(nodes)
        refused = [name for name in nodes if name not in known or (held and controller.leaving.must_stay(name))]
        allowed = tuple(name for name in nodes if name not in refused)
        self._feed(DrainRequested(allowed, deadline_s, _now()))
        return {"draining": list(allowed), "refused": refused}

    async def notice(self, node: str, seconds_left: float, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Take an eviction notice; answers whether the node is known.

        The node works on while there is time (`notices`). `about` (job_id, allocation_id, takes_at_s) goes on to the control plane, once an
        allocation.
        """
        self._feed(NoticeReceived(node, seconds_left, _now(), about))
        if about is not None and about["allocation_id"] not in self._reported:
            self._reported.add(about["allocation_id"])
            self._spawn(self._report(about))
        return {"known": node in self.controller.members.nodes}

    async def _report(self, about: Mapping[str, Any]) -> None:
        try:
            await asyncio.to_thread(self._world.report_notice, about)
        except Exception:
            # The control plane finds out at its next tick; the node is drained all the same.
            logger.exception("the notice was not reported")

    async def event(self, event: Any, process: str = "", moved: Mapping[str, int] | None = None) -> str:
        """Take what a node reports (an `Event`, packed), at our time, and what the process (its address) has moved by then."""
        if moved:
            self.controller.handle(BytesMoved(process, moved, _now()))  # nothing follows from it
        reported: Event = unpack(event)
        self._links.heard(reported, _now())
        self._feed(dataclasses.replace(reported, now_s=_now()))  # type: ignore[type-var]  # every event is a dataclass
        return "ok"

    async def shutdown(self) -> str:
        """Close every node (exit code 0) and then this process."""
        live = [node for node in self.controller.members.nodes.values() if not node.gone]
        await asyncio.gather(
            *(self._transport.call(node.address, "proteus_close", _CLOSE_DEADLINE_S) for node in live),
            return_exceptions=True,
        )
        self.closing.set()
        return "ok"

    # -- events in ------------------------------------------------------------------------------------------------

    def _on_joined(self, node: str, address: str, tier: Tier, threads: int, code_sha256: str = "") -> None:
        logger.info("node %s (%s, %d threads) joined at %s", node, tier, threads, address)
        self._feed(NodeJoined(node, address, tier, threads, _now(), code_sha256))

    def _on_lost(self, address: str, reason: str) -> None:
        """Take a loss; those that come with it are told along with it, so that all go back once and not with each."""
        self._queues.drop(address)
        if not self._lost:
            self._spawn(self._tell_lost())
        self._lost.setdefault(address, reason)

    async def _tell_lost(self) -> None:
        told_by, before = _now() + _LOSSES_TOGETHER_S, 0
        while len(self._lost) > before and _now() < told_by:
            before = len(self._lost)
            await asyncio.sleep(_LOSSES_APART_S)
        lost, self._lost = self._lost, {}
        self._feed(NodesLost(lost, _now()))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            # First who is not to be given anything: a tick sends what has failed again.
            await self._listen()
            self._feed(TimerFired(_now()))

    async def _listen(self) -> None:
        """Do without those whose heartbeats have stopped, whatever their connections say, and who is cut off from others."""
        known = {node.address: node for node in self.controller.members.nodes.values() if not node.gone}
        beats = {address: worker.last_seen for address, worker in self._scheduler.workers.items() if address in known}
        for address, silent_s in self._failure_detector.look(beats, _now(), self.controller.silence_timeout_s).items():
            logger.warning("%s is silent for %.1f s", address, silent_s)
            await self._give_up(address, f"it was silent for {silent_s:.1f} s")
        holds = self.controller.tiers.holds
        ends = {address: End(node.name, node.tier, holds(node.name)) for address, node in known.items()}
        if cut := self._links.look(ends, _now()):
            logger.warning("%s is done without: %s", cut.name, cut.reason)
            if cut.aside:
                self._feed(NodeUnfit(cut.name, cut.address, cut.reason, _now()))
            else:
                await self._give_up(cut.address, cut.reason)

    def _feed(self, event: Event) -> None:
        before = self.controller.state, self.controller.reason
        changes = len(self.controller.tiers.changes)
        instructions = self.controller.handle(event)
        # Before anything of it is carried out.
        said = [f"layout: {'; '.join(change)}" for change in self.controller.tiers.changes[changes:]]
        if loads := [order for order in instructions if isinstance(order, LoadPartitions)]:
            said.append(
                f"partitions: {'; '.join(f'{load.node} loads {format_ranges(load.partitions)}' for load in loads)}"
            )
        after = self.controller.state, self.controller.reason
        if after != before:
            said.append(f"job is {after[0]}{after[1] and f': {after[1]}'}")
        for text in said:
            logger.info("%s", text)
        self._book.tell(event, instructions, self.controller.history.common, said)
        for instruction in instructions:
            self._carry_out(instruction)

    # -- instructions out -----------------------------------------------------------------------------------------

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, GatherModel):
            self._spawn(self._gather(instruction))
            return
        if isinstance(instruction, SaveCheckpoint):
            self._spawn(self._keep(instruction))
            return
        if isinstance(instruction, Evaluate):
            task = self._spawn(self._evaluate(instruction))
            self._evaluations[task] = instruction.clock
            task.add_done_callback(self._evaluations.pop)
            return
        if instruction.address not in self._lost:
            self._queues.enqueue(instruction)

    def _refused(self, address: str, error: Exception) -> None:
        # It would cancel the delivery that tells us.
        self._spawn(self._give_up(address, f"it refused an order: {_line(error)}"))

    async def _give_up(self, address: str, reason: str) -> None:
        """Do without the process at `address`; it is told to close, so that its node comes back with a new one.

        If it cannot be told, it finds out when its heartbeats come through again, or its connection breaks.
        """
        self._on_lost(address, reason)
        await self._scheduler.remove_worker(address, stimulus_id="proteus-given-up")

    async def _gather(self, order: GatherModel) -> None:
        try:
            event: Event = await self._collect(order)
        except ApplicationRaised as error:
            logger.exception("the application failed")
            event = SaveFailed(str(error), True, _now())
        except Exception as error:
            # A node that is slow, a store that is away: the shards are still there, and the controller tries again.
            logger.exception("saving failed")
            event = SaveFailed(_line(error), False, _now())
        self._feed(event)

    async def _collect(self, order: GatherModel) -> ModelSaved | EffectsMissing:
        config = order.config
        shards, folded = await from_servers(self._transport, sharding_of(config), order.owners, order.committed)
        if lost := lost_effects(folded, order.committed, config.n_partitions):
            return EffectsMissing(lost, _now())  # before anything is written: a manifest means that the job is done
        self._count("model", shards)
        arrays = whole_tables(config, shards)
        figures = await self._evaluator.judge(config, arrays)
        await asyncio.gather(*self._evaluations, return_exceptions=True)  # so that the series of a job is whole
        history = self.controller.history
        result: dict[str, Any] = {**order.summary, **history.traffic.figures(), "lost_micro_tasks": lost}
        result["metrics_by_clock"] = [*history.evaluating.series(order.committed - 1), [order.committed, figures]]
        for name, value in figures.items():
            result.setdefault(name, value)  # whatever an application calls its figures, ours stay
        result["metrics"] = figures
        await asyncio.to_thread(self._world.save, config, arrays, result)
        return ModelSaved(result, _now())

    async def _evaluate(self, order: Evaluate) -> None:
        """Evaluate a clock beside the training."""
        metrics = await self._evaluator.evaluate(order)
        self._feed(Evaluated(order.clock, order.generation, metrics, _now()))

    async def _metrics(self, clock: int) -> list[list[Any]]:
        """Return the figures of the clocks up to `clock`, those under way too: who goes on from there has them no more."""
        if under_way := [task for task, of in self._evaluations.items() if of <= clock]:
            await asyncio.wait(under_way, timeout=_EVALUATION_PATIENCE_S)
        return self.controller.history.evaluating.series(clock)

    async def _keep(self, order: SaveCheckpoint) -> None:
        """Write a checkpoint; the workers go on meanwhile."""
        try:
            collect = from_keepers if order.from_keepers else from_servers
            shards, folded = await collect(self._transport, sharding_of(order.config), order.owners, order.committed)
            if lost := lost_effects(folded, order.committed, order.config.n_partitions):
                raise RuntimeError(f"{lost} effect(s) are missing from the shards")
            self._count("checkpoint", shards)
            summary = {**order.summary, "metrics_by_clock": await self._metrics(order.committed)}
            saved = await asyncio.to_thread(self._world.save_checkpoint, order.config, order.committed, shards, summary)
        except Exception as error:
            # A server that has moved on, a store that is away: the next one comes by itself.
            logger.exception("the checkpoint of clock %d failed", order.committed)
            self._keep_error, self._gone_on = _line(error), isinstance(error, GoneOn)
            self._feed(CheckpointFailed(self._keep_error, _now()))
        else:
            self._keep_error, self._gone_on = "", False
            self._feed(CheckpointSaved(saved, _now()))
        self._kept.set()
        self._kept = asyncio.Event()

    def _count(self, kind: str, shards: Mapping[int, Arrays]) -> None:
        """Count what was gathered, which is over the network, as the controller serves nothing."""
        self._moved[kind] += sent_bytes(shards.values())
        self.controller.handle(BytesMoved(CONTROLLER, dict(self._moved), _now()))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("background work of the controller failed", exc_info=error)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
