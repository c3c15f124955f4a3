"""The thread pool of a node, which runs batches of jobs (kernels) one after the other.

A thread takes one job after the other and wakes the event loop only when none is left: a loop that is woken for every
job takes the interpreter from the kernel that runs next. For the same reason the last thread also calls `then`, which
processes all results.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
R = TypeVar("R")


class KernelBatch(Generic[K, V, R]):
    """Jobs by name, started in order, as many concurrently as there are threads."""

    def __init__(
        self,
        jobs: Mapping[K, Callable[[], V]],
        after: threading.Event | None,
        then: Callable[[Mapping[K, V]], R],
    ) -> None:
        self._names = tuple(jobs)
        #: Jobs; dropped when all are done, since they hold the rows that they have read.
        self._jobs, self._then = jobs, then
        self._made: R | None = None
        self._then_error: BaseException | None = None
        self._waiting = deque(jobs)
        self._after = after
        self._wanted: Collection[K] = frozenset(jobs)
        self._results: dict[K, V] = {}
        self._errors: dict[K, BaseException] = {}
        self._kernel_threads: list[asyncio.Future[None]] = []
        self._open = 0
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
        try:
            await asyncio.wait(self._kernel_threads)  # unlike `gather`, it cancels no thread that has yet to start
        except asyncio.CancelledError:
            self.want(())
            raise
        for name in self._names:
            if name in self._errors and name in self._wanted:
                raise self._errors[name]
        if self._then_error is not None and len(self._wanted) == len(self._names):
            raise self._then_error
        return {name: result for name, result in self._results.items() if name in self._wanted}

    def made(self) -> R | None:
        """Return the result of `then` for all jobs; None if one of them is not wanted, or was not done."""
        return self._made if len(self._wanted) == len(self._names) else None

    def start(self, pool: ThreadPoolExecutor, threads: int) -> None:
        """Start on `threads` threads of `pool`; needs a running event loop."""
        loop = asyncio.get_running_loop()
        self._open = threads
        self._kernel_threads = [loop.run_in_executor(pool, self._run_jobs) for _ in range(threads)]

    def _run_jobs(self) -> None:
        try:
            if self._after is not None:
                self._after.wait()  # the previous batch has its threads already, so it ends
            while self._waiting:
                try:
                    name = self._waiting.popleft()
                except IndexError:
                    return  # another thread took the last one
                if name in self._wanted:
                    try:
                        self._results[name] = self._jobs[name]()
                    except BaseException as error:  # noqa: BLE001 - raised again by `results`
                        self._errors[name] = error
                        self._waiting.clear()
        finally:
            with self._lock:
                self._open -= 1
                last = not self._open
            if last:
                self._finish()

    def _finish(self) -> None:
        try:
            if len(self._results) == len(self._names) == len(self._wanted):
                self._made = self._then({name: self._results[name] for name in self._names})
        except BaseException as error:  # noqa: BLE001 - raised again by `results`
            self._then_error = error
        finally:
            self._jobs = {}
            self.quiet.set()


class KernelThreads:
    """The thread pool. A batch starts when no job of the previous one runs any more.

    So a job that is repeated because its batch was given up never runs beside its first attempt.
    """

    def __init__(self, threads: int, name: str) -> None:
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        #: Set when no job of the last batch runs any more.
        self._quiet: threading.Event | None = None

    def start(self, jobs: Mapping[K, Callable[[], V]], then: Callable[[Mapping[K, V]], R]) -> KernelBatch[K, V, R]:
        """Start a batch of jobs; `then` is called with the results of all of them, on a thread, when all are done."""
        batch = KernelBatch(jobs, self._quiet, then)
        batch.start(self.pool, max(1, min(self.threads, len(jobs))))
        self._quiet = batch.quiet
        return batch

    def close(self) -> None:
        """Start no further job; running ones are completed."""
        self.pool.shutdown(wait=False, cancel_futures=True)
