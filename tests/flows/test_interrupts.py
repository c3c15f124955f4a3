"""Signals that ask a run to end: raised in the main thread, whatever it is at."""

import signal
import threading

import pytest

from flows.interrupts import Interrupted, interruptible
from tests.support.patience import PATIENCE


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
