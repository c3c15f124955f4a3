"""Signals that ask a run to end: the first one is raised in the main thread, the next one ends the process at once."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """Somebody asked the run to end; `outcome` is what has become of it, in one line."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number
        self.outcome = ""


class Interrupts:
    """What is done with a signal; see `interruptible`."""

    def __init__(self) -> None:
        self._asked = False
        self._held = False

    def hold(self) -> None:
        """From now on the first signal changes nothing, because everything is being ended already."""
        self._held = True

    def take(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        if self._asked:
            os._exit(128 + number)  # what we started ends with us: it is on a leash
        self._asked = True
        if not self._held:
            self._held = True
            raise Interrupted(number)


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Raise `Interrupted` in the main thread, which must be ours, when a signal asks to end."""
    interrupts = Interrupts()
    before = {number: signal.signal(number, interrupts.take) for number in _ASKING}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
