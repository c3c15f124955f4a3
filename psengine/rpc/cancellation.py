"""Reliable cancellation of asyncio tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

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
