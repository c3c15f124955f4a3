"""The threads of a node: one group of jobs after the other, and what is made of all results."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from proteus_spot.psengine.worker.kernel_threads import KernelThreads
from tests.support.timeouts import PATIENCE


def on_lanes(body: Callable[[KernelThreads], Coroutine[Any, Any, None]], threads: int = 2) -> None:
    async def run() -> None:
        lanes = KernelThreads(threads, "test")
        try:
            async with asyncio.timeout(10 * PATIENCE):
                await body(lanes)
        finally:
            lanes.close()

    asyncio.run(run())


def test_a_group_begins_when_nothing_of_the_one_before_runs_any_more() -> None:
    gate, began, seen = threading.Event(), threading.Event(), []

    def first(name: str) -> None:
        began.set()
        assert gate.wait(10 * PATIENCE)
        seen.append(name)

    async def body(lanes: KernelThreads) -> None:
        try:
            given_up = lanes.start({name: lambda name=name: first(name) for name in ("a", "b", "c")}, len)
            await asyncio.to_thread(began.wait, 10 * PATIENCE)
            given_up.want(())
            waits = asyncio.create_task(given_up.results())
            await asyncio.sleep(0)
            waits.cancel()
            later = lanes.start({"a": lambda: seen.append("z")}, len)
        finally:
            gate.set()
        assert await later.results() == {"a": None}
        assert seen[-1] == "z"
        assert "c" not in seen

    on_lanes(body)


def test_a_job_never_runs_beside_one_of_its_name_although_a_thread_is_free() -> None:
    second_ran, first_ended = threading.Event(), threading.Event()

    def first() -> None:
        second_ran.wait(0.2)  # which it does not, while we run
        first_ended.set()

    def second() -> bool:
        second_ran.set()
        return first_ended.is_set()

    async def body(lanes: KernelThreads) -> None:
        lanes.start({"a": first}, len)
        assert await lanes.start({"a": second}, len).results() == {"a": True}

    on_lanes(body)


def test_a_core_that_a_batch_leaves_free_works_on_the_next_one() -> None:
    second_ran = threading.Event()

    async def body(lanes: KernelThreads) -> None:
        first = lanes.start({"a": lambda: second_ran.wait(10 * PATIENCE)}, len)
        lanes.start({"b": second_ran.set}, len)
        assert await first.results() == {"a": True}

    on_lanes(body)


def test_a_core_goes_to_the_earlier_batch() -> None:
    order: list[str] = []
    gate, held = threading.Event(), threading.Event()

    def first() -> None:
        held.set()
        assert gate.wait(10 * PATIENCE)

    async def body(lanes: KernelThreads) -> None:
        lanes.start({"held": first}, len)
        await asyncio.to_thread(held.wait, 10 * PATIENCE)
        batches = [lanes.start({f"{n}{k}": lambda n=n: order.append(n) for k in range(3)}, len) for n in ("a", "b")]
        gate.set()
        for batch in batches:
            await batch.results()
        assert order == ["a", "a", "a", "b", "b", "b"]

    on_lanes(body, threads=1)


def test_what_a_job_raises_is_raised_if_the_job_is_wanted() -> None:
    async def body(lanes: KernelThreads) -> None:
        def wrong() -> int:
            raise ZeroDivisionError("by the user")

        group = lanes.start({"good": lambda: 1, "wrong": wrong, "late": lambda: 2}, len)
        group.want(("good", "late"))
        assert await group.results() in ({"good": 1}, {"good": 1, "late": 2})
        with pytest.raises(ZeroDivisionError):
            await lanes.start({"wrong": wrong}, len).results()
        assert await lanes.start({n: lambda n=n: n * n for n in range(9)}, len).results() == {
            n: n * n for n in range(9)
        }

    on_lanes(body, threads=1)


def test_what_is_to_be_made_of_all_results_is_made_on_the_thread_that_ends_last() -> None:
    threads: set[str] = set()

    def made(results: Mapping[int, int]) -> tuple[object, ...]:
        threads.add(threading.current_thread().name)
        return tuple(results.items())

    async def body(lanes: KernelThreads) -> None:
        group = lanes.start({n: lambda n=n: n * n for n in (3, 1, 2)}, made)
        await group.results()
        assert group.made() == ((3, 9), (1, 1), (2, 4)), "in the order of the jobs, whoever ended first"
        assert len(threads) == 1
        assert threads.pop().startswith("test")

    on_lanes(body, threads=3)


def test_nothing_is_made_of_all_results_where_one_is_not_wanted_or_was_raised() -> None:
    gate, made = threading.Event(), []

    def wrong() -> int:
        raise ZeroDivisionError("by the user")

    async def body(lanes: KernelThreads) -> None:
        group = lanes.start({"a": lambda: gate.wait(10 * PATIENCE), "b": lambda: True}, made.append)
        group.want(("b",))
        gate.set()
        assert "b" in await group.results()
        assert group.made() is None
        failed = lanes.start({"wrong": wrong}, made.append)
        with pytest.raises(ZeroDivisionError):
            await failed.results()
        assert failed.made() is None
        done = lanes.start({"a": lambda: 1}, len)
        assert await done.results() == {"a": 1}
        assert done.made() == 1
        done.want(())
        assert done.made() is None

    on_lanes(body)
    assert made == []


def test_what_is_raised_by_what_is_made_of_all_results_is_raised_and_the_next_group_begins() -> None:
    def wrong(_: object) -> int:
        raise OverflowError("too many")

    async def body(lanes: KernelThreads) -> None:
        group = lanes.start({"a": lambda: 1}, wrong)
        with pytest.raises(OverflowError):
            await group.results()
        assert await lanes.start({"b": lambda: 2}, len).results() == {"b": 2}

    on_lanes(body)


def test_a_job_that_waits_for_a_read_gives_its_core_to_another() -> None:
    order: list[str] = []

    async def body(lanes: KernelThreads) -> None:
        came = asyncio.Event()

        async def read() -> str:
            await came.wait()
            return "rows"

        def reader(name: str) -> str:
            order.append(f"{name} asks")
            rows = lanes.wait_for(read())
            order.append(f"{name} goes on")
            return rows

        def other() -> str:
            order.append("other")
            loop.call_soon_threadsafe(came.set)
            return "done"

        loop = asyncio.get_running_loop()
        jobs = {"a": lambda: reader("a"), "b": lambda: reader("b"), "z": other}
        batch = lanes.start(jobs, len)
        assert await batch.results() == {"a": "rows", "b": "rows", "z": "done"}
        assert batch.made() == 3
        assert order[:3] == ["a asks", "b asks", "other"], "on one core"

    on_lanes(body, threads=1)


def test_batches_that_wait_for_another_one_leave_it_a_thread() -> None:
    async def body(lanes: KernelThreads) -> None:
        came, loop = asyncio.Event(), asyncio.get_running_loop()
        waiting = {5: asyncio.Event(), 4: asyncio.Event()}

        async def read(group: int) -> None:
            waiting[group].set()
            await came.wait()

        later = []
        for group, waits in waiting.items():
            jobs = {f"{group}{k}": lambda group=group: lanes.wait_for(read(group)) for k in range(20)}
            later.append(lanes.start(jobs, len))
            await waits.wait()
        earlier = lanes.start({"3": lambda: loop.call_soon_threadsafe(came.set)}, len)
        for batch in (earlier, *later):
            await batch.results()

    on_lanes(body, threads=1)


def test_who_waits_for_a_read_when_the_pool_is_closed_waits_no_more() -> None:
    ended, asks = threading.Event(), threading.Event()

    async def body(lanes: KernelThreads) -> None:
        async def never() -> None:
            asks.set()
            await asyncio.Event().wait()

        def reader() -> None:
            try:
                lanes.wait_for(never())
            finally:
                ended.set()

        lanes.start({"a": reader}, len)
        await asyncio.to_thread(asks.wait, 10 * PATIENCE)
        lanes.close()
        assert await asyncio.to_thread(ended.wait, 10 * PATIENCE)

    on_lanes(body)
