"""The threads of a local run: training, ticks and terminal."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from typing import Any, TypeVar

from bidding.market.spot_market import MarketError
from flows.terminal.run_view import RunProgress
from infra.clock import ScaledClock, SystemClock
from infra.errors import ProteusError
from tasks.job_spec import JobSpec

T = TypeVar("T")

_LOOK_S = 0.25
_NOTICE_LOOK_S = 0.2
#: Maximum number of consecutive failed ticks; the next successful one makes up for them.
_TICKS_MAY_FAIL = 2
#: Maximum real seconds for a running tick to end after the job has ended.
_TICK_ENDS_S = 4.0


class JobThreads:
    """Runs the training, the ticks and the terminal of one job, each in its own thread.

    The threads are daemons, so that the process can end: a flow that waits for a machine cannot be stopped.
    """

    def __init__(self, spec: JobSpec, clock: ScaledClock, progress: RunProgress) -> None:
        self._spec = spec
        self._clock = clock
        self._progress = progress
        self._done = threading.Event()

    def to_the_end(self) -> dict[str, Any]:
        """Train, tick and show until the training has ended; then let the paid hours run out."""
        from flows.train import train
        from tasks.reports.job_summary import snapshot, summary

        training = in_thread("train", partial(call_flow, partial(train, self._spec)))
        ticking = in_thread("tick", self._tick_until_done)
        try:
            while not training.done() and not ticking.done():
                self._show(snapshot)
                wait([training, ticking], timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        finally:
            self._done.set()
            self._progress.close()
            wait([ticking], timeout=_TICK_ENDS_S)
        _raise_first(ticking, training)
        training.result()
        ticking.result()
        self._progress.say("trained; the market's clock jumps over the paid rest of the last hours")
        running_out = in_thread("run out", self._run_out)
        while not running_out.done():
            wait([running_out], timeout=_LOOK_S)
        running_out.result()
        return summary(self._spec.job_id)

    def _tick_until_done(self) -> None:
        """Run the tick at every decision point, and the handler of every notice, until the training has ended."""
        from flows.allocation_tick import allocation_tick
        from flows.handle_eviction import handle_eviction
        from tasks.market.eviction_notices import seen_notices
        from tasks.market.tick import next_tick_s
        from tasks.reports.job_summary import snapshot

        while snapshot(self._spec.job_id) is None:  # nothing to decide before the job is recorded
            if self._clock.wait_until(self._clock.now_s() + _LOOK_S * self._clock.scale, self._done):
                return
        handled: set[str] = set()
        failed = 0
        tick_s = next_tick_s()
        while not self._clock.wait_until(
            min(tick_s, self._clock.now_s() + _NOTICE_LOOK_S * self._clock.scale), self._done
        ):
            try:
                for notice in seen_notices(self._spec.job_id):
                    if notice.allocation_id not in handled:
                        call_flow(partial(handle_eviction, notice))
                        handled.add(notice.allocation_id)
                if self._clock.now_s() >= tick_s:
                    call_flow(partial(allocation_tick, self._spec.job_id))
                    tick_s = next_tick_s()
                    failed = 0
            except (ProteusError, MarketError) as error:
                failed += 1
                if failed > _TICKS_MAY_FAIL:
                    raise
                self._progress.say(f"a tick failed and the next one mends it: {' '.join(str(error).split())}")
                tick_s = next_tick_s()

    def _run_out(self) -> None:
        """Jump from hour's end to hour's end until nothing is held; evictions in between are refunded."""
        from flows.allocation_tick import allocation_tick
        from tasks.job_leases import extend_leases
        from tasks.market.tick import next_hour_end_s

        extend_leases(self._spec.job_id)  # the clock must not jump over the end of a lease
        while (at_s := next_hour_end_s(self._spec.job_id)) is not None:
            self._clock.jump_to(at_s)
            call_flow(partial(allocation_tick, self._spec.job_id))

    def _show(self, snapshot: Callable[[str], Any]) -> None:
        shot = snapshot(self._spec.job_id)
        if shot is not None:
            self._progress.show(shot, SystemClock().now_s())


def call_flow(flow: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run an asynchronous flow in this thread."""
    return asyncio.run(flow())


def in_thread(name: str, call: Callable[[], T]) -> "Future[T]":
    """Call in a daemon thread, which does not outlive the main thread."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again by `Future.result`
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _raise_first(*futures: "Future[Any]") -> None:
    for future in futures:
        if future.done() and (error := future.exception()) is not None:
            raise error
