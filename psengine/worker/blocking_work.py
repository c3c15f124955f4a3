"""Blocking work of a node beside its tasks: reads from storage, restores, and code of the application.

The application is created, and gives its initial values, under `open`, and prepares its data under `prepare`.

Each kind has threads of its own, so that none waits for another. A read that does not return is given up at its
deadline: its thread is left behind, as a thread cannot be ended, and does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from proteus_spot.psengine.rpc.cancellation import plain_error

T = TypeVar("T")
Kind = Literal["read", "restore", "prepare", "open"]

#: Seconds that one attempt at a read may take.
READ_S = 600.0
#: Maximum number of threads at work by kind: the second reader serves a batch that lacks a partition.
_THREADS: Mapping[Kind, int] = MappingProxyType({"read": 2, "restore": 1, "prepare": 1, "open": 1})


class ReadTimeoutError(OSError):
    """A read did not return within its deadline."""


async def in_thread(work: Callable[[], T]) -> T:
    """Return the result of `work`, done on a new daemon thread; if this is cancelled, the thread is left behind."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(result) if error is None else future.set_exception(error)

    def run() -> None:
        result, raised = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            raised = plain_error(error)
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, result, raised)

    threading.Thread(target=run, name="blocking-work", daemon=True).start()
    return await future


class BlockingWork:
    """The threads of one node.

    Parameters
    ----------
    read_s : float
        Seconds that one attempt at a read may take.
    run : callable
        Does the work that it is given off the event loop.
    """

    def __init__(self, read_s: float = READ_S, run: Callable[[Callable[[], Any]], Awaitable[Any]] = in_thread) -> None:
        self._read_s, self._run = read_s, run
        self._free = {kind: asyncio.Semaphore(count) for kind, count in _THREADS.items()}

    async def do(self, kind: Kind, work: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of `work(*arguments)`, done when a thread of its kind is free.

        Raises
        ------
        ReadTimeoutError
            If it is a read, or a restore, and does not return within the deadline.
        """
        async with self._free[kind]:
            result = self._run(partial(work, *arguments))
            if kind in ("prepare", "open"):  # how long an application takes is unknown
                return await result
            reading = asyncio.ensure_future(result)
            try:
                if not (await asyncio.wait([reading], timeout=self._read_s))[0]:
                    raise ReadTimeoutError(f"the read did not return within {self._read_s:g} s")
                return reading.result()
            finally:
                reading.cancel()
