"""Which processes were lost: closed connections, stopped heartbeats, nodes that others cannot reach."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from distributed import Scheduler

from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.membership.event_batch import EventBatch
from proteus_spot.psengine.membership.failure_detector import FailureDetector
from proteus_spot.psengine.membership.reachability import End, Links
from proteus_spot.psengine.protocol.events import Event, NodesLost, NodeUnfit
from proteus_spot.psengine.rpc.transport import endpoint_and_mark
from proteus_spot.psengine.shell.dask_plugins import HELLO

logger = logging.getLogger(__name__)

#: Seconds to wait for another loss after each one, and maximum seconds that the first loss waits.
_LOSSES_APART_S, _LOSSES_TOGETHER_S = 0.02, 0.25


class NodeWatch:
    """Detects losses of nodes and reports them to the controller.

    Parameters
    ----------
    report : callable
        Passes an event to the controller.
    drop : callable
        Called with the address of a lost process: nothing more is sent to it.
    spawn : callable
        Runs a coroutine in the background.
    now_s : callable
        Returns the time, in seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        controller: Controller,
        report: Callable[[Event], None],
        drop: Callable[[str], None],
        spawn: Callable[[Any], asyncio.Task[None]],
        now_s: Callable[[], float],
    ) -> None:
        self._scheduler, self._controller = scheduler, controller
        self._report, self._drop, self._spawn, self._now = report, drop, spawn, now_s
        self._failure_detector = FailureDetector()
        self._links = Links()
        self._losses = EventBatch(_LOSSES_APART_S, _LOSSES_TOGETHER_S)
        #: {address: reason} of losses not passed to the controller yet.
        self._lost: dict[str, str] = {}

    def heard(self, event: Event, now_s: float) -> None:
        """Note which other nodes the sender of a report has reached, or not."""
        self._links.heard(event, now_s)

    def is_lost(self, address: str) -> bool:
        """Return whether the process at `address` was lost, and the controller does not know yet."""
        return address in self._lost

    def lose(self, address: str, reason: str) -> None:
        """Note a loss; losses that follow closely are passed on together, so that the job rolls back only once."""
        self._drop(address)
        if address not in self._lost:
            self._losses.add(self._now())
            self._lost[address] = reason
            if len(self._lost) == 1:
                self._spawn(self._report_lost())

    async def _report_lost(self) -> None:
        while not self._losses.take(self._now()):
            await asyncio.sleep(_LOSSES_APART_S)
        lost, self._lost = self._lost, {}
        self._report(NodesLost(lost, self._now()))

    async def exclude_failed(self, now_s: float) -> None:
        """Exclude nodes whose heartbeats have stopped, even if still connected, and nodes isolated from others."""
        live = dict(self._controller.job.members.present)
        workers, by_endpoint = self._scheduler.workers, {endpoint_and_mark(address)[0]: address for address in live}
        beats = {by_endpoint[at]: worker.last_seen for at, worker in workers.items() if at in by_endpoint}
        silent = self._failure_detector.look(beats, now_s, self._controller.silence_timeout_s)
        for address, silent_s in silent.items():
            logger.warning("%s has sent no heartbeat for %.1f s", address, silent_s)
            await self.exclude(address, f"no heartbeat for {silent_s:.1f} s")
        holds = self._controller.job.tiers.holds
        ends = {address: End(node.name, node.tier, holds(node.name)) for address, node in live.items()}
        if cut := self._links.look(ends, self._now()):
            logger.warning("%s is excluded: %s", cut.name, cut.reason)
            if cut.aside:
                self._report(NodeUnfit(cut.name, cut.address, cut.reason, self._now()))
            else:
                await self.exclude(cut.address, cut.reason)

    async def exclude(self, address: str, reason: str) -> None:
        """Exclude the process at `address`; the scheduler asks it to close, so that its node returns as a new process.

        If it cannot be reached, it closes when its heartbeats get through again, or its connection breaks.
        """
        self.lose(address, reason)
        endpoint, mark = endpoint_and_mark(address)
        worker = self._scheduler.workers.get(endpoint)
        if worker is not None and worker.extra.get(HELLO, {}).get("mark", "") != mark:
            return  # it has ended, and its successor listens there
        await self._scheduler.remove_worker(endpoint, stimulus_id="proteus-given-up")
