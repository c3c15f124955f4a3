"""The log of a node survives it: processes are killed, crash, restart, and the store fails for a while."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from proteus_spot.infra.storage import node_logs
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.storage.node_logs import HEAD, TAIL, Incarnation, StoredLog, log_name, log_names
from tests.support.local_cluster import LocalCluster
from tests.support.market_servers import wait_for
from tests.support.timeouts import PATIENCE

#: A process that stores its log, prints that it does, and then runs the inserted code.
_PROCESS = """
import faulthandler, logging, os, sys, threading, warnings
from functools import partial
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.node_logs import stored_logs
logging.basicConfig(level=logging.INFO)
faulthandler.enable()
with stored_logs("job", "n1", "node", partial(Blobs, sys.argv[1])):
    {body}
"""


def _process(tmp_path: Path, body: str, url: str | None = None) -> "subprocess.Popen[str]":
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", _PROCESS.format(body=body), url or (tmp_path / "blobs").as_uri()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp")},
    )


def _run(tmp_path: Path, body: str) -> tuple[int, str]:
    """Return the exit code and the console's text, of standard output and error alike."""
    process = _process(tmp_path, body)
    out, console = process.communicate(timeout=60 * PATIENCE)
    assert out == ""
    return process.returncode, console


def _logs(tmp_path: Path, node: str = "n1") -> list[str]:
    blobs = Blobs((tmp_path / "blobs").as_uri())
    incarnations = log_names(blobs, "job").get(node, [])
    return [blobs.read_bytes(log_name("job", node, one)).decode() for one in incarnations]


def _left(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "tmp").glob("proteus-logs-*/*"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("logging.getLogger('x').info('logged')", "INFO:x:logged"),
        ("print('printed')", "printed"),
        ("os.write(2, b'written below Python')", "written below Python"),
        ("warnings.warn('think twice', stacklevel=1)", "UserWarning: think twice"),
        ("t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()", "ZeroDivisionError"),
        ("faulthandler.dump_traceback()", "Current thread 0x"),
        ("import subprocess; subprocess.run(['sh', '-c', 'echo of a child >&2'])", "of a child"),
    ],
)
def test_all_output_is_stored_and_shown_on_the_console(tmp_path: Path, body: str, said: str) -> None:
    code, console = _run(tmp_path, body)
    assert code == 0, console
    assert said in console
    assert _logs(tmp_path) == [console]
    assert _left(tmp_path) == []


def test_a_crash_is_shown_at_once_and_stored_by_the_next_process(tmp_path: Path) -> None:
    code, crash = _run(tmp_path, "print('before', flush=True); faulthandler._sigsegv()")
    assert code < 0
    assert "before" in crash
    assert "Fatal Python error: Segmentation fault" in crash
    assert _logs(tmp_path) == []
    assert len(_left(tmp_path)) == 1
    assert _run(tmp_path, "print('after')")[0] == 0
    assert _logs(tmp_path) == [crash, "after\n"]
    assert _left(tmp_path) == []


def test_no_process_takes_the_log_of_one_that_lives(tmp_path: Path) -> None:
    living = _process(tmp_path, "print('here', flush=True); sys.stdin.read(); print('and done')")
    assert living.stderr is not None
    assert living.stderr.readline() == "here\n"
    _run(tmp_path, "print('another')")
    assert _left(tmp_path) != []
    living.communicate(timeout=60 * PATIENCE)
    assert _logs(tmp_path) == ["here\nand done\n", "another\n"]
    assert _left(tmp_path) == []


def test_a_process_that_goes_on_after_ours_holds_nothing_up(tmp_path: Path) -> None:
    body = "import subprocess; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid)"
    process = _process(tmp_path, body)
    assert process.stderr is not None
    pid = int(process.stderr.readline())
    try:
        assert process.wait(30 * PATIENCE) == 0
        assert _logs(tmp_path) == [f"{pid}\n"]
    finally:
        os.kill(pid, 9)
        process.communicate(timeout=30 * PATIENCE)  # its `tee` has ended with it


@pytest.mark.parametrize("url", [None, "nosuch://x"])
def test_a_store_that_fails_disturbs_nothing(tmp_path: Path, url: str | None) -> None:
    (tmp_path / "blobs").write_text("in the way")
    process = _process(tmp_path, "print(sys.stdin.readline())", url)
    _, console = process.communicate("worked\n", timeout=60 * PATIENCE)
    assert process.returncode == 0
    assert "worked" in console
    assert len(_left(tmp_path)) == 1  # for the next one


def test_a_scratch_that_takes_nothing_disturbs_nothing(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "proteus-logs-job-n1-node").write_text("in the way")
    process = _process(tmp_path, "print('worked')")
    out, console = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 0
    assert out == "worked\n"
    assert console.count("the log of this process is not stored") == 1


def _kept(tmp_path: Path, text: bytes) -> StoredLog:
    path = tmp_path / "text"
    path.write_bytes(text)
    with path.open("rb") as file:
        return StoredLog.of(file)


LINES = b"".join(b"line %07d\n" % number for number in range(500_000))


