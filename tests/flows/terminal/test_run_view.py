"""What a terminal shows: one line a moment without one, a screen on one, and a table of figures at the end."""

import io

import pytest
from rich.console import Console

from proteus_spot.flows.terminal.run_view import PLAIN_EVERY_S, RunProgress, panel, plain_line, result_table
from proteus_spot.tasks.reports.job_snapshot import Holding, Snapshot

SHOT = Snapshot(
    job_id="job",
    state="running",
    market_s=3725.9,
    clock=42,
    loss=0.51234,
    nodes_ready=3,
    stage=1,
    holdings=(
        Holding("c4.large/us-east-1a", 1, "reliable", "on demand", "held"),
        Holding("c4.large/us-east-1b", 2, "transient", "$0.0300", "taken"),
    ),
    spent_micros=145_000,
    refunded_micros=40_000,
    acquisitions=2,
    hour_end_decisions=1,
    evictions=1,
    last_decision="Wait: all of 8 spot vCPUs are held [4 of 8]",
)
RESULT = {
    "job": "job",
    "state": "finished",
    "ledger_usd": 0.145,
    "on_demand_usd": 0.5,
    "cost_vs_on_demand": 0.29,
    "market_seconds": 7200.0,
    "real_seconds": 61.2,
    "machine_hours": {"on_demand": 2.0, "paid": 3.0, "free": 0.5},
    "acquisitions": 2,
    "hour_end_decisions": 1,
    "evictions": 1,
    "clocks": 42,
    "repeated_micro_tasks": 1,
    "lost_micro_tasks": 0,
    "accuracy": 0.9722,
}


def _shown(item: object) -> str:
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(item)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_moment_fits_one_line() -> None:
    line = plain_line(SHOT)
    assert "\n" not in line
    for part in ("1:02:05", "running", "clock    42", "loss 0.5123", "$0.1450", "$0.0400", "1xc4.large/us-east-1a"):
        assert part in line
    assert "us-east-1b" not in line, "what was taken is not held"


def test_the_screen_tells_all_allocations_and_the_last_reason() -> None:
    text = _shown(panel(SHOT))
    for part in (
        "job",
        "1:02:05",
        "0.5123",
        "us-east-1a",
        "us-east-1b",
        "taken",
        "all of 8 spot vCPUs are held [4 of 8]",
    ):
        assert part in text


def test_the_table_has_every_figure() -> None:
    text = _shown(result_table(RESULT))
    for part in ("$0.1450", "$0.5000", "29.0%", "2:00:00", "61 s", "2.00 / 3.00 / 0.50", "0.9722", "1 / 0", "42"):
        assert part in text


def test_figures_that_a_job_lacks_are_dashes() -> None:
    text = _shown(result_table(RESULT | {"accuracy": None, "cost_vs_on_demand": None, "clocks": None}))
    assert "None" not in text
    assert text.count(" - ") == 3


def test_the_figures_of_an_application_are_told_by_name() -> None:
    text = _shown(result_table(RESULT | {"accuracy": None, "metrics": {"inertia": 0.00123456, "purity": None}}))
    assert "held-out inertia" in text
    assert "0.001235" in text
    assert "held-out purity" in text
    assert "accuracy" not in text
    text = _shown(result_table(RESULT | {"metrics": {"accuracy": 0.9722}}))
    assert text.count("held-out") == 1


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_progress_keeps_off_standard_output(quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    progress = RunProgress(quiet)
    progress.say("state in /somewhere/[odd]/place")
    progress.show(SHOT, 100.0)
    progress.close()
    told = capsys.readouterr()
    silent, spoken = (told.out, told.err) if quiet else (told.err, told.out)
    assert silent == ""
    assert "/somewhere/[odd]/place" in spoken
    assert "clock    42" in spoken


def test_without_a_terminal_a_line_comes_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    progress = RunProgress(quiet=False)
    for now_s in (0.0, 1.0, PLAIN_EVERY_S - 0.1, PLAIN_EVERY_S, PLAIN_EVERY_S + 1):
        progress.show(SHOT, now_s)
    assert capsys.readouterr().out.count("running") == 2


def test_on_a_terminal_the_screen_is_given_back() -> None:
    progress = RunProgress(quiet=False)
    progress.console = Console(file=io.StringIO(), force_terminal=True, width=100)
    progress._live = type(progress._live)(console=progress.console, transient=True)
    progress.show(SHOT, 0.0)
    assert progress._live.is_started
    progress.close()
    assert not progress._live.is_started
    progress.close()


def test_a_terminal_without_a_cursor_gets_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    progress = RunProgress(quiet=False)
    out = io.StringIO()
    progress.console = Console(file=out, force_terminal=True, width=200)
    progress.show(SHOT, 0.0)
    progress.close()
    assert out.getvalue().count("running") == 1
