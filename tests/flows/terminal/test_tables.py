"""Tables on a terminal of 60 or 80 columns, and piped: no id, figure or market is ever cut."""

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

import proteus_spot.flows.terminal.tables
from proteus_spot.flows.terminal.tables import Column, fitting, show_lines, show_table
from proteus_spot.infra.state.store import Store
from tests.support.cli_process import PROTEUS, environment

ID = "run-20260601-120000-a-long-name-of-a-job"
MARKET = "m4.16xlarge/us-east-1a"
COLUMNS = (
    *(Column("job"), Column("market"), Column("clock", 2, right=True), Column("spent", right=True)),
    *(Column("loss", 3, right=True), Column("why", 1, least=10), Column("last line", 4, least=10, cut=True)),
)
ROWS = [
    ("short", "c4.large/a", "12", "$0.1050", "0.5123", "", "joined"),
    (ID, MARKET, "987654", "$1234.5678", "1.2345", "its controller was lost and could not be found again", "x" * 500),
]


@pytest.fixture
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int | None:
    monkeypatch.setattr(proteus_spot.flows.terminal.tables, "terminal_width", lambda: request.param)
    value: int | None = request.param
    return value


def _lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [40, 60, 76, 80, 100, 130, 200], indirect=True)
def test_nothing_is_wider_than_the_terminal_and_nothing_of_worth_is_cut(
    width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    show_table(COLUMNS, ROWS, title="What they did", caption="dollars")
    lines = _lines(capsys)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    words = set(text.split())
    assert {ID, MARKET, "$1234.5678", "$0.1050", "c4.large/a"} <= words
    assert {"What", "dollars"} <= words
    for figure in ("987654", "1.2345"):
        assert figure in words or f"{figure[:3]}" not in text, "whole, or left out"


def test_the_columns_of_least_worth_are_left_out_first() -> None:
    all_of_it = 40 + 22 + 6 + 10 + 6 + 10 + 10 + 2 * 6
    assert fitting(COLUMNS, ROWS, None) == list(range(7))
    assert fitting(COLUMNS, ROWS, all_of_it) == list(range(7))
    assert fitting(COLUMNS, ROWS, all_of_it - 1) == [0, 1, 2, 3, 4, 5]
    assert fitting(COLUMNS, ROWS, all_of_it - 12) == [0, 1, 2, 3, 4, 5]
    assert fitting(COLUMNS, ROWS, all_of_it - 13) == [0, 1, 2, 3, 5]
    assert fitting(COLUMNS, ROWS, 40 + 22 + 10 + 2 * 2) == [0, 1, 3]
    assert fitting(COLUMNS, ROWS, 40 + 22 + 10 + 2 * 2 - 1) is None


@pytest.mark.parametrize("width", [76], indirect=True)
def test_what_is_left_out_is_named(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    show_table(COLUMNS, ROWS)
    said = " ".join(line.rstrip() for line in _lines(capsys)[3:])
    assert said == "left out, as 76 columns have no room: clock, loss, why, last line; --json has them"


@pytest.mark.parametrize("width", [60], indirect=True)
def test_where_not_even_the_ids_fit_a_row_is_a_block_of_all_its_cells(
    width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    show_table(COLUMNS, ROWS)
    lines = _lines(capsys)
    assert lines[:7] == [
        "job        short",
        "market     c4.large/a",
        "clock      12",
        "spent      $0.1050",
        "loss       0.5123",
        "last line  joined",
        "",
    ]
    assert lines[7] == f"job        {ID}"
    assert "".join(lines).count("x") >= 500


@pytest.mark.parametrize("width", [None], indirect=True)
def test_piped_there_is_no_limit(width: None, capsys: pytest.CaptureFixture[str]) -> None:
    show_table(COLUMNS, [*ROWS, (), ROWS[0]], title="t" * 300)
    lines = _lines(capsys)
    assert lines[0] == "t" * 300
    assert lines[1].split() == ["job", "market", "clock", "spent", "loss", "why", "last", "line"]
    assert lines[3].endswith("x" * 500)
    assert lines[4].strip() == ""
    assert len(lines) == 6


@pytest.mark.parametrize("width", [30], indirect=True)
def test_lines_of_text_are_left_to_the_terminal(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    show_lines(f"a long line about {ID} [and] {MARKET}", "second")
    assert _lines(capsys) == [f"a long line about {ID} [and] {MARKET}", "second"]


@pytest.mark.parametrize("columns", [pytest.param(60, marks=pytest.mark.storm), 80])
def test_a_real_terminal(tmp_path: Path, columns: int) -> None:
    """`proteus jobs` on a terminal of its own, and piped."""
    url = f"sqlite:///{tmp_path}/state.db"
    with Store.open(url) as store:
        store.jobs.create_job(ID, {}, 1_780_000_000.0)
    variables = environment(tmp_path / "home") | {
        "PROTEUS_DATABASE_URL": url,
        "COLUMNS": str(columns),
        "TERM": "xterm",
        "NO_COLOR": "1",
        "DO_NOT_TRACK": "1",
    }
    ours, its = pty.openpty()
    process = subprocess.Popen([PROTEUS, "jobs"], cwd=tmp_path, env=variables, stdin=its, stdout=its, stderr=its)
    os.close(its)
    said = b""
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:  # the other end is closed
        assert process.wait(60) == 0, said
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).replace("\r", "")
    assert max(map(len, text.splitlines())) <= columns
    assert ID in text.split()
    assert (f"left out, as {columns} columns have no room" in text) or text.startswith("job        ")
    done = subprocess.run([PROTEUS, "jobs"], cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    headings = "job kind state began ended took clock loss machines evictions spent why directory page"
    assert done.stdout.splitlines()[0].split() == headings.split()
    assert "2026-05-28 20:26" in done.stdout
