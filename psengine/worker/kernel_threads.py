"""The thread pool of a node, which runs the jobs (kernels) of the batches in flight, those of earlier batches first.

A job that waits for a read (`KernelThreads.wait_for`) gives its core to another job meanwhile: there are permits, one
for each core, and a thread runs jobs only while it has one. A free permit goes to the earliest batch that waits.

A thread takes one job after the other and wakes the event loop only when none is left: a loop that is woken for every
job takes the interpreter from the kernel that runs next. For the same reason the last thread also calls `then`, which
processes all results.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import threading
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from proteus_spot.psengine.rpc.cancellation import plain_error

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
R = TypeVar("R")

#: `batch`: the batch that a thread works on.
_at_work = threading.local()
#: Maximum number of threads of a batch, for each core, that are started since others of it wait for reads.
_EXTRA_A_CORE = 6
#: Each batch limits its threads. They have no common limit: batches that wait for the updates of another one would take
#: all threads, and leave it none.
_NO_LIMIT = 1 << 20


class KernelBatch(Generic[K, V, R]):
    """Jobs by name, started in order, as many concurrently as there are threads.

    Parameters
    ----------
    number : int
        Permits go to the batch with the lowest number.
    after : sequence of Event
        Events that are waited for before the first job.
    """

    def __init__(
        self,
        jobs: Mapping[K, Callable[[], V]],
        number: int,
        after: Sequence[threading.Event],
        then: Callable[[Mapping[K, V]], R],
    ) -> None:
        self.names = tuple(jobs)
        self.number = number
        #: {job: attempt that its result counts as}, as far as it is known; jobs may read it on their threads.
        self.attempts: dict[K, int] = {}
        #: Jobs; dropped when all are done, since they hold the rows that they have read.
        self._jobs, self._then = jobs, then
        self._made: R | None = None
        self._then_error: BaseException | None = None
        self._waiting = deque(jobs)
        self._after = after
        self._wanted: Collection[K] = frozenset(jobs)
        self._results: dict[K, V] = {}
        self._errors: dict[K, BaseException] = {}
        #: Done when no thread works on it any more.
        self._ended: asyncio.Future[None] | None = None
        self._open = self._extra = 0
        self._lock = threading.Lock()
        #: Set when none of its jobs runs any more.
        self.quiet = threading.Event()

    def want(self, names: Collection[K]) -> None:
        """Skip the jobs that are not in `names`; those of them that run are completed."""
        self._wanted = frozenset(names)

    async def results(self) -> dict[K, V]:
        """Return the results of the wanted jobs once no job runs; raise the first error of them, or that of `then`.

        A job that was not started because an unwanted job raised is left out.
        """
        assert self._ended is not None, "it was not started"
        try:
            await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            self.want(())
            raise
        for name in self.names:
            if name in self._errors and name in self._wanted:
                raise self._errors[name]
        if self._then_error is not None and len(self._wanted) == len(self.names):
            raise self._then_error
        return {name: result for name, result in self._results.items() if name in self._wanted}

    def made(self) -> R | None:
        """Return the result of `then` for all jobs; None if one of them is not wanted, or was not done."""
        return self._made if len(self._wanted) == len(self.names) else None

    def start(self, pool: ThreadPoolExecutor, threads: int, permits: Permits) -> None:
        """Start on `threads` threads of `pool`; needs a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._pool, self._permits = pool, permits
        self._open, self._most_extra = threads, _EXTRA_A_CORE * threads
        for _ in range(threads):
            pool.submit(self._run_jobs)

    def blocked(self) -> None:
        """Have another thread work on it, since a job of it is about to wait."""
        with self._lock:
            if not self._waiting or self._extra >= self._most_extra:
                return
            self._open, self._extra = self._open + 1, self._extra + 1
        self._pool.submit(self._run_jobs)

    def _run_jobs(self) -> None:
        try:
            for event in self._after:
                event.wait()  # an earlier batch has its threads already, so it ends
            with self._permits.held(self.number):
                self._run_waiting()
        finally:
            with self._lock:
                self._open -= 1
                last = not self._open
            if last:
                self._finish()

    def _run_waiting(self) -> None:
        _at_work.batch = self
        while self._waiting:
            self._permits.pass_on(self.number)
            try:
                name = self._waiting.popleft()
            except IndexError:
                return  # another thread took the last one
            if name in self._wanted:
                try:
                    self._results[name] = self._jobs[name]()
                except BaseException as error:  # noqa: BLE001 - raised again by `results`
                    self._errors[name] = plain_error(error)
                    self._waiting.clear()

    def _finish(self) -> None:
        try:
            if len(self._results) == len(self.names) == len(self._wanted):
                self._made = self._then({name: self._results[name] for name in self.names})
        except BaseException as error:  # noqa: BLE001 - raised again by `results`
            self._then_error = plain_error(error)
        finally:
            self._jobs = {}
            self.quiet.set()
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nothing waits
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


