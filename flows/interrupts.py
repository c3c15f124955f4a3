"""Signals that ask a run to end: the first one is raised in the main thread, the next one ends the process at once."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: Real seconds after which a signal whose exception was lost is raised again.
_AGAIN_S = 0.02
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

    def lost(self, number: int) -> None:
        """Ask again soon: what was raised met a callback of Python's own (a destructor, say), which passes nothing on."""
        self._asked = self._held = False
        again = threading.Timer(_AGAIN_S, self._ask_again, (number,))
        again.daemon = True
        again.start()

    def _ask_again(self, number: int) -> None:
        main = threading.main_thread().ident
        if not self._asked and main is not None:
            signal.pthread_kill(main, number)


@contextmanager
def or_else(outcome: str) -> Iterator[None]:
    """Have an interruption of the context tell `outcome`."""
    try:
        yield
    except Interrupted as error:
        error.outcome = error.outcome or outcome
        raise


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Raise `Interrupted` in the main thread, which must be ours, when a signal asks to end."""
    interrupts = Interrupts()
    before = {number: signal.signal(number, interrupts.take) for number in _ASKING}
    hook = sys.unraisablehook

    def unraisable(fault: Any) -> None:
        if isinstance(fault.exc_value, Interrupted):
            interrupts.lost(fault.exc_value.exit_code - 128)
        else:
            hook(fault)

    sys.unraisablehook = unraisable
    try:
        yield interrupts
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
