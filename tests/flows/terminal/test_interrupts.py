"""Signals that ask a run to end: raised in the main thread, whatever it is at."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from proteus_spot.flows.terminal.interrupts import Interrupted, explain_interrupt, interruptible, interruption_in
from proteus_spot.infra.errors import ProteusError
from tests.support.cli_process import environment
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


def test_previous_wakeup_fd_is_restored() -> None:
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


# What becomes of it in code that is not Python's


def _raise_another(error: Exception, *, hides_context: bool) -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except Interrupted as interruption:
        raise error from None if hides_context else interruption


@pytest.mark.parametrize("hides_context", [False, True])
@pytest.mark.parametrize("error", [SystemError("a result with an exception set"), OSError(5, "no luck")])
def test_an_interruption_that_became_another_error_is_one(error: Exception, hides_context: bool) -> None:
    with pytest.raises(Interrupted) as raised, interruptible(), explain_interrupt("nothing was begun"):
        _raise_another(error, hides_context=hides_context)
    assert (raised.value.exit_code, raised.value.outcome) == (130, "nothing was begun")


def test_what_failed_while_it_was_being_ended_is_said() -> None:
    with pytest.raises(Interrupted) as raised, interruptible():
        _raise_another(ProteusError("job j: the model could not be saved"), hides_context=False)
    assert raised.value.outcome == "job j: the model could not be saved"


def _fail_after_a_failure() -> None:
    try:
        raise OSError("before")
    except OSError as error:
        raise SystemError("of its own") from error


def test_an_error_without_an_interruption_stays_what_it_is() -> None:
    with pytest.raises(SystemError, match="of its own"), interruptible():
        _fail_after_a_failure()
    circle = ValueError()
    circle.__cause__ = circle.__context__ = OSError()
    circle.__cause__.__context__ = circle
    assert interruption_in(circle) is None


#: numba's dispatcher raises SystemError if a signal arrives while its compiled code runs: always, if the result is
#: arrays.
PLAN_IN_NUMBA = """
import sys
import numba, numpy as np
import proteus_spot.studies.plan.planner
from proteus_spot.flows.cli.main import main

@numba.njit
def scaled(values):
    total = 0.0
    for k in range(30_000_000):
        total += values[k % 5] * 1.0000001
    return values * total, values + total

def make_plan(spec, report):
    print("computing", file=sys.stderr, flush=True)
    for _ in range(10**6):
        scaled(np.arange(5.0))

scaled(np.arange(5.0))
proteus_spot.studies.plan.planner.make_plan = make_plan
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_compiled_code_runs_ends_the_command_as_any_other(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PLAN_IN_NUMBA, "plan", "--vcpu-hours", "400"],
        cwd=tmp_path,
        env=environment(tmp_path / "home") | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        while "computing" not in (line := process.stderr.readline()):
            assert line, "it ended"
        process.send_signal(number)
        out, err = process.communicate(timeout=30 * PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, out) == (128 + number, "")
    assert err.splitlines()[-1] == "proteus: interrupted: nothing was bought"
    assert "Traceback" not in err
