"""The shell around the controller: feeds it events and carries out its instructions by calls to the nodes.

It lives in the scheduler's process and survives any client. Everything here runs on that process's event loop; only
evaluation and saving run on a thread. It decides nothing: see `controller`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from distributed import Scheduler
from numpy.typing import NDArray

from psengine.apps.registry import driver_of, resolve
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
from psengine.protocol.executor_state import StateRef
from psengine.protocol.instructions import (
    Evaluate,
    GatherModel,
    Instruction,
    LoadPartitions,
    SaveCheckpoint,
    ShardOwner,
)
from psengine.protocol.version import version_misfit
from psengine.rpc.cancellation import cancel_all
from psengine.rpc.transfers import Transfers
from psengine.rpc.transport import Transport, endpoint_and_mark
from psengine.scheduling.micro_tasks import lost_effects
from psengine.shell.control_port import Handler
from psengine.shell.dask_plugins import HELLO, MembershipPlugin
from psengine.shell.dask_transport import DaskTransport, unpack
from psengine.shell.evaluator import ApplicationRaised, Evaluator, own_states, sharding_of, whole_tables
from psengine.shell.event_log_writer import KeepPage, Storybook
from psengine.shell.instruction_queues import InstructionQueues
from psengine.shell.shard_gathering import from_replicas, from_servers
from psengine.shell.state_gathering import GoneOn, states_at
from psengine.tables.sharding import Arrays
from psengine.telemetry.byte_counts import CONTROLLER, link, sent_bytes
from psengine.telemetry.event_log import Entry
from psengine.telemetry.formatting import format_error, format_ranges
from psengine.telemetry.training_progress import losses_of

logger = logging.getLogger(__name__)

_TICK_S = 0.25
_CLOSE_DEADLINE_S = 5.0
#: Seconds to wait for another loss after each one, and maximum seconds that the first loss waits.
_LOSSES_APART_S, _LOSSES_TOGETHER_S = 0.02, 0.25
#: Maximum seconds that a gathered checkpoint waits for evaluations of earlier clocks.
_EVALUATION_TIMEOUT_S = 10.0
#: Maximum number of attempts at a requested checkpoint, if the servers have gone on before they received the request.
_TRIES = 20


def _installed(config: JobConfig) -> None:
    """Load no code: the application's module is installed on this machine."""


def _store_no_page(number: int, entries: Sequence[Entry]) -> None:
    """Store no event log."""


@dataclasses.dataclass(frozen=True)
class ControllerCallbacks:
    """Access of the shell to stores and clocks, implemented by infra.

    `read_heldout(data_url)` returns arrays, `save(config, arrays, result)` writes the model and then its manifest,
    `find_finished(config)` returns the result of an existing manifest or None. `save_checkpoint(config, clock, shards,
    summary, states, carried)` writes a checkpoint, reads it back and drops older ones: `states` are those of executors,
    `carried` gives the earlier checkpoint that has the state of an executor which has not run since.
    `find_checkpoint(config)` returns the newest complete one or None, and raises `JobError` if it is of another job.
    `load_code(config)` prepares the import of the application's module, and raises `JobError` if it is not the
    config's. `report_notice(about)` reports an eviction notice to the control plane. `keep_page(number, entries)`
    stores a page of the job's event log. All of these block and run on threads. `wall_s()` returns the time of day, for
    display.
    """

    read_heldout: Callable[[str], Mapping[str, NDArray[np.generic]]]
    save: Callable[[JobConfig, Arrays, dict[str, Any]], None]
    find_finished: Callable[[JobConfig], dict[str, Any] | None]
    wall_s: Callable[[], float]
    report_notice: Callable[[Mapping[str, Any]], None]
    save_checkpoint: Callable[
        [JobConfig, int, Mapping[int, Arrays], Mapping[str, Any], Mapping[int, Arrays], Mapping[int, str]], Checkpoint
    ]
    find_checkpoint: Callable[[JobConfig], Checkpoint | None]
    load_code: Callable[[JobConfig], None] = _installed
    keep_page: KeepPage = _store_no_page


