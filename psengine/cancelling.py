"""Tasks are ended for sure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

#: seconds after which a task that has not ended is cancelled again
_AGAIN_S = 1.0


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and return when each has ended, however it did.

    Once is not enough: up to Python 3.11 a cancellation that comes in the same turn of the loop as the answer to a call is lost
    in `asyncio.wait_for`, and the task goes on, maybe to wait for what never comes.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN_S)
