"""What every test is under: failures that reproduce, no network beyond this machine, and nothing left running."""

import ipaddress
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.support.fork_server import nursery_pid
from tests.support.postgres import ABSENT, PostgresServer, binaries, postgres_server
from tests.support.timeouts import PATIENCE

# `default` draws the same examples every time; HYPOTHESIS_PROFILE=explore looks for new ones, for longer.
settings.register_profile("default", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
settings.load_profile(_PROFILE)
if _PROFILE == "default":
    # Hypothesis also draws the constants of all modules that a process has imported, so examples would depend on the
    # tests that ran before.
    providers._get_local_constants = lambda: providers._local_constants

#: Run first, one by each of two processes: the first compiles the backtest's loop for the other tests of its folder,
#: and the second takes longest of all but waits most of the time.
_FIRST = ("tests/bidding/backtest/test_runner.py", "tests/e2e/test_deployments.py")

ROOT = Path(__file__).resolve().parent.parent
_BEFORE = pytest.StashKey[set[str] | None]()

#: Real seconds that a child which was told to end has to be gone.
_ENDS_S = 5.0 * PATIENCE


def pytest_xdist_auto_num_workers() -> int:
    """Return two processes more than there are processors: many tests wait for processes that they have started."""
    return min((os.cpu_count() or 1) + 2, 8)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have files whose place in the order saves time come first; the others stay as they are."""
    items.sort(key=lambda item: next((i for i, name in enumerate(_FIRST) if item.nodeid.startswith(name)), len(_FIRST)))


def _untracked() -> set[str] | None:
    """The files of the checkout that git neither has nor ignores; None where there is no checkout."""
    command = ["git", "ls-files", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return set(listed.stdout.splitlines()) if listed.returncode == 0 else None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note what lies in the checkout."""
    session.stash[_BEFORE] = _untracked()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a test has left a file in the checkout: tests write to temporary folders."""
    before, after = session.stash[_BEFORE], _untracked()
    if hasattr(session.config, "workerinput") or before is None or after is None:
        return
    if left := sorted(after - before):
        print(f"\ntests have left files in the checkout: {', '.join(left)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


class NetworkUsed(RuntimeError):
    """A test called somebody beyond this machine."""


def _check_address(address: object) -> None:
    if not isinstance(address, tuple):
        return  # a UNIX socket
    host = str(address[0])
    try:
        local = ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        local = host in ("localhost", "")
    if not local:
        raise NetworkUsed(f"a test connects to {address}; tests talk to this machine only")


@pytest.fixture(autouse=True, scope="session")
def _loopback_only() -> Iterator[None]:
    """Refuse connections of this process beyond the loopback; a proxy would be one, too."""
    before = (socket.socket.connect, socket.socket.connect_ex)

    def connect(self: socket.socket, address: object) -> None:
        _check_address(address)
        before[0](self, address)  # type: ignore[arg-type]

    def connect_ex(self: socket.socket, address: object) -> int:
        _check_address(address)
        return before[1](self, address)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            patch.delenv(name, raising=False)
        patch.setattr(socket.socket, "connect", connect)
        patch.setattr(socket.socket, "connect_ex", connect_ex)
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    folder = binaries()
    if folder is None:
        pytest.skip(ABSENT)
    with postgres_server(folder) as server:
        yield server


def _children() -> list[psutil.Process]:
    try:
        return psutil.Process().children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@pytest.fixture(autouse=True, scope="module")
def _no_child_left() -> Iterator[None]:
    """Fail a module whose tests leave a process behind, and end it."""
    before = {process.pid for process in _children()}
    yield
    ours = [process for process in _children() if process.pid not in before and not _is_helper(process)]
    _, alive = psutil.wait_procs(ours, timeout=_ENDS_S)
    if alive:
        said = [f"{process.pid} {' '.join(_command(process))[:200]}" for process in alive]
        for process in alive:
            process.kill()
        psutil.wait_procs(alive, timeout=_ENDS_S)
        pytest.fail(f"left running: {said}")


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _is_helper(process: psutil.Process) -> bool:
    """Whether it lives as long as the process it serves: Python's resource tracker, a nursery of nodes, PostgreSQL."""
    command = " ".join(_command(process))
    helper = process.pid == nursery_pid() or "multiprocessing.resource_tracker" in command
    return helper or command.partition(" ")[0].rpartition("/")[2].startswith("postgres")