class Permits:
    """Permits to run jobs, one for each core; a lower number comes first."""

    def __init__(self, cores: int) -> None:
        self._free = cores
        self._lock = threading.Lock()
        self._requests = 0
        #: (number, request, set when the permit is granted).
        self._waiting: list[tuple[int, int, threading.Event]] = []

    @contextlib.contextmanager
    def held(self, number: int) -> Iterator[None]:
        """Have a permit during the block."""
        self._take(number)
        try:
            yield
        finally:
            self._give()

    @contextlib.contextmanager
    def given_away(self, number: int) -> Iterator[None]:
        """Release the permit during the block."""
        self._give()
        try:
            yield
        finally:
            self._take(number)

    def pass_on(self, number: int) -> None:
        """Let those with a lower number go first."""
        with self._lock:
            is_late = bool(self._waiting) and self._waiting[0][0] < number
        if is_late:
            with self.given_away(number):
                pass

    def _take(self, number: int) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            granted = threading.Event()
            self._requests += 1
            heapq.heappush(self._waiting, (number, self._requests, granted))
        granted.wait()

    def _give(self) -> None:
        with self._lock:
            if self._waiting:
                heapq.heappop(self._waiting)[2].set()
            else:
                self._free += 1


class KernelThreads:
    """The thread pool. Two batches with a job of one name do not run at the same time.

    So a job that is repeated because its batch was given up never runs beside its first attempt.
    """

    def __init__(self, threads: int, name: str) -> None:
        self.threads = threads
        self.pool = ThreadPoolExecutor(_NO_LIMIT, thread_name_prefix=name)
        self._permits = Permits(threads)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waits: set[Future[Any]] = set()
        self._closed = threading.Event()
        self._batches = 0
        #: The names of jobs that may still run, and the event that is set when they do not.
        self._under_way: list[tuple[frozenset[Hashable], threading.Event]] = []

    def start(self, jobs: Mapping[K, Callable[[], V]], then: Callable[[Mapping[K, V]], R]) -> KernelBatch[K, V, R]:
        """Start a batch of jobs; `then` is called with the results of all of them, on a thread, when all are done."""
        self._loop = asyncio.get_running_loop()
        self._batches += 1
        self._under_way = [entry for entry in self._under_way if not entry[1].is_set()]
        after = [quiet for names, quiet in self._under_way if not names.isdisjoint(jobs)]
        batch = KernelBatch(jobs, self._batches, after, then)
        self._under_way.append((frozenset(jobs), batch.quiet))
        batch.start(self.pool, max(1, min(self.threads, len(jobs))), self._permits)
        return batch

    def wait_for(self, work: Coroutine[Any, Any, R]) -> R:
        """Return the result of `work`, which runs on the event loop; called by a job, whose core others use meanwhile.

        Raises
        ------
        concurrent.futures.CancelledError
            If the pool is closed meanwhile.
        """
        assert self._loop is not None, "no batch was started"
        if self._closed.is_set():
            work.close()
            raise CancelledError
        wait = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._waits.add(wait)
        if self._closed.is_set():  # meanwhile
            wait.cancel()
        try:
            batch: KernelBatch[Any, Any, Any] = _at_work.batch
            batch.blocked()
            with self._permits.given_away(batch.number):
                return wait.result()
        finally:
            self._waits.discard(wait)

    def close(self) -> None:
        """Start no further batch; running jobs are completed, and do not wait for reads any more."""
        self._closed.set()
        for wait in list(self._waits):
            wait.cancel()
        self.pool.shutdown(wait=False, cancel_futures=True)
