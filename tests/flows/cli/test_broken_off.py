"""A command that is broken off by a signal says in one line what became of its work.

How a run is broken off is in tests/flows/local_market/test_run_broken_off.py.
"""

import errno
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from proteus_spot.infra.state.store import Store
from tests.support.cli_process import PROTEUS, environment
from tests.support.market_servers import wait_for
from tests.support.timeouts import PATIENCE

#: Signals and exit codes; that both are handled alike is seen in test_train.py, and in the storms.
SIGNALS = [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.storm)]
#: Verb -> what it is given, and what is said when it is broken off. {held} is a file that nobody has written yet.
BROKEN_OFF: Mapping[str, tuple[str, str]] = {
    "submit": ("submit {held}", "nothing was bought"),
    "traces describe": ("traces describe {held}", "nothing was bought"),
}


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("verb", BROKEN_OFF)
def test_broken_off_a_verb_says_one_line(tmp_path: Path, verb: str, number: signal.Signals, code: int) -> None:
    options, says = BROKEN_OFF[verb]
    held = tmp_path / "held"  # a process that opens it waits for what is never written
    os.mkfifo(held)
    arguments = [part.format(here=tmp_path, held=held) for part in options.split()]
    with _begun(*arguments, here=tmp_path, PROTEUS_CATALOG=str(held)) as process:
        writer = _wait_opened(held, process)
        assert _broken_off(process, number) == (code, "", says)
        os.close(writer)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_broken_off_while_it_stops_a_job_nobody_knows(tmp_path: Path, number: signal.Signals, code: int) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with Store.open(url) as store:
            store.jobs.create_job("job", {}, 1000.0)
            store.jobs.set_controller("job", f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        with _begun("stop", "job", here=tmp_path, PROTEUS_DATABASE_URL=url) as process:
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                says = "whether job job is to stop is not known; `proteus jobs` shows it; stop may be repeated"
                assert _broken_off(process, number) == (code, "", says)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_broken_off_while_it_lists_jobs_nothing_was_bought(tmp_path: Path, number: signal.Signals, code: int) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    with Store.open(url) as store:
        store.jobs.create_job("job", {}, 1000.0)
    clock = tmp_path / "clock"  # a process that opens it waits for what is never written
    os.mkfifo(clock)
    with _begun("jobs", here=tmp_path, PROTEUS_DATABASE_URL=url, PROTEUS_CLOCK=str(clock)) as process:
        writer = _wait_opened(clock, process)
        assert _broken_off(process, number) == (code, "", "nothing was bought")
        os.close(writer)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_broken_off_while_it_submits_nobody_knows(tmp_path: Path, number: signal.Signals, code: int) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("{job_id: j, training: {clocks: 3}, transient: {markets: [c4.large/us-east-1a]}}")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/api"
        with _begun("submit", str(job), here=tmp_path, PREFECT_API_URL=url) as process:
            silent.settimeout(60)
            silent.accept()
            says = "whether job j was submitted is not known; submit it again, and it attaches"
            assert _broken_off(process, number) == (code, "", says)


@contextmanager
def _begun(*arguments: str, here: Path, **variables: str) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [PROTEUS, *arguments],
        cwd=here,
        env=environment(here / "home") | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _wait_opened(held: Path, process: "subprocess.Popen[str]") -> int:
    """Wait until the command reads from the pipe `held`; return the pipe's other end, which writes nothing."""
    writer: list[int] = []

    def opened() -> bool:
        assert process.poll() is None, process.communicate()
        try:
            writer.append(os.open(held, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:  # nobody reads yet
                raise
            return False
        return True

    wait_for(opened, "the command to read", 60)
    return writer[0]


def _broken_off(process: "subprocess.Popen[str]", number: signal.Signals) -> tuple[int, str, str]:
    """Send a signal; return the exit code, what went to standard output, and the line behind "interrupted: "."""
    process.send_signal(number)
    out, err = process.communicate(timeout=20 * PATIENCE)
    assert err.count("\n") == 1, err
    return process.returncode, out, err.strip().removeprefix("proteus: interrupted: ")
