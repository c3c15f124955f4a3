"""The threads of a node, and what is given to them: groups of jobs that share them, one group after the other.

A thread takes one job after the other and tells the event loop when none is left, not at each: a loop that is woken for
every job takes the interpreter from the kernel that runs next.
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


class Group(Generic[K, V]):
    """Jobs by name, begun in their order, as many at one time as there are threads."""

    def __init__(self, jobs: Mapping[K, Callable[[], V]], after: Collection[Group[K, V]]) -> None:
        self._jobs = jobs
        self._waiting = deque(jobs)
        self._after = tuple(after)
        self._wanted: Collection[K] = frozenset(jobs)
        self._results: dict[K, V] = {}
        self._errors: dict[K, BaseException] = {}
        self._lanes: list[asyncio.Future[None]] = []
        self._open = 0
        self._lock = threading.Lock()
        #: set when nothing of it runs any more
        self.quiet = threading.Event()

    def want(self, names: Collection[K]) -> None:
        """Do without the jobs that are not in `names`; those of them that run are let run out."""
        self._wanted = frozenset(names)

    async def results(self) -> dict[K, V]:
        """Return what the jobs that are wanted gave, once no job runs; what the first of them raised is raised.

        One that was not begun, because another one raised that is not wanted any more, is left out.
        """
        try:
            await asyncio.wait(self._lanes)  # which, unlike `gather`, cancels none that is still to begin
        except asyncio.CancelledError:
            self.want(())
            raise
        for name in self._jobs:
            if name in self._errors and name in self._wanted:
                raise self._errors[name]
        return {name: of for name, of in self._results.items() if name in self._wanted}

    def start(self, pool: ThreadPoolExecutor, lanes: int) -> None:
        """Begin, on `lanes` threads of `pool`; needs a running event loop."""
        loop = asyncio.get_running_loop()
        self._open = lanes
        self._lanes = [loop.run_in_executor(pool, self._lane) for _ in range(lanes)]

    def _lane(self) -> None:
        try:
            for group in self._after:
                group.quiet.wait()  # its threads came before ours, so it ends
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
                if not self._open:
                    self._after = ()
                    self.quiet.set()


class Lanes:
    """The threads. Of two groups, the later one begins when nothing of the earlier one runs any more.

    So a job that is begun anew, its group having been given up, never runs beside its first try.
    """

    def __init__(self, threads: int, name: str) -> None:
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._last: Group[Hashable, object] | None = None

    def start(self, jobs: Mapping[K, Callable[[], V]]) -> Group[K, V]:
        """Begin a group of jobs."""
        last = self._last
        group: Group[K, V] = Group(jobs, () if last is None or last.quiet.is_set() else (last,))  # type: ignore[arg-type]
        group.start(self.pool, max(1, min(self.threads, len(jobs))))
        self._last = group  # type: ignore[assignment]
        return group

    def close(self) -> None:
        """Begin nothing more; what runs is let run out."""
        self.pool.shutdown(wait=False, cancel_futures=True)
