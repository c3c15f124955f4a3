"""The threads of a local run: the flow of a job or sweep, ticks and terminal.

Ticks, and the handlers of eviction notices, are called at market times in this process: Prefect's schedules run on wall
time, and a worker starts a flow seconds later, which is longer than a scaled tick.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.flows.terminal.run_view import Display
from proteus_spot.infra.clock import ScaledClock, SystemClock
from proteus_spot.infra.errors import ProteusError

T = TypeVar("T")
S = TypeVar("S")

#: Minimum real seconds of a tick on any machine: a faster scale is refused before anything is started.
FLOW_LATENCY_S = 1.0
#: Duration of a tick, in multiples of a flow with one runtime task, whose duration is measured at the start.
TOUCHES = 3
#: Default of market seconds per real second; less if the machine is too slow for its ticks.
SCALE = 60.0
#: Price history of a generated market, before a job can begin.
HISTORY_DAYS = 14.0
_LOOK_S = 0.25
_NOTICE_LOOK_S = 0.2
#: Maximum number of consecutive failed ticks; the next successful one makes up for them.
_TICKS_MAY_FAIL = 2
#: Maximum real seconds for a running tick to end after the job has ended.
_TICK_ENDS_S = 4.0


class JobThreads(Generic[S]):
    """Runs the flow, the ticks and the terminal of one job or sweep, each in its own thread.

    The threads are daemons, so that the process can end: a flow that waits for a machine cannot be stopped.

    Parameters
    ----------
    flow : the flow of the job, with its parameters.
    progress : shows how it stands.
    snapshot : returns how it stands now; None before it was recorded.
    """

    def __init__(
        self,
        job_id: str,
        flow: Callable[[], Coroutine[Any, Any, Any]],
        clock: ScaledClock,
        progress: Display[S],
        snapshot: Callable[[], S | None],
    ) -> None:
        self._job_id = job_id
        self._flow = flow
        self._clock = clock
        self._progress = progress
        self._snapshot = snapshot
        self._done = threading.Event()

    def to_the_end(self, then: str) -> None:
        """Run the flow, tick and show until the flow has ended; say `then`, and let the paid hours run out."""
        running = in_thread("flow", partial(call_flow, self._flow))
        ticks = MarketTicks(self._clock, self._progress.say, self._recorded, self._job_id, _TICKS_MAY_FAIL)
        ticking = in_thread("tick", partial(ticks.until, self._done))
        try:
            while not running.done() and not ticking.done():
                self._show()
                wait([running, ticking], timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        finally:
            self._done.set()
            self._progress.close()
            wait([ticking], timeout=_TICK_ENDS_S)
        _raise_first(ticking, running)
        running.result()
        ticking.result()
        self._progress.say(then)
        running_out = in_thread("run out", self._run_out)
        while not running_out.done():
            wait([running_out], timeout=_LOOK_S)
        running_out.result()

    def _recorded(self) -> Sequence[str]:
        """Return the job, once it is recorded: before that there is nothing to decide."""
        from proteus_spot.tasks.job_records import is_known

        return (self._job_id,) if is_known(self._job_id) else ()

    def _run_out(self) -> None:
        """Jump from hour's end to hour's end until nothing is held; evictions in between are refunded."""
        from proteus_spot.flows.allocation_tick import allocation_tick
        from proteus_spot.tasks.job_leases import extend_leases
        from proteus_spot.tasks.market.tick import next_hour_end_s

        extend_leases(self._job_id)  # the clock must not jump over the end of a lease
        while (at_s := next_hour_end_s(self._job_id)) is not None:
            self._clock.jump_to(at_s)
            call_flow(partial(allocation_tick, self._job_id))

    def _show(self) -> None:
        shot = self._snapshot()
        if shot is not None:
            self._progress.show(shot, SystemClock().now_s())


@dataclass(frozen=True, slots=True)
class Periodic:
    """A flow that is called at every multiple of a period of market time."""

    period_s: float
    flow: Callable[[], Coroutine[Any, Any, Any]]

    def next_s(self, now_s: float) -> float:
        """Return the market time of the next call."""
        return (now_s // self.period_s + 1) * self.period_s


class MarketTicks:
    """Calls the tick of jobs at every decision point of the market, and the handler of every eviction notice.

    Parameters
    ----------
    clock : market time.
    say : receives one line on each failed call.
    jobs : returns the jobs that need ticks; while there is none, no tick is called.
    job_id : the only job to tick; None: all jobs of the state database.
    failures : number of consecutive failed calls that are tolerated; None: any number.
    periodic : other flows, each with its period.
    """

    def __init__(
        self,
        clock: ScaledClock,
        say: Callable[[str], None],
        jobs: Callable[[], Sequence[str]],
        job_id: str | None = None,
        failures: int | None = None,
        periodic: Sequence[Periodic] = (),
    ) -> None:
        self._clock = clock
        self._say = say
        self._jobs = jobs
        self._job_id = job_id
        self._failures = failures
        self._periodic = periodic
        self._handled: set[str] = set()
        #: How urgently each job is to stop, as far as a tick was called for it.
        self._urgency: dict[str, int] = {}

    def until(self, done: threading.Event) -> None:
        """Call ticks and handlers until `done` is set.

        Raises
        ------
        ProteusError, MarketError
            The error of a failed call, if more than tolerated have failed, one after the other.
        """
        from proteus_spot.flows.allocation_tick import allocation_tick
        from proteus_spot.tasks.market.tick import next_tick_s

        failed = 0
        tick_s = next_tick_s()
        due_s = [each.next_s(self._clock.now_s()) for each in self._periodic]
        while not self._clock.wait_until(
            min(tick_s, self._clock.now_s() + _NOTICE_LOOK_S * self._clock.scale, *due_s), done
        ):
            try:
                jobs = self._jobs()
                self._handle_notices(jobs)
                if self._clock.now_s() >= tick_s or self._is_to_stop(jobs):
                    if jobs:
                        call_flow(partial(allocation_tick, self._job_id))
                    tick_s = next_tick_s()
                    failed = 0
                for number, each in enumerate(self._periodic):
                    if self._clock.now_s() >= due_s[number]:
                        due_s[number] = each.next_s(self._clock.now_s())
                        call_flow(each.flow)
            except (ProteusError, MarketError) as error:
                failed += 1
                if self._failures is not None and failed > self._failures:
                    raise
                self._say(f"a tick failed and the next one fixes it: {' '.join(str(error).split())}")
                tick_s = next_tick_s()

    def _is_to_stop(self, jobs: Sequence[str]) -> bool:
        """Return whether a job was asked to stop since the last call: a tick carries that out at once."""
        from proteus_spot.tasks.job_ends import stop_urgency

        before, self._urgency = self._urgency, {job_id: stop_urgency(job_id) for job_id in jobs}
        return any(urgency > before.get(job_id, 0) for job_id, urgency in self._urgency.items())

    def _handle_notices(self, jobs: Sequence[str]) -> None:
        from proteus_spot.flows.handle_eviction import handle_eviction
        from proteus_spot.tasks.market.eviction_notices import seen_notices

        notices = [each for job_id in jobs for each in seen_notices(job_id)]
        new = [each for each in notices if each.taken not in self._handled]
        if new:
            call_flow(partial(handle_eviction, new[0]))  # it handles the others, too
            self._handled.update(each.taken for each in new)


def measured_latency_s() -> float:
    """Return the real seconds of a flow with one runtime task: the shorter of two runs, after a first one."""
    from proteus_spot.flows.reap import reap

    clock, latencies_s = SystemClock(), []
    call_flow(reap)
    for _ in range(2):  # one alone may fall into a moment in which the computer has other things to do
        began_s = clock.now_s()
        call_flow(reap)
        latencies_s.append(clock.now_s() - began_s)
    return min(latencies_s)


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
