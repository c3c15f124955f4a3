"""The shell around the controller: feeds it events and carries out its instructions by calls to the nodes.

It lives in the scheduler's process and survives any client. Everything here runs on that process's event loop. It
decides nothing: see `controller`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from distributed import Scheduler

from proteus_spot.psengine.apps.registry import driver_of, resolve, scales_in
from proteus_spot.psengine.apps.returned import tables_of
from proteus_spot.psengine.config import JobConfig, JobError, Tier
from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.controller.state import ENDED, IMPORTING
from proteus_spot.psengine.controller.status import describe
from proteus_spot.psengine.protocol import events
from proteus_spot.psengine.protocol.instructions import (
    Evaluate,
    GatherModel,
    Instruction,
    LoadPartitions,
    SaveCheckpoint,
)
from proteus_spot.psengine.protocol.protocol_version import version_misfit
from proteus_spot.psengine.rpc.cancellation import cancel_all, on_thread
from proteus_spot.psengine.rpc.transport import Transfers, Transport
from proteus_spot.psengine.scheduling.driver_host import DriverFailed
from proteus_spot.psengine.shell.callbacks import ControllerCallbacks
from proteus_spot.psengine.shell.control_port import Handler
from proteus_spot.psengine.shell.dask_plugins import MembershipPlugin
from proteus_spot.psengine.shell.dask_transport import DaskTransport, unpack
from proteus_spot.psengine.shell.evaluator import sharding_of
from proteus_spot.psengine.shell.event_log_writer import EventLogWriter
from proteus_spot.psengine.shell.instruction_queues import InstructionQueues
from proteus_spot.psengine.shell.node_watch import NodeWatch
from proteus_spot.psengine.shell.state_saving import StateSaver
from proteus_spot.psengine.tables.allowed_values import WrongValue
from proteus_spot.psengine.telemetry.descriptions import Describer
from proteus_spot.psengine.telemetry.event_log import LayoutChanged, NodeReleased
from proteus_spot.psengine.telemetry.formatting import error_text, format_error, format_ranges
from proteus_spot.psengine.telemetry.training_progress import losses_of

logger = logging.getLogger(__name__)

_TICK_S = 0.25
_CLOSE_DEADLINE_S = 5.0
#: Maximum number of attempts at a requested checkpoint, if the servers have gone on before they received the request.
_TRIES = 20


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
        #: What each node has reported of a rebalance recommendation.
        self._rebalances: dict[str, Mapping[str, Any]] = {}
        self._scheduler = scheduler
        self._transport: Transport = transport or DaskTransport(scheduler)
        self._callbacks, self._now = callbacks, callbacks.now_s
        self._version = version
        self._queues = InstructionQueues(self._transport, self._spawn, self._on_rejected)
        self._watch = NodeWatch(scheduler, self.controller, self._feed, self._queues.drop, self._spawn, self._now)
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Lock()
        self._saver = StateSaver(Transfers(self._transport), callbacks, self.controller.job.history, self._feed)
        self._describer = Describer(self.controller.job.history.log, callbacks.wall_s)
        self._writer = EventLogWriter(callbacks.keep_page, self.controller.job.history.log)

    def open(self) -> None:
        """Register handlers and plugin; the scheduler must be running."""
        self._scheduler.add_plugin(MembershipPlugin(self._on_joined, self._watch.lose))
        self._scheduler.handlers.update(
            proteus_notice=self.notice, proteus_rebalance=self.rebalance, proteus_event=self.event
        )
        self._spawn(self._tick())
        self._spawn(self._writer.run())

    @property
    def control(self) -> dict[str, Handler]:
        """What the control plane may ask for, by name."""
        names = ("start", "status", "stop", "hold", "drain", "notice", "checkpoint", "traffic", "shutdown")
        return {name: getattr(self, name) for name in names}

    async def close(self) -> None:
        """End background work, and the event log."""
        self._describer.flush()
        await self._writer.write()
        self._queues.clear()
        await cancel_all(self._tasks)

    # -- handlers, called by tasks, flows and nodes -----------------------------------------------------------------

    async def start(self, job: dict[str, Any]) -> dict[str, Any]:
        """Start the job, attach to it if it runs, or find it finished. Returns {"error": line} for an invalid job."""
        try:
            config = JobConfig.from_dict(job)
            if self.controller.job.config is None:
                self.controller.job.reason = f"{IMPORTING} {config.app}"
            await on_thread(self._callbacks.load_code, config)
            # a user's imports may be slow
            config = dataclasses.replace(config, scale_in=await on_thread(scales_in, config))
            app = await on_thread(resolve, config.app, config.app_params)
            await on_thread(tables_of, app)
        except JobError as error:
            return {"error": error_text(error)}
        except WrongValue as error:
            return {"error": format_error(error, config.app)}
        async with self._starting:
            current = self.controller.job.config
            if current is not None and current.job_id != config.job_id:
                return {"error": f"this controller runs job {current.job_id!r}, not {config.job_id!r}"}
            if current is None:
                finished = await on_thread(self._callbacks.find_finished, config)
                if finished is not None:
                    self._feed(
                        events.JobFoundFinished(
                            config, finished, tuple(losses_of(finished)), finished["lost_micro_tasks"], self._now()
                        )
                    )
                else:
                    try:
                        found = await on_thread(self._callbacks.find_checkpoints, config)
                    except JobError as error:
                        return {"error": error_text(error)}
                    if found.newest is not None:
                        clock = found.newest.clock
                        logger.info("job %s continues from its checkpoint of clock %d", config.job_id, clock)
                    self._feed(
                        events.JobStarted(config, self._now(), found.newest, tuple(found.kept[1:]), found.damaged)
                    )
                if self.controller.job.config is None:
                    return {"error": self.fault}
        return await self.status(since_clock=describe(self.controller.job, 0, self._now())["clock"])

    async def status(self, since_clock: int = 0) -> dict[str, Any]:
        """Return the status (see `status.describe`), JSON-able, with the losses of the clocks after `since_clock`.

        In addition it holds when the job was `started`, and the `rebalances` that nodes reported.
        """
        now_s = self._now()
        try:
            status = describe(self.controller.job, since_clock, now_s)
        except DriverFailed as error:  # in its own figures; now it is asked no more
            self.controller.fail_by_driver(error)
            status = describe(self.controller.job, since_clock, now_s)
        elapsed = status["elapsed_s"]
        status["started"] = None if elapsed is None else self._callbacks.wall_s() - elapsed
        status["rebalances"] = list(self._rebalances.values())
        return status

    async def stop(self, reason: str = "asked to stop") -> dict[str, Any]:
        """End the job at the clock under way and save the model, unless no clock was begun."""
        self._feed(events.StopRequested(reason, self._now()))
        return await self.status(since_clock=self.controller.job.tasks.common if self.controller.job.tasks else 0)

    async def checkpoint(self) -> dict[str, Any]:
        """Save the committed state; returns {"clock": clock of the newest checkpoint, "error": "" unless it failed}."""
        tasks, saver, tries = self.controller.job.tasks, self._saver, 0
        saver.checkpoint_error = ""
        wanted = 0 if tasks is None else tasks.common
        while self.controller.job.checkpoints.group < wanted and self.controller.job.state not in ENDED:
            if saver.too_late and tries < _TRIES:  # the clock had ended before its servers received the request
                saver.checkpoint_error = ""
            self._feed(events.CheckpointRequested(self._now()))
            if self.controller.job.checkpoints.under_way is None or saver.checkpoint_error:
                break  # there is nothing to save (any more), or the store failed
            tries += 1
            await saver.checkpoint_ended()
        clock = self.controller.job.progress.clock_at(self.controller.job.checkpoints.group)
        return {"clock": clock, "error": saver.checkpoint_error}

    async def traffic(self) -> dict[str, Any]:
        """Return `links`, what pairs of nodes have exchanged (see `byte_counts`), and `model_bytes`."""
        config = self.controller.job.config
        model_bytes = 0
        if config is not None:
            sharding = await on_thread(sharding_of, config)
            model_bytes = sharding.all_bytes(range(config.n_shards))
        return {"links": self.controller.job.history.traffic.links(), "model_bytes": model_bytes}

    async def hold(self, clock: int | None) -> str:
        """Begin no clock after `clock` until another one, or None, is requested; also before the job is started."""
        self._feed(events.HoldRequested(clock, self._now()))
        return "ok"

    async def drain(self, nodes: Sequence[str], deadline_s: float) -> dict[str, Any]:
        """Drain nodes within `deadline_s` seconds.

        Returns the names that are `draining`, and those that were `refused`: unknown nodes, and nodes with shards or
        replicas that no other node could hold. Poll the status to see when a node is drained.
        """
        refused = self.controller.job.departures.refused(nodes)
        allowed = tuple(name for name in nodes if name not in refused)
        self._feed(events.DrainRequested(allowed, deadline_s, self._now()))
        return {"draining": list(allowed), "refused": refused}

    async def notice(self, node: str, seconds_left: float, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Process an eviction notice; returns whether the node is known.

        The node works on while time is left (`draining`). `about` (job_id, allocation_id, takes_at_s) is reported to
        the control plane, once per node.
        """
        self._feed(events.NoticeReceived(node, seconds_left, self._now(), about))
        if about is not None and node not in self._reported:
            self._reported.add(node)
            self._spawn(self._report(about))
        return {"known": node in self.controller.job.members.nodes}

    async def rebalance(self, node: str, about: Mapping[str, Any]) -> str:
        """Keep a rebalance recommendation of a node, the first one, for the status; the node works as before.

        Parameters
        ----------
        about : job_id, allocation_id, instance_id, at_s.
        """
        if node not in self._rebalances:
            logger.info("node %s: a rebalance is recommended", node)
            self._rebalances[node] = about
        return "ok"

    async def _report(self, about: Mapping[str, Any]) -> None:
        try:
            await on_thread(self._callbacks.report_notice, about)
        except Exception:
            # The control plane detects it at its next tick; the node is drained in any case.
            logger.exception("the notice was not reported")

    async def event(
        self,
        event: Any,
        process: str = "",
        moved: Mapping[str, int] | None = None,
        memory: Mapping[str, int] | None = None,
    ) -> str:
        """Process a node's report (a packed `Event`), timed here.

        With it come the bytes that its process (an address) has `moved`, and its `memory`, both by kind.
        """
        try:
            if moved or memory:
                self.controller.handle(events.UsageMeasured(process, moved or {}, memory or {}, self._now()))
            reported: events.Event = unpack(event)
            self._watch.heard(reported, self._now())
        except Exception as error:  # noqa: BLE001 - raised at the node, it would end that in place of the job
            self._fail("a report", error)
            return "ok"
        self._feed(dataclasses.replace(reported, now_s=self._now()))  # type: ignore[type-var]  # every event is a dataclass
        return "ok"

    async def shutdown(self) -> str:
        """Close every node (exit code 0), then this process."""
        live = list(self.controller.job.members.present.values())
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
        self._feed(events.NodeJoined(node, address, tier, threads, self._now(), code_sha256, misfit))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._tick_s)
            await self.tick()

    async def tick(self) -> None:
        """Look at the nodes and let the time pass; it happens every `tick_s` seconds by itself."""
        # First exclude nodes: the timer event dispatches failed work again.
        await self._watch.exclude_failed(self._now())
        self._feed(events.TimerFired(self._now()))

    def _feed(self, event: events.Event) -> None:
        """Have the controller process an event, and carry out its instructions; an exception fails the job.

        After that only joins and losses are processed: the controller's state may be half changed, and a job that goes
        on from its checkpoint does so in another process.
        """
        if self.fault and not isinstance(event, events.NodeJoined | events.NodesLost):
            return
        try:
            self._process(event)
        except Exception as error:  # noqa: BLE001 - any fault of the controller, or of a driver that it runs
            self._fail(type(event).__name__, error)

    def _fail(self, during: str, error: BaseException) -> None:
        """End the job, which nothing drives any more, with the line of an unexpected `error`.

        Without a job, this process ends: nothing is lost, and its supervisor starts it again.
        """
        if isinstance(error, DriverFailed):
            self.controller.fail_by_driver(error)
            return
        logger.error("a fault in the controller (%s)", during, exc_info=error)
        config = self.controller.job.config
        line = f"a fault in the controller ({during}): {format_error(error, '' if config is None else config.app)}"
        self.fault = self.fault or line
        if config is None:
            self.closing.set()
        else:
            self.controller.fail(self.fault)

    def _process(self, event: events.Event) -> None:
        before = self.controller.job.state, self.controller.job.reason
        log = self.controller.job.history.log
        n_before = log.n_events
        n_remarks = len(self._remarks())
        instructions = self.controller.handle(event)
        # Log before anything is carried out.
        lines = [f"layout: {'; '.join(layout.lines)}" for _, layout in log.since(n_before, LayoutChanged)]
        if loads := [instruction for instruction in instructions if isinstance(instruction, LoadPartitions)]:
            lines.append(
                f"partitions: {'; '.join(f'{load.node} loads {format_ranges(load.partitions)}' for load in loads)}"
            )
        lines += [
            f"{release.node} is drained, {release.seconds:.3g} s after {release.event}"
            for _, release in log.since(n_before, NodeReleased)
        ]
        lines += self._remarks()[n_remarks:]
        after = self.controller.job.state, self.controller.job.reason
        if after != before:
            lines.append(f"job is {after[0]}{after[1] and f': {after[1]}'}")
        for line in lines:
            logger.info("%s", line)
        self._describer.describe(event, instructions, self.controller.job.history.clock, lines)
        for instruction in instructions:
            self._carry_out(instruction)

    def _remarks(self) -> tuple[str, ...]:
        driver = self.controller.job.driver
        return driver.remarks if driver is not None else ()

    # -- instructions out -----------------------------------------------------------------------------------------

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case GatherModel():
                self._spawn(self._saver.save_model(instruction))
            case SaveCheckpoint():
                self._spawn(self._saver.save_checkpoint(instruction))
            case Evaluate():
                self._saver.add_evaluation(self._spawn(self._saver.evaluate(instruction)), instruction.group)
            case _ if not self._watch.is_lost(instruction.address):
                self._queues.enqueue(instruction)

    def _on_rejected(self, address: str, error: Exception) -> None:
        # In the background, since it cancels the delivery that is calling.
        self._spawn(self._watch.exclude(address, f"it rejected an instruction: {format_error(error)}"))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail("background work", error)
