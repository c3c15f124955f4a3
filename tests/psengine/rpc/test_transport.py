"""How long a call may take follows what the transfers of a process have taken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proteus_spot.psengine.rpc.transport import Transfers, Unreachable
from tests.support.virtual_time import run_virtual

GB = 10**9


class Link:
    """Brings `rate` bytes a second, or, at 0, nothing."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.calls = 0

    async def call(self, address: str, op: str, deadline_s: float, **message: Any) -> Any:
        self.calls += 1
        takes_s = message["n"] / self.rate if self.rate else float("inf")
        await asyncio.sleep(min(takes_s, deadline_s))
        if takes_s > deadline_s:
            raise Unreachable(address, op, TimeoutError())
        return "ok"


def test_nobody_waits_for_a_gigabyte_for_a_day() -> None:
    """At 10 kB/s it would be 28 hours."""
    transfers = Transfers(Link(1.0))
    assert transfers.deadline_s(60.0, GB) <= 60.0 + 1800.0
    assert transfers.deadline_s(10.0, 10_000_000) == pytest.approx(1010.0), "a slow link with many readers"
    transfers.note(GB, 10.0)
    assert transfers.deadline_s(60.0, GB) == pytest.approx(60.0 + 1000.0), "a process may stand still for a while"
    transfers.note(GB, 100.0)
    transfers.note(GB, 10.0)
    assert transfers.deadline_s(60.0, GB) == pytest.approx(60.0 + 64 * 100.0), "the slowest of the last ones counts"
    for _ in range(16):
        transfers.note(GB, 20.0)
    assert transfers.deadline_s(60.0, GB) == pytest.approx(60.0 + 64 * 20.0)


def test_a_link_that_becomes_much_slower_is_waited_for_longer_each_time() -> None:
    async def story() -> None:
        link = Link(50e6)
        transfers, loop = Transfers(link), asyncio.get_running_loop()
        await transfers.call("tcp://a", "op", 10.0, GB, n=GB)
        link.rate, took_s = 0.4e6, list[float]()
        while True:
            began_s = loop.time()
            try:
                await transfers.call("tcp://a", "op", 10.0, GB, n=GB)
                break
            except Unreachable:
                took_s.append(loop.time() - began_s)
        assert took_s == pytest.approx([10.0 + 64 * 20.0])
        assert loop.time() - began_s == pytest.approx(2500.0)
        assert transfers.deadline_s(10.0, GB) == pytest.approx(10.0 + 64 * 2500.0)

    run_virtual(story(), 10_000.0)


def test_small_and_refused_messages_say_nothing_about_a_link() -> None:
    async def story() -> None:
        link = Link(0.0)
        transfers = Transfers(link)
        before_s = transfers.deadline_s(10.0, GB)
        with pytest.raises(Unreachable):
            await transfers.call("tcp://a", "op", 10.0, 1000, n=1000)
        link.rate = 1.0
        assert await transfers.call("tcp://a", "op", 10.0, 5, n=5) == "ok"
        assert transfers.deadline_s(10.0, GB) == before_s

    run_virtual(story(), 10_000.0)
