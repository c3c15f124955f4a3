"""`proteus logs`, as typed, on what a run left behind."""

import json
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import proteus_spot.tasks.reports.log_lines
from proteus_spot.flows.cli.commands.inspection.logs import logs
from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.infra.storage.node_logs import HEAD, TAIL, Incarnation, StoredLog, log_name
from proteus_spot.tasks.reports.log_lines import JobLogs
from tests.support.cli_process import PROTEUS, proteus
from tests.support.timeouts import PATIENCE

FIRST = Incarnation("20260601T120000.250", "node", 7)
SECOND = Incarnation("20260601T130000.000", "node", 9)
CONTROLLER = Incarnation("20260601T115959.000", "controller", 6)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """What a run leaves: a controller and a node on one machine, which began anew; and a job of another id."""
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        for job in ("job-1", "job-2"):
            store.jobs.create_job(job, {}, 1000.0)
    blobs = Blobs((tmp_path / "blobs").as_uri())
    for incarnation, text in (
        (CONTROLLER, "met\n"),
        (FIRST, "joined\nlost \x1b[31m[bold]\n"),
        (SECOND, "joined again"),
    ):
        blobs.write_bytes(log_name("job-1", "i-1", incarnation), text.encode())
    blobs.write_bytes(log_name("job-1", "i-2", FIRST), b"other\n")
    return tmp_path


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(logs, [str(argument) for argument in arguments])


def line(done: Result) -> str:
    """What the command says of bad input."""
    assert isinstance(done.exception, ProteusError), done.output
    assert done.exception.exit_code == 2
    return str(done.exception)


def test_the_table(directory: Path) -> None:
    done = run("job-1", "--dir", directory, "--json", directory / "out.json")
    assert done.exit_code == 0, done.output
    rows = [row.split() for row in done.output.splitlines()]
    assert rows[0] == ["node", "role", "began", "(UTC)", "bytes", "last", "line"]
    assert [row[:4] for row in rows[1:]] == [
        ["i-1", "controller", "20260601T115959.000Z", "4"],
        ["i-1", "node", "20260601T120000.250Z", "24"],
        ["i-1", "node", "20260601T130000.000Z", "12"],
        ["i-2", "node", "20260601T120000.250Z", "6"],
    ]
    assert rows[2][4:] == ["lost", "[31m[bold]"]  # no escape reaches the terminal, no markup is one
    said = json.loads((directory / "out.json").read_text())
    assert said["job"] == "job-1"
    assert said["logs"][1] == {
        "node": "i-1",
        "incarnation": FIRST.name,
        "role": "node",
        "began_s": FIRST.began_s,
        "bytes": 24,
        "last_line": "lost \x1b[31m[bold]",
    }
    alone = run("job-1", "--dir", directory, "--json", "-")
    assert json.loads(alone.output) == said


def test_the_text_of_a_node(directory: Path) -> None:
    done = run("job-1", "i-1", "--dir", directory)  # not to a terminal, hence without colours
    assert done.output == (
        f"== {CONTROLLER.name}\nmet\n== {FIRST.name}\njoined\nlost [bold]\n== {SECOND.name}\njoined again\n"
    )
    began = SECOND.name.partition("-")[0]
    assert run("job-1", "i-1", "--dir", directory, "--incarnation", began).output == (
        f"== {SECOND.name}\njoined again\n"
    )


def test_a_job_whose_nodes_said_nothing_yet(directory: Path) -> None:
    assert run("job-2", "--dir", directory).output == "no node has left a log yet\n"
    said = line(run("job-2", "i-1", "--dir", directory))
    assert said == "node i-1: has left no log of job job-2; there is none of any node yet"


def test_what_is_not_there_is_one_line_that_names_what_is(directory: Path) -> None:
    database = f"sqlite:///{directory}/state.db"
    unknown = "job other: is not in the state database; there are job-1, job-2"
    assert line(run("other", "--dir", directory)) == unknown
    assert line(run("other", "--dir", directory, "--database", database)) == unknown
    assert line(run("job-1", "i-3", "--dir", directory)) == (
        "node i-3: has left no log of job job-1; there are i-1, i-2"
    )
    assert line(run("job-1", "i-2", "--dir", directory, "--incarnation", "2027")) == (
        f"--incarnation 2027: node i-2 of job job-1 has none such; there are {FIRST.name}"
    )
    assert "holds no blobs; --dir names where" in line(run("job-1", "--dir", directory / "none"))
    assert "none.db: is not there" in line(run("job-1", "--dir", directory, "--database", "sqlite:////none.db"))
    assert "want 1 to 63" in line(run("Not An Id", "--dir", directory))
    assert "name it after the job" in run("job-1", "--incarnation", "x").output
    for options in (("i-1",), ("--follow",)):
        assert "leave NODE and --follow out" in run("job-1", *options, "--json", "-").output


def test_an_engine_that_ran_alone_has_no_database(directory: Path) -> None:
    (directory / "state.db").unlink()
    assert len(run("job-1", "--dir", directory).output.splitlines()) == 5
    said = line(run("other", "--dir", directory))
    assert said == f"job other: is not in {(directory / 'blobs').as_uri()}; there are job-1"