class ControllerShell:
    """The controller's process, except for Dask's scheduler itself."""

    def __init__(
        self,
        scheduler: Scheduler,
        callbacks: ControllerCallbacks,
        transport: Transport | None = None,
        version: str = "",
        tick_s: float = _TICK_S,
    ) -> None:
        self.controller = Controller(driver_of)
        self._tick_s = tick_s
        self.closing = asyncio.Event()
        #: The first fault of the controller, as one line; empty while there is none.
        self.fault = ""
        self._reported: set[str] = set()
        self._scheduler = scheduler
        self._transport: Transport = transport or DaskTransport(scheduler)
        self._transfers = Transfers(self._transport)
        self._callbacks = callbacks
        self._version = version
        self._failure_detector = FailureDetector()
        self._links = Links()
        self._queues = InstructionQueues(self._transport, self._spawn, self._on_rejected)
        #: {address: reason} of losses not passed to the controller yet.
        self._lost: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Lock()
        #: Set and replaced whenever a checkpoint was written, or failed.
        self._checkpoint_ended = asyncio.Event()
        self._checkpoint_error = ""
        self._gone_on = False
        self._evaluator = Evaluator(self._transfers, callbacks.read_heldout, partial(self._count, "evaluate"))
        #: {task of an evaluation: its clock}.
        self._evaluations: dict[asyncio.Task[None], int] = {}
        #: Bytes gathered by kind, since the beginning.
        self._moved: Counter[str] = Counter()
        self._event_log = Storybook(callbacks.keep_page, callbacks.wall_s)

    def open(self) -> None:
        """Register handlers and plugin; the scheduler must be running."""
        self._scheduler.add_plugin(MembershipPlugin(self._on_joined, self._on_lost))
        self._scheduler.handlers.update(proteus_notice=self.notice, proteus_event=self.event)
        self._spawn(self._tick())
        self._spawn(self._event_log.run())

    @property
    def control(self) -> dict[str, Handler]:
        """What the control plane may ask for, by name."""
        return {
            "start": self.start,
            "status": self.status,
            "stop": self.stop,
            "hold": self.hold,
            "drain": self.drain,
            "notice": self.notice,
            "checkpoint": self.checkpoint,
            "traffic": self.traffic,
            "shutdown": self.shutdown,
        }

    async def close(self) -> None:
        """End background work, and the event log."""
        await self._event_log.write(last=True)
        self._queues.clear()
        await cancel_all(self._tasks)

    # -- handlers, called by tasks, flows and nodes -----------------------------------------------------------------

    async def start(self, job: dict[str, Any]) -> dict[str, Any]:
        """Start the job, attach to it if it runs, or find it finished. Returns {"error": line} for an invalid job."""
        try:
            config = JobConfig.from_dict(job)
            await asyncio.to_thread(self._callbacks.load_code, config)
            await asyncio.to_thread(resolve, config.app, config.app_params)  # a user's imports may be slow
        except JobError as error:
            return {"error": str(error)}
        async with self._starting:
            current = self.controller.config
            if current is not None and current.job_id != config.job_id:
                return {"error": f"this controller runs job {current.job_id!r}, not {config.job_id!r}"}
            if current is None:
                finished = await asyncio.to_thread(self._callbacks.find_finished, config)
                if finished is not None:
                    self._feed(
                        JobFoundFinished(
                            config, finished, tuple(losses_of(finished)), finished["lost_micro_tasks"], _now()
                        )
                    )
                else:
                    try:
                        checkpoint = await asyncio.to_thread(self._callbacks.find_checkpoint, config)
                    except JobError as error:
                        return {"error": str(error)}
                    if checkpoint is not None:
                        logger.info("job %s continues from its checkpoint of clock %d", config.job_id, checkpoint.clock)
                    self._feed(JobStarted(config, _now(), checkpoint))
                if self.controller.config is None:
                    return {"error": self.fault}
        return await self.status(since_clock=describe(self.controller, 0, _now())["clock"])

    async def status(self, since_clock: int = 0) -> dict[str, Any]:
        """Return the status (see `status.describe`), JSON-able, with the losses of the clocks after `since_clock`."""
        now_s = _now()
        status = describe(self.controller, since_clock, now_s)
        elapsed = status["elapsed_s"]
        status["started"] = None if elapsed is None else self._callbacks.wall_s() - elapsed
        return status

    async def stop(self, reason: str = "asked to stop") -> dict[str, Any]:
        """End the job at the clock under way and save the model, unless no clock was begun."""
        self._feed(StopRequested(reason, _now()))
        return await self.status(since_clock=self.controller.book.common if self.controller.book else 0)

    async def checkpoint(self) -> dict[str, Any]:
        """Save the committed state; returns {"clock": clock of the newest checkpoint, "error": "" unless it failed}."""
        book, self._checkpoint_error, tries = self.controller.book, "", 0
        wanted = 0 if book is None else book.common
        while self.controller.checkpoints.clock < wanted and self.controller.state not in ENDED:
            if self._gone_on and tries < _TRIES:  # the clock had ended before its servers received the request
                self._checkpoint_error = ""
            self._feed(CheckpointRequested(_now()))
            if self.controller.checkpoints.under_way is None or self._checkpoint_error:
                break  # there is nothing to save (any more), or the store failed
            tries += 1
            await self._checkpoint_ended.wait()
        return {"clock": self.controller.checkpoints.clock, "error": self._checkpoint_error}

    async def traffic(self) -> dict[str, Any]:
        """Return `links`, what pairs of nodes have exchanged (see `byte_counts`), and `model_bytes`."""
        config = self.controller.config
        model_bytes = 0
        if config is not None:
            sharding = await asyncio.to_thread(sharding_of, config)
            model_bytes = sharding.all_bytes(range(config.n_shards))
        return {"links": self.controller.history.traffic.links(), "model_bytes": model_bytes}

    async def hold(self, clock: int | None) -> str:
        """Begin no clock after `clock` until another one, or None, is requested; also before the job is started."""
        self._feed(HoldRequested(clock, _now()))
        return "ok"

    async def drain(self, nodes: Sequence[str], deadline_s: float) -> dict[str, Any]:
        """Drain nodes within `deadline_s` seconds.

        Returns the names that are `draining`, and those that were `refused`: unknown nodes, and nodes with shards or
        replicas that no other node could hold. Poll the status to see when a node is drained.
        """
        controller, members = self.controller, self.controller.members.nodes
        held = not controller.leaving.may_leave(nodes)
        refused = [name for name in nodes if name not in members or (held and controller.leaving.must_stay(name))]
        allowed = tuple(name for name in nodes if name not in refused)
        self._feed(DrainRequested(allowed, deadline_s, _now()))
        return {"draining": list(allowed), "refused": refused}

    async def notice(self, node: str, seconds_left: float, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Process an eviction notice; returns whether the node is known.

        The node works on while time is left (`draining`). `about` (job_id, allocation_id, takes_at_s) is reported to
        the control plane, once per node.
        """
        self._feed(NoticeReceived(node, seconds_left, _now(), about))
        if about is not None and node not in self._reported:
            self._reported.add(node)
            self._spawn(self._report(about))
        return {"known": node in self.controller.members.nodes}

    async def _report(self, about: Mapping[str, Any]) -> None:
        try:
            await asyncio.to_thread(self._callbacks.report_notice, about)
        except Exception:
            # The control plane detects it at its next tick; the node is drained in any case.
            logger.exception("the notice was not reported")

    async def event(self, event: Any, process: str = "", moved: Mapping[str, int] | None = None) -> str:
        """Process a node's report (a packed `Event`), timed here, and the bytes `moved` by its process (an address)."""
        try:
            if moved:
                self.controller.handle(BytesMoved(process, moved, _now()))  # it returns no instruction
            reported: Event = unpack(event)
            self._links.heard(reported, _now())
        except Exception as error:  # noqa: BLE001 - raised at the node, it would end that in place of the job
            self._fail("a report", error)
            return "ok"
        self._feed(dataclasses.replace(reported, now_s=_now()))  # type: ignore[type-var]  # every event is a dataclass
        return "ok"

    async def shutdown(self) -> str:
        """Close every node (exit code 0), then this process."""
        live = list(self.controller.members.present.values())
        await asyncio.gather(
            *(self._transport.call(node.address, "proteus_close", _CLOSE_DEADLINE_S) for node in live),
            return_exceptions=True,
        )
        self.closing.set()
        return "ok"

    # -- events in ------------------------------------------------------------------------------------------------

    def _on_joined(
        self, node: str, address: str, tier: Tier, threads: int, code_sha256: str = "", version: str = ""
    ) -> None:
        logger.info("node %s (%s, %d threads) joined at %s", node, tier, threads, address)
        if misfit := version_misfit("it", version, "the controller", self._version):
            logger.error("node %s is refused: %s", node, misfit)
        self._feed(NodeJoined(node, address, tier, threads, _now(), code_sha256, misfit))

    def _on_lost(self, address: str, reason: str) -> None:
        """Note a loss; losses that follow closely are passed on together, so that the job rolls back only once."""
        self._queues.drop(address)
        if not self._lost:
            self._spawn(self._feed_lost())
        self._lost.setdefault(address, reason)

    async def _feed_lost(self) -> None:
        until_s, before = _now() + _LOSSES_TOGETHER_S, 0
        while len(self._lost) > before and _now() < until_s:
            before = len(self._lost)
            await asyncio.sleep(_LOSSES_APART_S)
        lost, self._lost = self._lost, {}
        self._feed(NodesLost(lost, _now()))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            await self.tick()

    async def tick(self) -> None:
        """Look at the nodes and let the time pass; it happens every `tick_s` seconds by itself."""
        # First exclude nodes: the timer event dispatches failed work again.
        await self._exclude_failed()
        self._feed(TimerFired(_now()))

    async def _exclude_failed(self) -> None:
        """Exclude nodes whose heartbeats have stopped, even if still connected, and nodes isolated from others."""
        live = dict(self.controller.members.present)
        workers, by_endpoint = self._scheduler.workers, {endpoint_and_mark(address)[0]: address for address in live}
        beats = {by_endpoint[at]: worker.last_seen for at, worker in workers.items() if at in by_endpoint}
        for address, silent_s in self._failure_detector.look(beats, _now(), self.controller.silence_timeout_s).items():
            logger.warning("%s has sent no heartbeat for %.1f s", address, silent_s)
            await self._exclude(address, f"no heartbeat for {silent_s:.1f} s")
        holds = self.controller.tiers.holds
        ends = {address: End(node.name, node.tier, holds(node.name)) for address, node in live.items()}
        if cut := self._links.look(ends, _now()):
            logger.warning("%s is excluded: %s", cut.name, cut.reason)
            if cut.aside:
                self._feed(NodeUnfit(cut.name, cut.address, cut.reason, _now()))
            else:
                await self._exclude(cut.address, cut.reason)

    def _feed(self, event: Event) -> None:
        """Have the controller process an event, and carry out its instructions; an exception fails the job.

        After that only joins and losses are processed: the controller's state may be half changed, and a job that goes
        on from its checkpoint does so in another process.
        """
        if self.fault and not isinstance(event, NodeJoined | NodesLost):
            return
        try:
            self._process(event)
        except Exception as error:  # noqa: BLE001 - any fault of the controller, or of a driver that it runs
            self._fail(type(event).__name__, error)

    def _fail(self, during: str, error: BaseException) -> None:
        """End the job, which nothing drives any more, with the line of an unexpected `error`.

        Without a job, this process ends: nothing is lost, and its supervisor starts it again.
        """
        logger.error("a fault in the controller (%s)", during, exc_info=error)
        config = self.controller.config
        line = f"a fault in the controller ({during}): {format_error(error, '' if config is None else config.app)}"
        self.fault = self.fault or line
        if config is None:
            self.closing.set()
        else:
            self.controller.fail(self.fault)

    def _process(self, event: Event) -> None:
        before = self.controller.state, self.controller.reason
        changes = len(self.controller.tiers.changes)
        instructions = self.controller.handle(event)
        # Log before anything is carried out.
        lines = [f"layout: {'; '.join(change)}" for change in self.controller.tiers.changes[changes:]]
        if loads := [instruction for instruction in instructions if isinstance(instruction, LoadPartitions)]:
            lines.append(
                f"partitions: {'; '.join(f'{load.node} loads {format_ranges(load.partitions)}' for load in loads)}"
            )
        after = self.controller.state, self.controller.reason
        if after != before:
            lines.append(f"job is {after[0]}{after[1] and f': {after[1]}'}")
        for line in lines:
            logger.info("%s", line)
        self._event_log.tell(event, instructions, self.controller.history.common, lines)
        for instruction in instructions:
            self._carry_out(instruction)

    # -- instructions out -----------------------------------------------------------------------------------------

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, GatherModel):
            self._spawn(self._gather(instruction))
            return
        if isinstance(instruction, SaveCheckpoint):
            self._spawn(self._save_checkpoint(instruction))
            return
        if isinstance(instruction, Evaluate):
            task = self._spawn(self._evaluate(instruction))
            self._evaluations[task] = instruction.clock
            task.add_done_callback(self._evaluations.pop)
            return
        if instruction.address not in self._lost:
            self._queues.enqueue(instruction)

    def _on_rejected(self, address: str, error: Exception) -> None:
        # In the background, since it cancels the delivery that is calling.
        self._spawn(self._exclude(address, f"it rejected an instruction: {_line(error)}"))

    async def _exclude(self, address: str, reason: str) -> None:
        """Exclude the process at `address`; the scheduler asks it to close, so that its node returns as a new process.

        If it cannot be reached, it closes when its heartbeats get through again, or its connection breaks.
        """
        self._on_lost(address, reason)
        endpoint, mark = endpoint_and_mark(address)
        worker = self._scheduler.workers.get(endpoint)
        if worker is not None and worker.extra.get(HELLO, {}).get("mark", "") != mark:
            return  # it has ended, and its successor listens there
        await self._scheduler.remove_worker(endpoint, stimulus_id="proteus-given-up")

    async def _gather(self, instruction: GatherModel) -> None:
        try:
            event: Event = await self._collect(instruction)
        except ApplicationRaised as error:
            logger.exception("the application failed")
            event = SaveFailed(str(error), True, _now())
        except Exception as error:
            # For example a slow node, or a store outage: the shards are still served, and the controller retries.
            logger.exception("saving failed")
            event = SaveFailed(_line(error), False, _now())
        self._feed(event)

    async def _collect(self, instruction: GatherModel) -> ModelSaved | EffectsMissing:
        config, committed = instruction.config, instruction.committed
        sharding = await asyncio.to_thread(sharding_of, config)
        shards, folded = await from_servers(self._transfers, sharding, instruction.owners, committed)
        if lost := lost_effects(folded, instruction.effects):
            return EffectsMissing(lost, _now())  # before anything is written: a manifest means that the job is done
        states = await own_states(self._transfers, config, instruction.states)
        await self._count("model", shards, instruction.owners, states, instruction.states)
        arrays = await asyncio.to_thread(whole_tables, config, shards, states)
        figures = await self._evaluator.evaluate_tables(config, arrays)
        await asyncio.gather(*self._evaluations, return_exceptions=True)  # so that the series is complete
        history = self.controller.history
        result: dict[str, Any] = {**instruction.summary, **history.traffic.figures(), "lost_micro_tasks": lost}
        result["bytes_by_link"] = history.traffic.links()
        result["metrics_by_clock"] = [*history.evaluating.series(committed - 1), [committed, figures]]
        for name, value in figures.items():
            result.setdefault(name, value)  # an application's figures never replace the engine's
        result["metrics"] = figures
        await asyncio.to_thread(self._callbacks.save, config, arrays, result)
        return ModelSaved(result, _now())

    async def _evaluate(self, instruction: Evaluate) -> None:
        """Evaluate a clock beside the training."""
        metrics = await self._evaluator.evaluate(instruction)
        self._feed(Evaluated(instruction.clock, instruction.generation, metrics, _now()))

    async def _metrics(self, clock: int) -> list[list[Any]]:
        """Return the figures of the clocks up to `clock`, also those under way: a resumed job cannot repeat them."""
        if under_way := [task for task, evaluated in self._evaluations.items() if evaluated <= clock]:
            await asyncio.wait(under_way, timeout=_EVALUATION_TIMEOUT_S)
        return self.controller.history.evaluating.series(clock)

    async def _save_checkpoint(self, instruction: SaveCheckpoint) -> None:
        """Write a checkpoint while the training goes on."""
        config, committed = instruction.config, instruction.committed
        try:
            collect = from_replicas if instruction.from_replicas else from_servers
            sharding = await asyncio.to_thread(sharding_of, config)
            shards, folded = await collect(self._transfers, sharding, instruction.owners, committed)
            if lost := lost_effects(folded, instruction.effects):
                raise RuntimeError(f"{lost} effect(s) are missing from the shards")
            states = await states_at(self._transfers, instruction.states)
            carried = {ref.executor: ref.checkpoint for ref in instruction.states if ref.checkpoint}
            await self._count("checkpoint", shards, instruction.owners, states, instruction.states)
            summary = {**instruction.summary, "metrics_by_clock": await self._metrics(committed)}
            saved = await asyncio.to_thread(
                self._callbacks.save_checkpoint, config, committed, shards, summary, states, carried
            )
        except Exception as error:
            # For example a server that has gone on, or a store outage: the next checkpoint follows automatically.
            logger.exception("the checkpoint of clock %d failed", committed)
            self._checkpoint_error, self._gone_on = _line(error), isinstance(error, GoneOn)
            self._feed(CheckpointFailed(self._checkpoint_error, _now()))
        else:
            self._checkpoint_error, self._gone_on = "", False
            self._feed(CheckpointSaved(saved, _now()))
        self._checkpoint_ended.set()
        self._checkpoint_ended = asyncio.Event()

    async def _count(
        self,
        kind: str,
        shards: Mapping[int, Arrays],
        owners: Iterable[ShardOwner],
        states: Mapping[int, Arrays],
        refs: Iterable[StateRef],
    ) -> None:
        """Count gathered bytes; all come over the network, since the controller serves nothing."""
        gathered = [(owner.address, shards[owner.shard]) for owner in owners if owner.shard in shards]
        gathered += [(ref.address, states[ref.executor]) for ref in refs if ref.executor in states]

        def measure() -> list[tuple[str, int]]:
            return [(address, sent_bytes([arrays])) for address, arrays in gathered]

        for address, n_bytes in await asyncio.to_thread(measure):
            self._moved[kind] += n_bytes
            self._moved[link(address)] += n_bytes
        self.controller.handle(BytesMoved(CONTROLLER, dict(self._moved), _now()))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail("background work", error)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
