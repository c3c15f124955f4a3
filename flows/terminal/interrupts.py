"""Signals that ask a run to end: the first raises in the main thread, the second ends the process at once."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from proteus_spot.infra.errors import ProteusError

#: Real seconds after which a signal whose exception was lost is raised again.
_AGAIN_S = 0.02
_ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked the run to end; `outcome` describes the state of the run in one line."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number
        self.outcome = ""


def interruption_in(error: BaseException | None) -> "Interrupted | KeyboardInterrupt | None":
    """Return the interruption that caused `error`, None if there is none.

    Native code may replace the exception that a signal raised in it by another error, with the exception as cause or
    context: numba's raises SystemError.
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
    """Restore an interruption that native code has replaced by another error."""
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
    """Handlers of the signals; see `interruptible`."""

    def __init__(self) -> None:
        #: Set when the context has ended.
        self.over = threading.Event()
        self._asked = False
        self._held = False
        #: Whether a signal sent by `watch` may still arrive after the original was handled.
        self._sent_again = False
        self._lost = False

    def hold(self) -> None:
        """Ignore the first signal from now on, because the run is already ending."""
        self._held = True

    def take(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        if self._asked and self._sent_again:
            return  # sent by `watch` before the original was handled
        if self._asked:
            os._exit(128 + number)  # child processes end with this one: they have a parent death signal
        self._asked = True
        if not self._held:
            self._held = True
            raise Interrupted(number)

    def lost(self, number: int) -> None:
        """Raise again soon: the exception was raised in a Python callback (e.g. a destructor) and was discarded."""
        self._lost, self._asked, self._held = True, False, False
        again = threading.Timer(_AGAIN_S, self._ask_again, (number,))
        again.daemon = True
        again.start()

    def _ask_again(self, number: int) -> None:
        self._lost = False
        if not self._asked:
            _send(number)

    def watch(self, pipe: int) -> None:
        """Resend every signal written into `pipe` until it is handled; return when the pipe is closed.

        A signal that arrives just before the main thread starts to wait, or on another thread, does not wake it.
        """
        with os.fdopen(pipe, "rb", buffering=0) as signals:
            while number := signals.read(1):
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
    """Give an interruption of the context the text `outcome`, unless it has one."""
    try:
        with interruptions_as_such():
            yield
    except Interrupted as error:
        error.outcome = error.outcome or outcome
        raise


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Raise `Interrupted` in the main thread, which must be the caller's, when a signal asks to end."""
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
    pipe, wakeup_fd = os.pipe()
    os.set_blocking(wakeup_fd, False)
    previous_fd = signal.set_wakeup_fd(wakeup_fd, warn_on_full_buffer=False)
    threading.Thread(target=interrupts.watch, args=(pipe,), daemon=True).start()
    try:
        with interruptions_as_such():
            yield interrupts
    finally:
        interrupts.over.set()
        signal.set_wakeup_fd(previous_fd)
        os.close(wakeup_fd)
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
