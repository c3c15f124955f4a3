"""An event loop with virtual time, which advances only when the loop is idle: simulated hours take no real time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar, cast

from greenlet import getcurrent, greenlet

from proteus_spot.psengine.worker.kernel_threads import KernelBatch

T = TypeVar("T")


class _Leaping(selectors.SelectSelector):
    """Never waits: whatever should be waited for is added to the time."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nothing is left that could ever happen"
            self.now_s += max(timeout, 0.0)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop of one thread: with the work of partitions done in place, the same story runs the same way every time."""

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)
        self.set_default_executor(InPlace())

    def time(self) -> float:
        return self._leaping.now_s


class InPlace(ThreadPoolExecutor):
    """A partition that does its work at once, on the thread of who asks."""

    def __init__(self) -> None:
        super().__init__(1)

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is handed to whoever asked
            future.set_exception(error)
        return future


class InTurn(ThreadPoolExecutor):
    """A partition of one thread, as it were: each piece of work is done in the loop, after `takes_s` of its time.

    Work that waits for the loop (`wait_for`) is left and resumed; other work is done meanwhile, as by `KernelThreads`.
    """

    def __init__(self, takes_s: float) -> None:
        super().__init__(1)
        self._takes_s, self._free_s = takes_s, 0.0
        self._open: set[Future[Any]] = set()

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future = Future[T]()
        self._open.add(future)
        self._do_later(future, partial(work, *args, **kwargs))
        return future

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`, which the loop does while the calling piece of work waits."""
        parent = getcurrent().parent
        assert parent is not None, "called outside of the partition"
        return cast("asyncio.Task[T]", parent.switch(work)).result()

    def _do_later(self, future: Future[T], work: partial[T]) -> None:
        loop = asyncio.get_running_loop()
        self._free_s = max(self._free_s, loop.time()) + self._takes_s
        loop.call_at(self._free_s, self._do, future, work)

    def _do(self, future: Future[T], work: partial[T]) -> None:
        batch = getattr(work.func, "__self__", None)
        waits = isinstance(batch, KernelBatch) and not all(event.is_set() for event in batch._after)
        if waits and not future.cancelled():
            self._do_later(future, work)  # a thread would wait for these events; the loop must not
            return
        self._open.discard(future)
        if future.set_running_or_notify_cancel():
            self._go_on(greenlet(partial(_settle, future, work)))

    def _go_on(self, piece: greenlet, *waited: asyncio.Task[Any]) -> None:
        awaited = piece.switch(*waited)
        if not piece.dead:
            task = asyncio.get_running_loop().create_task(awaited)
            task.add_done_callback(partial(self._go_on, piece))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait, cancel_futures=cancel_futures)
        for future in list(self._open) if cancel_futures else ():
            future.cancel()


def _settle(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - it is handed to whoever asked
        future.set_exception(error)


def run_virtual(story: Coroutine[Any, Any, T], limit_s: float) -> T:
    """Run a story to its end, at most `limit_s` seconds of its own time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        async def bounded() -> T:
            async with asyncio.timeout(limit_s):
                return await story

        return runner.run(bounded())
