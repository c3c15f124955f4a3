"""Signals that ask a run to end: the first one is raised in the main thread, the next one ends the process at once."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from infra.errors import ProteusError

#: Real seconds after which a signal whose exception was lost is raised again.
_AGAIN_S = 0.02
_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """Somebody asked the run to end; `outcome` is what has become of it, in one line."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number
        self.outcome = ""


def interruption_in(error: BaseException | None) -> "Interrupted | KeyboardInterrupt | None":
    """Return the interruption that became `error` on its way, None where there was none.

    Code that is not Python's may raise an error of its own in place of what a signal raised in it, with that as its cause
    or context: numba's raises SystemError.
    """
    waiting, seen = [error], set()
    while waiting:
        link = waiting.pop()
        if isinstance(link, Interrupted | KeyboardInterrupt):
            return link
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            waiting += [link.__context__, link.__cause__]
    return None


@contextmanager
def interruptions_as_such() -> Iterator[None]:
    """Raise an interruption that became another error on its way as what it was."""
    try:
        yield
    except Exception as error:
        found = interruption_in(error)
        if found is None:
            raise
        if isinstance(found, Interrupted) and isinstance(error, ProteusError):
            found.outcome = found.outcome or str(error)  # it failed while it was being ended
        raise found from None


class Interrupts:
    """What is done with a signal; see `interruptible`."""

    def __init__(self) -> None:
        #: the context has ended
        self.over = threading.Event()
        self._asked = False
        self._held = False
        #: whether a signal of our own may still come behind one that was taken
        self._sent_again = False
        self._lost = False

    def hold(self) -> None:
        """From now on the first signal changes nothing, because everything is being ended already."""
        self._held = True

    def take(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        if self._asked and self._sent_again:
            return  # our own, on its way when the other one was taken
        if self._asked:
            os._exit(128 + number)  # what we started ends with us: it is on a leash
        self._asked = True
        if not self._held:
            self._held = True
            raise Interrupted(number)

    def lost(self, number: int) -> None:
        """Ask again soon: what was raised met a callback of Python's own (a destructor, say), which passes nothing on."""
        self._lost, self._asked, self._held = True, False, False
        again = threading.Timer(_AGAIN_S, self._ask_again, (number,))
        again.daemon = True
        again.start()

    def _ask_again(self, number: int) -> None:
        self._lost = False
        if not self._asked:
            _send(number)

    def watch(self, pipe: int) -> None:
        """Send a signal that is written into `pipe` again, until it is taken; returns when the pipe is closed.

        One that comes just before the main thread begins to wait for something, or on another thread, does not wake it.
        """
        with os.fdopen(pipe, "rb", buffering=0) as told:
            while number := told.read(1):
                if number[0] not in _ASKING:
                    continue
                self.over.wait(_AGAIN_S)
                while not (self._asked or self._lost or self.over.is_set()):
                    self._sent_again = True
                    _send(number[0])
                    self.over.wait(_AGAIN_S)
                self._sent_again = False


def _send(number: int) -> None:
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, number)


@contextmanager
def explain_interrupt(outcome: str) -> Iterator[None]:
    """Have an interruption of the context tell `outcome`."""
    try:
        with interruptions_as_such():
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
        found = interruption_in(fault.exc_value)
        if isinstance(found, Interrupted):
            interrupts.lost(found.exit_code - 128)
        else:
            hook(fault)

    sys.unraisablehook = unraisable
    pipe, told = os.pipe()
    os.set_blocking(told, False)
    woken = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=interrupts.watch, args=(pipe,), daemon=True).start()
    try:
        with interruptions_as_such():
            yield interrupts
    finally:
        interrupts.over.set()
        signal.set_wakeup_fd(woken)
        os.close(told)
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
