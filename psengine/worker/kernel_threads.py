"""The threads of a node, and what is given to them: groups of jobs that share them, one group after the other.

A thread takes one job after the other and tells the event loop when none is left, not at each: a loop that is woken for
every job takes the interpreter from the kernel that runs next. What is to be made of all results (`then`) the last thread
makes, too, for the same reason.
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
    """Jobs by name, begun in their order, as many at one time as there are threads."""

    def __init__(
        self,
        jobs: Mapping[K, Callable[[], V]],
        after: threading.Event | None,
        then: Callable[[Mapping[K, V]], R],
    ) -> None:
        self._names = tuple(jobs)
        #: what is to be done; dropped when all is done, for it holds what the jobs have read
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
        #: set when nothing of it runs any more
        self.quiet = threading.Event()

    def want(self, names: Collection[K]) -> None:
        """Do without the jobs that are not in `names`; those of them that run are let run out."""
        self._wanted = frozenset(names)

    async def results(self) -> dict[K, V]:
        """Return what the jobs that are wanted gave, once no job runs; what the first of them, or `then`, raised is raised.

        One that was not begun, because another one raised that is not wanted any more, is left out.
        """
        try:
            await asyncio.wait(self._kernel_threads)  # which, unlike `gather`, cancels none that is still to begin
        except asyncio.CancelledError:
            self.want(())
            raise
        for name in self._names:
            if name in self._errors and name in self._wanted:
                raise self._errors[name]
        if self._then_error is not None and len(self._wanted) == len(self._names):
            raise self._then_error
        return {name: of for name, of in self._results.items() if name in self._wanted}

    def made(self) -> R | None:
        """Return what `then` made of the results of all jobs; None where one of them is not wanted, or was not done."""
        return self._made if len(self._wanted) == len(self._names) else None

    def start(self, pool: ThreadPoolExecutor, lanes: int) -> None:
        """Begin, on `lanes` threads of `pool`; needs a running event loop."""
        loop = asyncio.get_running_loop()
        self._open = lanes
        self._kernel_threads = [loop.run_in_executor(pool, self._lane) for _ in range(lanes)]

    def _lane(self) -> None:
        try:
            if self._after is not None:
                self._after.wait()  # the threads of the group before came before ours, so it ends
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
    """The threads. Of two groups, the later one begins when nothing of the earlier one runs any more.

    So a job that is begun anew, its group having been given up, never runs beside its first try.
    """

    def __init__(self, threads: int, name: str) -> None:
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        #: set when nothing of the last group runs any more
        self._quiet: threading.Event | None = None

    def start(self, jobs: Mapping[K, Callable[[], V]], then: Callable[[Mapping[K, V]], R]) -> KernelBatch[K, V, R]:
        """Begin a group of jobs; `then` is called with the results of all of them, on a thread, when all are done."""
        group = KernelBatch(jobs, self._quiet, then)
        group.start(self.pool, max(1, min(self.threads, len(jobs))))
        self._quiet = group.quiet
        return group

    def close(self) -> None:
        """Begin nothing more; what runs is let run out."""
        self.pool.shutdown(wait=False, cancel_futures=True)
