from collections.abc import Callable

import pytest

from tests.support.fake_controllers import FakeControllers, install
from tests.support.plain_ticks import plain_tick
from tests.support.task_runtime import TaskRuntime

TICK_S = 120


class Ticks:
    """The ticks of the job, one after the other."""

    def __init__(self, here: TaskRuntime, controllers: FakeControllers, tick: Callable[[str], str]) -> None:
        self._here = here
        self.controllers = controllers
        self._tick = tick

    def __call__(self, number: int = 1) -> str:
        """Let so many ticks pass; return the summary of the last one."""
        done = ""
        for _ in range(number):
            self._here.clock.at_s += TICK_S
            done = self._tick("job")
        return done

    def minutes(self, minutes: float) -> None:
        """Let the ticks of so many minutes pass."""
        until_s = self._here.clock.at_s + 60 * minutes
        while self._here.clock.at_s + TICK_S <= until_s:
            self()


@pytest.fixture
def controllers(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> FakeControllers:
    """The controllers of the job."""
    made = FakeControllers(here, clocks=10**9)
    install(monkeypatch, made)
    return made


@pytest.fixture
def ticks(here: TaskRuntime, controllers: FakeControllers, monkeypatch: pytest.MonkeyPatch) -> Ticks:
    """The ticks of the job; waiting in one moves the market's clock."""

    def wait_until(at_s: float, _wake: object = None) -> bool:
        here.clock.at_s = max(here.clock.at_s, at_s)
        return False

    monkeypatch.setattr(here.clock, "wait_until", wait_until)
    return Ticks(here, controllers, plain_tick(monkeypatch))
