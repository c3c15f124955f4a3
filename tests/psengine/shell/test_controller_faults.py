"""Exceptions planted in the controller: each ends the job with one line, and none leaves it hanging."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from proteus_spot.psengine.controller.controller import Controller
from proteus_spot.psengine.controller.job_events import JobEvents
from proteus_spot.psengine.membership.reachability import Links
from proteus_spot.psengine.protocol.events import BatchDone, Event, JobStarted, NodeJoined, TimerFired
from proteus_spot.psengine.protocol.instructions import Instruction
from proteus_spot.psengine.shell import controller_shell
from proteus_spot.psengine.shell.controller_shell import ControllerShell
from tests.support.shell_nodes import NODE, Nodes, Scheduler, Store, job, story
from tests.support.timeouts import PATIENCE


async def failed(shell: ControllerShell) -> str:
    """Wait for the end of the job, and return its reason without the line of this file."""
    async with asyncio.timeout(5 * PATIENCE):
        while (status := await shell.status())["state"] not in ("finished", "failed"):
            await asyncio.sleep(0.001)
    assert status["state"] == "failed"
    return re.sub(r"test_controller_faults.py:\d+: ", "", status["reason"])


def plant(monkeypatch: pytest.MonkeyPatch, kind: type[Event]) -> None:
    """Have `handle` raise at every event of a kind."""
    handle = Controller.handle

    def faulty(self: Controller, event: Event) -> list[Instruction]:
        instructions = handle(self, event)
        if isinstance(event, kind):
            raise KeyError("planted")
        return instructions

    monkeypatch.setattr(Controller, "handle", faulty)


@pytest.mark.parametrize("kind", [BatchDone, TimerFired])
def test_an_exception_in_handle_fails_the_job_with_one_line(kind: type[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, kind)
    monkeypatch.setattr(controller_shell, "_TICK_S", 0.01)

    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._spawn(shell._tick())
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job(clocks=10**6).to_dict())
        assert await failed(shell) == f"a fault in the controller ({kind.__name__}): KeyError: 'planted'"
        assert not shell.closing.is_set(), "the flow reads the reason first"
        shell._on_joined("t", "tcp://t", "transient", 1)
        assert "t" in shell.controller.job.members.nodes, "or a shutdown would leave it behind"

    story(body, Store())


def test_an_exception_beside_handle_fails_the_job_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*arguments: Any) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(Links, "look", look)
    monkeypatch.setattr(controller_shell, "_TICK_S", 0.01)

    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job(clocks=10**6).to_dict())
        shell._spawn(shell._tick())
        assert await failed(shell) == "a fault in the controller (background work): KeyError: 'planted'"

    story(body, Store())


def test_a_report_that_cannot_be_read_fails_the_job_and_not_the_node() -> None:
    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("r", NODE, "reliable", 1)
        await shell.start(job(clocks=10**6).to_dict())
        assert await shell.event({}, NODE, {"push": "many"}) == "ok"  # type: ignore[dict-item]
        assert (await failed(shell)).startswith("a fault in the controller (a report): TypeError")

    story(body, Store())


def test_a_controller_that_fails_before_there_is_a_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, NodeJoined)

    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        shell._on_joined("r", NODE, "reliable", 1)
        assert shell.closing.is_set()
        assert shell.fault == "a fault in the controller (NodeJoined): KeyError: 'planted'"

    story(body, Store())


def test_a_job_that_cannot_begin_is_answered_with_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def adopt(*arguments: Any) -> None:
        raise ZeroDivisionError("by the user's driver")

    monkeypatch.setattr(JobEvents, "_adopt", adopt)

    async def body(shell: ControllerShell, nodes: Nodes, scheduler: Scheduler) -> None:
        answer = await shell.start(job().to_dict())
        line = f"a fault in the controller ({JobStarted.__name__}): ZeroDivisionError: by the user's driver"
        assert answer == {"error": line}

    story(body, Store())
