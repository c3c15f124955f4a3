"""Whose turn it is to be answered: a few at one time, the lowest order first, and nobody waits for one who is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.psengine.server.read_admission import LEAST, ReadAdmission, max_concurrent_readers


def story(body: Callable[[ReadAdmission], Awaitable[None]]) -> None:
    async def run() -> None:
        await asyncio.wait_for(body(ReadAdmission()), 10)

    asyncio.run(run())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Reader:
    """One who reads: its turn has come when `began` is set, and lasts until it `may_end`."""

    def __init__(self, turns: ReadAdmission, order: int, told: list[int]) -> None:
        self.began, self.may_end = asyncio.Event(), asyncio.Event()
        self._turns, self._order, self._told = turns, order, told
        self.task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async with self._turns.turn(self._order, str(self._order)):
            self._told.append(self._order)
            self.began.set()
            await self.may_end.wait()


@pytest.mark.parametrize(("servers", "most"), [(0, LEAST), (1, LEAST), (4, 2), (6, 3), (7, 4), (30, 15)])
def test_turns_grow_with_the_servers(servers: int, most: int) -> None:
    assert max_concurrent_readers(servers) == most


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(1, 4))
def test_a_few_at_one_time_and_the_lowest_order_first(orders: list[int], most: int) -> None:
    async def body(turns: ReadAdmission) -> None:
        turns.most, told = most, list[int]()
        readers = [Reader(turns, order, told) for order in orders]
        await settle()
        assert told == orders[:most], "those who come while there are turns have them"
        ended = 0
        while ended < len(orders):
            under_way = [reader for reader in readers if reader.began.is_set() and not reader.task.done()]
            assert 0 < len(under_way) <= most
            under_way[0].may_end.set()
            ended += 1
            await settle()
        assert told[most:] == sorted(orders[most:])

    story(body)


def test_who_goes_away_takes_no_turn_along() -> None:
    async def body(turns: ReadAdmission) -> None:
        turns.most, told = 1, list[int]()
        async with turns.turn(0, "first"):
            waits, granted, last = (Reader(turns, order, told) for order in (1, 2, 3))
            await settle()
            waits.task.cancel()
            await settle()
        granted.task.cancel()  # its turn has come, and it does not know yet
        last.may_end.set()
        await last.task
        assert told == [3]

    story(body)


def test_turns_are_scarce_as_long_as_more_read_than_there_are_turns() -> None:
    async def body(turns: ReadAdmission) -> None:
        async def read(*readers: str) -> bool:
            for order, reader in enumerate(readers):
                async with turns.turn(order, reader):
                    pass
            return turns.scarce

        turns.most = 2
        assert not await read("a", "b", "a", "b")
        assert await read("c"), "also if they come one after the other"
        turns.most = 3
        assert not turns.scarce
        turns.most = 2
        assert not await read(*("ab" * 40)), "the third one has gone"

    story(body)


def test_one_who_raises_gives_his_turn_back() -> None:
    async def body(turns: ReadAdmission) -> None:
        turns.most = 1
        with pytest.raises(OSError, match="gone"):
            async with turns.turn(1, "first"):
                raise OSError("gone")
        async with turns.turn(2, "second"):
            pass

    story(body)


def test_a_reader_that_takes_nothing_is_not_waited_for_long() -> None:
    async def body(turns: ReadAdmission) -> None:
        before = turns.timeout_s
        await turns.until(asyncio.Event().wait())
        assert turns.timeout_s > before, "links may be slower than was thought"
        for _ in range(100):
            await turns.until(asyncio.sleep(0))
        assert turns.timeout_s == before

    story(body)
