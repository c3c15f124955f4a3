"""Standard output that is closed or full, and disks that are: one line, exit code 2, and nothing is left."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_process import PROTEUS, Outcome, environment
from tests.support.timeouts import PATIENCE

PRICES = """timestamp,instance_type,az,product,price
2016-04-01T00:00:00Z,m4.large,us-east-1a,Linux/UNIX,0.0312
2016-04-01T06:30:00Z,m4.large,us-east-1a,Linux/UNIX,0.0500
2016-04-02T00:00:00Z,m4.large,us-east-1a,Linux/UNIX,0.0333
2016-04-03T00:00:00Z,m4.large,us-east-1a,Linux/UNIX,0.0310
"""
BILL = "bill --prices prices.csv --market m4.large/us-east-1a --count 1 --bid 0.05 --at 2016-04-01T12:00:00Z --hours 2"
FULL = "proteus: standard output: No space left on device; send it elsewhere\n"
CLOSED = "proteus: standard output: is closed; send it to a file, or to /dev/null\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    directory = tmp_path / "here"
    directory.mkdir()
    (directory / "prices.csv").write_text(PRICES)
    return directory


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(directory)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)


def shell(here: Path, command: str) -> Outcome:
    """Run a line of a shell in which `proteus` is the command."""
    line = command.replace("proteus", shlex.quote(PROTEUS))
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=here,
        env=environment(here.parent / "home"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("command", "target", "says"),
    [
        ("--help", "/dev/full", FULL),
        ("traces describe prices.csv", "&-", CLOSED),
        (f"{BILL} --json -", "/dev/full", FULL),
        pytest.param("--help", "&-", CLOSED, marks=pytest.mark.storm),
        pytest.param("traces describe prices.csv", "/dev/full", FULL, marks=pytest.mark.storm),
        pytest.param(f"{BILL} --json -", "&-", CLOSED, marks=pytest.mark.storm),
    ],
)
def test_output_that_nobody_takes_is_one_line(here: Path, command: str, target: str, says: str) -> None:
    outcome = shell(here, f"proteus {command} >{target}")
    assert (outcome.code, outcome.err) == (2, says)
    assert [path.name for path in here.iterdir()] == ["prices.csv"]


@pytest.mark.parametrize("target", ["/dev/full", "&-"])
def test_messages_that_nobody_reads_change_nothing(here: Path, target: str) -> None:
    assert shell(here, f"proteus {BILL} 2>{target}").code == 0
    assert shell(here, f"proteus bill --prices none.csv 2>{target}").code == 2
    assert shell(here, f"proteus {BILL} >{target} 2>&-").code == 2


def test_a_reader_that_has_seen_enough_ends_it_without_a_word(here: Path) -> None:
    outcome = shell(here, f"proteus {BILL} | true; exit ${{PIPESTATUS[0]}}")
    assert (outcome.code, outcome.err) == (1, "")


def test_no_file_takes_the_number_of_a_closed_stream(here: Path) -> None:
    outcome = shell(here, f"proteus {BILL} --json out.json <&- 2>&-")
    assert outcome.code == 0
    assert (here / "out.json").read_text().startswith("{")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("traces describe prices.csv --json {}", marks=pytest.mark.storm),
        f"{BILL} --json {{}}",
        "traces convert prices.csv {}.csv",
    ],
)
def test_a_file_that_has_no_room_is_one_line_and_not_there(here: Path, command: str) -> None:
    (here / "old").write_text("before")
    for name in ("new", "old"):
        # no file may grow beyond nothing: as on a full disk, but for the name of the error
        outcome = shell(here, f"ulimit -f 0; trap '' XFSZ; proteus {command.format(name)} >/dev/null")
        assert outcome.code == 2, outcome
        assert re.fullmatch(
            rf"proteus: {name}\S*: cannot be written \(.*File too large.*\); give another place\n", outcome.err
        )
    assert sorted(path.name for path in here.iterdir()) == ["old", "prices.csv"]
    assert (here / "old").read_text() == "before"


def test_on_a_full_disk_it_says_so(small_disk: Path) -> None:
    (small_disk / "prices.csv").write_text(PRICES)
    filled = subprocess.run(
        ["dd", "if=/dev/zero", f"of={small_disk / 'fill'}", "bs=4k"], capture_output=True, check=False
    )
    assert filled.returncode == 1
    before = sorted(path.name for path in small_disk.iterdir())
    for command, says in (
        (f"{BILL} --json x.json", r"x\.json: cannot be written \(.*No space left on device.*\); give another place"),
        (
            "run --hours 0.1 --job r",
            r"--dir \S+/runs/r: No space left on device: 0\.0 MB are free, and at least 32 are .*",
        ),
        ("train mlr --job r", r"--dir \S+/runs/r: No space left on device: 0\.0 MB are free, and at least 1 are .*"),
    ):
        outcome = shell(small_disk, f"proteus {command} >/dev/null")
        assert outcome.code == 2, outcome
        assert re.fullmatch(rf"proteus: {says}\n", outcome.err), outcome.err
    assert sorted(path.name for path in small_disk.iterdir()) == before


def test_a_run_on_a_small_disk_is_refused_before_anything_is_started(small_disk: Path) -> None:
    outcome = shell(small_disk, "proteus run --hours 0.1 --job r")
    assert outcome.code == 2
    assert re.fullmatch(r"proteus: --dir \S+/runs/r: No space left on device: [23]\.\d MB are free, .*\n", outcome.err)
    assert list(small_disk.iterdir()) == []
