"""Children end with this process: by SIGTERM, by SIGKILL, with their descendants, and when this process is killed."""

import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from proteus_spot.infra.child_process import Child, stop_together
from proteus_spot.infra.errors import ProteusError
from tests.support.market_servers import wait_for

#: Writes its own id and its child's, then sleeps; a `stubborn` one ignores SIGTERM.
FAMILY = """
import os, signal, subprocess, sys, time
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
command = [sys.executable, "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(command, start_new_session=sys.argv[3] == "apart")
with open(sys.argv[1] + ".new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.replace(sys.argv[1] + ".new", sys.argv[1])
time.sleep(60)
"""


def _family(tmp_path: Path, manner: str = "kind", place: str = "together") -> list[str]:
    return [sys.executable, "-c", FAMILY, str(tmp_path / "pids"), manner, place]


def _pids(tmp_path: Path) -> list[int]:
    wait_for((tmp_path / "pids").exists, "the children")
    return [int(part) for part in (tmp_path / "pids").read_text().split()]


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "logs" / "child.log"
    for pid in _pids(tmp_path) if (tmp_path / "pids").exists() else []:
        if not _gone(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("place", ["together", "apart"])
@pytest.mark.parametrize("manner", ["kind", "stubborn"])
def test_a_child_ends_with_all_that_it_started(tmp_path: Path, log: Path, manner: str, place: str) -> None:
    child = Child(_family(tmp_path, manner, place), log).start()
    pids = _pids(tmp_path)
    assert child.pid == pids[0], "the leash becomes the command"
    assert not child.ended
    child.stop(grace_s=0.3)
    assert all(_gone(pid) for pid in pids)
    assert child.ended
    child.stop()


def test_a_context_ends_its_child_also_after_a_failure(tmp_path: Path, log: Path) -> None:
    def fail() -> None:
        with Child(_family(tmp_path), log):
            _pids(tmp_path)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert all(_gone(pid) for pid in _pids(tmp_path))


def test_who_ended_by_himself_is_told_with_the_end_of_his_log(log: Path) -> None:
    with Child([sys.executable, "-c", "print('one'); print('two'); raise SystemExit(3)"], log) as child:
        wait_for(lambda: child.ended, "the end")
        with pytest.raises(ProteusError, match=r"-c .* ended with 3: one \| two$"):
            child.check()


def test_a_traceback_is_told_by_its_last_error_however_long_it_is(log: Path) -> None:
    code = "import sys; sys.setrecursionlimit(90)\n"
    code += "def f(n): return f(n + 1) if n < 50 else open('/none/' + 'x' * 30)\nf(0)"
    with Child([sys.executable, "-c", code], log) as child:
        wait_for(lambda: child.ended, "the end")
        says = r"ended with 1: FileNotFoundError: \[Errno 2\] No such file or directory: '/none/x+' \(.*\)$"
        with pytest.raises(ProteusError, match=says):
            child.check()


def test_on_a_full_disk_that_is_why_a_child_ended(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = namedtuple("Usage", "total used free")(100, 100, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with Child([sys.executable, "-c", "raise SystemExit(3)"], log) as child:
        wait_for(lambda: child.ended, "the end")
        with pytest.raises(ProteusError, match=rf"ended with 3: No space left on device: {log.parent}; free some$"):
            child.check()


def test_a_command_that_does_not_exist_is_told(tmp_path: Path, log: Path) -> None:
    with Child([str(tmp_path / "none")], log) as child:
        wait_for(lambda: child.ended, "the end")
        with pytest.raises(ProteusError, match="none"):
            child.check()


def test_a_child_that_runs_is_in_order_and_one_without_a_log_says_so(tmp_path: Path, log: Path) -> None:
    child = Child(_family(tmp_path), log)
    assert child.ended
    assert child.tail() == f"(no log at {log})"
    with child:
        child.check()
    assert log.exists()


def test_its_environment_is_the_one_that_was_given(log: Path) -> None:
    code = "import os; print(sorted(os.environ))"
    with Child([sys.executable, "-c", code], log, {"ONLY": "this"}) as child:
        wait_for(lambda: child.ended, "the end")
    assert "'ONLY'" in log.read_text()
    assert "'HOME'" not in log.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's leash")
def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path, log: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from proteus_spot.infra.child_process import Child\n"
        "Child(sys.argv[2:], Path(sys.argv[1])).start(); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(log), *_family(tmp_path)])
    try:
        first, second = _pids(tmp_path)
        parent.kill()
        parent.wait()
        wait_for(lambda: _gone(first), "the child's end", 5)
    finally:
        parent.kill()
        parent.wait()
    os.kill(second, signal.SIGKILL)  # only the direct child has a parent-death signal


def test_a_child_takes_signals_as_after_a_login(log: Path) -> None:
    code = "import signal; print([signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGQUIT)])"
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Child([sys.executable, "-c", code], log) as child:
            wait_for(lambda: child.ended, "the end")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert log.read_text().count("SIG_DFL") == 2


def test_a_frozen_child_ends_by_force_alone(tmp_path: Path, log: Path) -> None:
    child = Child(_family(tmp_path), log).start()
    first, _ = _pids(tmp_path)
    child.freeze()
    wait_for(lambda: psutil.Process(first).status() == psutil.STATUS_STOPPED, "the stop")
    child.terminate()
    assert not child.ended
    child.kill()
    assert _gone(first)
    wait_for(lambda: all(_gone(pid) for pid in _pids(tmp_path)), "the end of the group")
    assert child.ended
    child.kill()


def test_children_are_ended_together(tmp_path: Path, log: Path) -> None:
    places = [tmp_path / name for name in ("one", "two", "three")]
    for place in places:
        place.mkdir()
    children = [Child(_family(place, "stubborn"), place / "log").start() for place in places]
    pids = [pid for place in places for pid in _pids(place)]
    stop_together(children, grace_s=0.3)
    assert all(_gone(pid) for pid in pids)
    stop_together([])
