"""Cancelled tasks end, also those that lose a cancellation."""

import asyncio
import concurrent.futures
from typing import NoReturn

import pytest

from proteus_spot.psengine.rpc.cancellation import cancel_all, on_thread
from tests.support.virtual_time import run_virtual


def test_a_task_that_loses_a_cancellation_in_an_answer_is_cancelled_again() -> None:
    ended: list[str] = []

    async def delivers(answer: asyncio.Future[None]) -> None:
        try:
            await asyncio.wait_for(answer, 10.0)
            await asyncio.get_running_loop().create_future()  # the next order, which never comes
        finally:
            ended.append("delivers")

    async def loses_two() -> None:
        for _ in range(2):
            try:
                await asyncio.sleep(1000.0)
            except asyncio.CancelledError:
                ended.append("lost")
        await asyncio.sleep(1000.0)

    async def story() -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tasks = [asyncio.create_task(delivers(answer)), asyncio.create_task(loses_two())]
        await asyncio.sleep(0.0)
        answer.set_result(None)  # in the turn of the loop in which it is cancelled
        await cancel_all(tasks)
        assert all(task.cancelled() for task in tasks)

    run_virtual(story(), 60.0)
    assert sorted(ended) == ["delivers", "lost", "lost"]


def test_what_has_ended_or_fails_is_left_alone() -> None:
    async def fails() -> None:
        try:
            await asyncio.sleep(1000.0)
        finally:
            raise ValueError("at the end")

    async def story() -> None:
        done, failing = asyncio.create_task(asyncio.sleep(0.0)), asyncio.create_task(fails())
        await asyncio.sleep(0.1)
        await cancel_all([done, failing])
        assert isinstance(failing.exception(), ValueError)
        await cancel_all([])

    run_virtual(story(), 60.0)


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError, concurrent.futures.CancelledError, GeneratorExit, StopIteration, TimeoutError]
)
def test_what_looks_like_a_cancellation_of_the_waiting_task_is_an_error_of_the_work(error: type[BaseException]) -> None:
    def work() -> NoReturn:
        raise error("enough")

    async def waits() -> None:
        await asyncio.wait_for(on_thread(work), 5.0)

    with pytest.raises(RuntimeError, match=f"^{error.__name__}: enough$") as raised:
        asyncio.run(waits())
    names = [entry.name for entry in raised.traceback]
    assert "work" in names, "the place is kept"
