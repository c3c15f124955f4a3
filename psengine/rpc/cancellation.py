"""Reliable cancellation of asyncio tasks, and users' code that raises what looks like one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent import futures
from functools import wraps
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

#: Exceptions that asyncio replaces in the future of a thread's work.
_OF_FUTURES = frozenset({futures.CancelledError, futures.InvalidStateError, TimeoutError})
#: Seconds after which a task that has not ended is cancelled again.
_AGAIN_S = 1.0


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and return when each has ended, in whatever way.

    One cancellation is not enough: up to Python 3.11 one that arrives in the same iteration of the loop as the answer
    to a call is lost in `asyncio.wait_for`, and the task goes on, maybe to wait forever.
    """
    left = [task for task in tasks if not task.done()]
    while left:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=_AGAIN_S)
        left = [task for task in left if not task.done()]


async def first_of(*waits: Awaitable[Any]) -> None:
    """Return when one of `waits` has completed; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await cancel_all(tasks)


async def all_or_none(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all `works`; if one raises, the others are cancelled and have ended before it is raised.

    `asyncio.gather` would let them run on: a message of a batch that was given up would be sent during the next one.
    """
    works = list(works)
    if len(works) == 1:
        return [await works[0]]
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel_all(tasks)


def plain_error(error: BaseException) -> BaseException:
    """Return an exception of a user's code; of one that an event loop takes for its own, a `RuntimeError` instead.

    A cancellation would pass for one of the task that waits for that code, and a `StopIteration` is lost in a future,
    so that the task waits for ever. Others are replaced in a future, without their place. A `SystemExit` or a
    `KeyboardInterrupt` would end the process, and the job would not learn why.
    """
    is_of_futures = isinstance(error, StopIteration) or type(error) in _OF_FUTURES
    if isinstance(error, Exception) and not is_of_futures:
        return error
    return RuntimeError(": ".join(filter(None, (type(error).__name__, str(error))))).with_traceback(error.__traceback__)


def raising_plainly(work: Callable[P, T]) -> Callable[P, T]:
    """Return `work`, of which each exception is as `plain_error` returns it."""

    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(*args, **kwargs)
        except BaseException as error:
            if (plain := plain_error(error)) is error:
                raise
            raise plain from error

    return run


async def on_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of `work`, which may be a user's code, done on a thread."""
    return await asyncio.to_thread(raising_plainly(work), *args, **kwargs)