@pytest.mark.parametrize("text", [b"", b"one", LINES[: HEAD + TAIL], LINES, b"x" * (HEAD + TAIL + 1)])
def test_of_a_long_log_its_ends_are_kept(tmp_path: Path, text: bytes) -> None:
    kept = _kept(tmp_path, text)
    data = kept.after(0)
    assert StoredLog.parse(data) == kept
    assert kept.size == len(text)
    assert len(data) <= HEAD + TAIL + 64
    assert text.startswith(kept.head)
    assert text.endswith(kept.tail)
    assert (kept.left_out > 0) == (len(text) > HEAD + TAIL)
    if kept.left_out and b"\n" in text:
        assert kept.head.endswith(b"\n")
        assert kept.tail.startswith(b"line ")
        assert b"[proteus: %d bytes are left out here]" % kept.left_out in data


@pytest.mark.parametrize("offset", [0, 5, HEAD - 100, HEAD + 100, len(LINES) - 100, len(LINES)])
def test_what_came_after_is_found_also_behind_a_gap(tmp_path: Path, offset: int) -> None:
    after = _kept(tmp_path, LINES).after(offset)
    assert LINES.endswith(after[-50:])
    if offset > len(LINES) - TAIL:
        assert after == LINES[offset:]
    else:
        assert b"bytes are left out here" in after


def test_incarnations_sort_by_time_and_say_what_they_are() -> None:
    names = ["20260601T120000.250Z-node-7", "20260601T120000.250Z-controller-9", "20251231T235959.999Z-node-99"]
    found = sorted(one for name in names if (one := Incarnation.parse(name + ".log")) is not None)
    assert [one.name for one in found] == [names[2], names[1], names[0]]
    assert found[-1].began_s == pytest.approx(1780315200.25)
    assert Incarnation.parse("rendezvous.json") is None
    ours = Incarnation.ours("node")
    assert Incarnation.parse(ours.name) == ours
    assert ours.pid == os.getpid()


def _holds(cluster: LocalCluster, node: str, count: int, text: str) -> Callable[[], bool]:
    def there() -> bool:
        blobs = cluster.blobs
        found = [blobs.read_bytes(log_name("job", node, one)) for one in log_names(blobs, "job").get(node, [])]
        return len(found) == count and text.encode() in found[-1]

    return there


@pytest.mark.e2e
def test_logs_of_nodes_that_are_killed_started_anew_and_ended(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:
        cluster.start_nodes(reliable=0, transient=1)
        wait_for(_holds(cluster, "t1", 1, "node t1 joined"), "its log", 20)
        cluster.kill("t1")
        assert _holds(cluster, "t1", 1, "node t1 joined")()
        console = (tmp_path / "t1.log").read_text()
        assert console.count("node t1 joined") == 1
        cluster.start_node("t1")
        wait_for(_holds(cluster, "t1", 2, "node t1 joined"), "a log of its own", 20)

        top = tmp_path / "blobs" / JobPaths("job").logs
        away = top.with_name("away")
        top.rename(away)
        top.write_text("in the way")  # the store is away while the node ends its work
        cluster.kill("controller")
        wait_for(lambda: "; looking for it again" in (tmp_path / "t1.log").read_text(), "the node to see it", 20)
        wait_for(lambda: "the log cannot be stored for now" in (tmp_path / "t1.log").read_text(), "a failed write", 20)
        top.unlink()
        away.rename(top)
        wait_for(_holds(cluster, "t1", 2, "; looking for it again"), "what was said meanwhile", 20)
        assert (tmp_path / "t1.log").read_text().count("the log cannot be stored for now") == 1

        cluster.start_controller()
        cluster.wait(lambda s: len(s["nodes"]) == 1, "the node")
        assert cluster.terminate("t1") == 0
        assert cluster.shutdown() == {"controller": 0}
        first, second = log_names(cluster.blobs, "job")["t1"]
        text = cluster.blobs.read_bytes(log_name("job", "t1", second)).decode()
        assert (tmp_path / "t1.log").read_text() == console + text  # to the last word
        assert [one.role for one in log_names(cluster.blobs, "job")["controller"]] == ["controller", "controller"]
        assert list((tmp_path / "tmp").glob("proteus-logs-*-t1-*")) == []
        assert first < second


def test_a_process_that_says_nothing_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = []
    write_new = node_logs._LogWriter._write_new

    def counted(writer: node_logs._LogWriter) -> None:
        write_new(writer)
        turns.append(1)

    monkeypatch.setattr(node_logs, "EVERY_S", 0.01)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(node_logs._LogWriter, "_write_new", counted)
    blobs = _Counted((tmp_path / "blobs").as_uri())
    with node_logs.stored_logs("job", "n1", "node", lambda: blobs):
        os.write(2, b"once\n")
        wait_for(lambda: blobs.writes == 1, "the write", 20)
        so_far = len(turns)
        wait_for(lambda: len(turns) > so_far + 20, "more turns", 20)
    assert blobs.writes == 1


class _Counted(Blobs):
    writes = 0

    def write_bytes(self, name: str, data: bytes) -> None:
        self.writes += 1
        super().write_bytes(name, data)
