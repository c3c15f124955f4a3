"""Signals that ask a run to end: raised in the main thread, whatever it is at."""

import os
import signal
import threading

import pytest

from flows.terminal.interrupts import Interrupted, interruptible
from tests.support.timeouts import PATIENCE


def _meet_a_destructor() -> None:
    AskedInItsDestructor()
    assert threading.Event().wait(10 * PATIENCE), "the signal was lost"


def test_a_signal_is_raised_once() -> None:
    with pytest.raises(Interrupted) as raised, interruptible():
        signal.raise_signal(signal.SIGTERM)
    assert raised.value.exit_code == 143


class AskedInItsDestructor:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_a_signal_that_meets_a_destructor_is_not_lost() -> None:
    with pytest.raises(Interrupted) as raised, interruptible():
        _meet_a_destructor()
    assert raised.value.exit_code == 130


def test_a_signal_changes_nothing_while_everything_is_being_ended() -> None:
    with interruptible() as interrupts:
        interrupts.hold()
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_does_not_wake_the_main_thread_is_sent_again(number: signal.Signals) -> None:
    """It comes on another thread here; one just before the wait begins goes by in the same way."""
    read, write = os.pipe()
    elsewhere = threading.Timer(0.1, lambda: signal.pthread_kill(threading.get_ident(), number))
    at_last = threading.Timer(5.0 * PATIENCE, os.write, (write, b"nobody came"))
    at_last.start()
    try:
        elsewhere.start()
        with pytest.raises(Interrupted) as raised, interruptible():
            os.read(read, 20)
        assert at_last.is_alive(), "it was not woken by a signal"
        assert raised.value.exit_code == 128 + number
    finally:
        at_last.cancel()
        os.close(read)
        os.close(write)


def test_whoever_was_woken_by_signals_before_is_again() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    try:
        with interruptible():
            pass
    finally:
        assert signal.set_wakeup_fd(-1) == write
        os.close(read)
        os.close(write)
