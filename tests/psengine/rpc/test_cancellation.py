"""Cancelled tasks end, also those that lose a cancellation."""

import asyncio

import pytest

from psengine.rpc.cancellation import Interruption, cancel_all
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


def test_an_interruption_cancels_at_the_time_that_was_set_last() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        async with Interruption() as interruption:
            interruption.set(0.0)
            interruption.set(None)
            await asyncio.sleep(0.01)

        async def waits() -> None:
            async with Interruption() as interruption:
                interruption.set(30.0)
                loop.call_soon(interruption.set, 0.0)
                await loop.create_future()

        with pytest.raises(TimeoutError):
            await waits()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0, "what comes next is not taken for cancelled"

    asyncio.run(run())


def test_an_interruption_that_is_lost_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psengine.rpc.cancellation._AGAIN_S", 0.0)

    lost = 0

    async def run() -> None:
        nonlocal lost
        async with Interruption() as interruption:
            interruption.set(0.0)
            while lost < 3:
                try:
                    await asyncio.get_running_loop().create_future()
                except asyncio.CancelledError:
                    lost += 1
            await asyncio.get_running_loop().create_future()

    with pytest.raises(TimeoutError):
        asyncio.run(run())
    assert lost == 3


def test_an_interruption_lets_through_what_is_not_its_own() -> None:
    async def inside(error: Exception | None = None) -> None:
        async with Interruption() as interruption:
            interruption.set(30.0)
            if error is not None:
                raise error
            await asyncio.get_running_loop().create_future()

    async def run() -> None:
        with pytest.raises(KeyError):
            await inside(KeyError())
        task = asyncio.create_task(inside())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