def test_where_the_logs_are_found(directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = directory / "here" / "runs"
    runs.mkdir(parents=True)
    monkeypatch.chdir(runs.parent)
    assert line(run("job-1", "--database", "sqlite:///none.db")) != ""
    (runs / "job-1").symlink_to(directory)
    assert len(run("job-1").output.splitlines()) == 5


def test_follow_tells_what_comes_until_the_job_has_ended(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proteus_spot.tasks.reports.log_lines, "EVERY_S", 0.01)
    blobs = Blobs((directory / "blobs").as_uri())
    long = b"".join(b"line %07d\n" % number for number in range(500_000))
    whole = len(long) - TAIL // 4
    log = directory / "log"
    pieces: list[tuple[str, str]] = []
    told = threading.Event()

    def follow() -> None:
        for piece in proteus_spot.tasks.reports.log_lines.JobLogs("job-1", directory=directory).follow("i-2"):
            pieces.append(piece)
            told.set()

    def shipped(text: bytes) -> None:
        told.clear()
        log.write_bytes(text)
        with log.open("rb") as file:
            blobs.write_bytes(log_name("job-1", "i-2", FIRST), StoredLog.of(file).after(0))

    thread = threading.Thread(target=follow)
    thread.start()
    assert told.wait(20 * PATIENCE)
    assert pieces == [(FIRST.name, "other\n")]
    for text in (b"other\nand more\n", b"other\nand more\n" + long[:whole], b"other\nand more\n" + long):
        shipped(text)
        assert told.wait(20 * PATIENCE)
    blobs.write_bytes(log_name("job-1", "i-2", SECOND), b"again\n")
    with Store.open(f"sqlite:///{directory}/state.db") as store:
        store.jobs.move_job("job-1", JobState.FAILED, 2000.0, failure="as it goes")
    thread.join(20 * PATIENCE)
    assert not thread.is_alive()
    assert pieces[1:2] == [(FIRST.name, "and more\n")]
    assert pieces[2][1].startswith("line 0000000\n")
    assert "bytes are left out here]\n" in pieces[2][1]
    assert len(pieces[2][1]) < HEAD + TAIL + 100
    assert pieces[3][1] == long[whole:].decode()
    assert pieces[4:] == [(SECOND.name, "again\n")]


def test_without_a_node_the_whole_job_is_followed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proteus_spot.tasks.reports.log_lines, "EVERY_S", 0.01)
    blobs = Blobs((directory / "blobs").as_uri())
    lines = [f"line {number}\n" for number in range(20)]
    blobs.write_bytes(log_name("job-1", "i-2", FIRST), "".join(lines).encode())
    pieces = JobLogs("job-1", directory=directory).follow_all()
    assert [next(pieces) for _ in range(4)] == [
        (f"i-1 {CONTROLLER.name}", "met\n"),
        (f"i-1 {FIRST.name}", "joined\nlost \x1b[31m[bold]\n"),
        (f"i-1 {SECOND.name}", "joined again"),
        (f"i-2 {FIRST.name}", "".join(lines[-10:])),
    ]
    blobs.write_bytes(log_name("job-1", "i-2", FIRST), "".join([*lines, "more\n"]).encode())
    blobs.write_bytes(log_name("job-1", "i-3", SECOND), "".join(lines).encode())  # began meanwhile: nothing is left out
    assert [next(pieces) for _ in range(2)] == [(f"i-2 {FIRST.name}", "more\n"), (f"i-3 {SECOND.name}", "".join(lines))]
    with Store.open(f"sqlite:///{directory}/state.db") as store:
        store.jobs.move_job("job-1", JobState.FAILED, 2000.0, failure="as it goes")
    assert list(pieces) == []
    done = run("job-1", "--dir", directory, "-f")
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"== i-1 {CONTROLLER.name}\nmet\n")


def test_the_help_shows_no_control_characters() -> None:
    text = run("--help").output
    assert "\\b" not in text
    assert "\b" not in text
    assert "  proteus logs my-job --follow " in text


def test_without_a_database_the_model_ends_it(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proteus_spot.tasks.reports.log_lines, "EVERY_S", 0.01)
    (directory / "state.db").unlink()
    Blobs((directory / "blobs").as_uri()).write_set(JobPaths("job-1").model, {}, {"clocks": 1})
    assert run("job-1", "i-2", "--dir", directory, "--follow").output == f"== {FIRST.name}\nother\n"


def test_follow_ends_on_ctrl_c_and_a_reader_may_leave(directory: Path) -> None:
    command = [PROTEUS, "logs", "job-1", "i-1", "--dir", str(directory), "--follow"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline() != "joined again\n":
        pass
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20 * PATIENCE) == ("", "")
    assert process.returncode == 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline() != "joined again\n":
        pass
    process.send_signal(signal.SIGTERM)
    says = "proteus: interrupted: job job-1 is no longer followed here; it continues\n"
    assert process.communicate(timeout=20 * PATIENCE) == ("", says)
    assert process.returncode == 143
    assert proteus("logs", "--help", cwd=directory, home=directory / "home").code == 0

    Blobs((directory / "blobs").as_uri()).write_bytes(log_name("job-1", "i-2", SECOND), b"x\n" * 1_000_000)
    process = subprocess.Popen(
        [*command[:3], "i-2", *command[4:6]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(20 * PATIENCE) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
