"""`proteus sweep show` and `report`, as typed, on a sweep of a state database."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import proteus_spot.flows.terminal.tables
from proteus_spot.flows.cli.commands.inspection.cost import cost
from proteus_spot.flows.cli.commands.jobs.jobs import jobs
from proteus_spot.flows.cli.commands.sweeps.sweep import sweep
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.runtime import forget_runtime
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.sweeps.sweep_page import find_sweep, follow_views
from proteus_spot.tasks.sweeps.sweep_state import sweep_figures
from tests.support.sweep_states import SWEEP, RecordedSweep, finish_sweep, record_sweep


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedSweep]:
    """A sweep in the database of the settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROTEUS_DATABASE_URL", f"sqlite:///{tmp_path}/state.db")
    forget_runtime()
    with Store.open(f"sqlite:///{tmp_path}/state.db") as store:
        yield record_sweep(store)
    forget_runtime()


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(sweep, [str(argument) for argument in arguments])


def test_show_prints_a_head_and_the_trials_with_the_best_first(recorded: RecordedSweep) -> None:
    lines = run("show", SWEEP).output.splitlines()
    assert lines[0] == f"{SWEEP}: running, 32% done, market time 0:10:00"
    assert lines[1] == "spent $0.1200 of $5.00, refunded $0.0300, 1 evictions; 4 of 4 trials: 4 running"
    assert lines[2] == "best loss 1 at step 1 by trial-00: gamma=0, step=0.001"
    assert lines[3].split()[:3] == ["trial", "state", "setting"]
    assert [line.split()[0] for line in lines[4:8]] == ["trial-00", "trial-01", "trial-02", "trial-03"]


def test_show_writes_the_figures_as_json(recorded: RecordedSweep, tmp_path: Path) -> None:
    done = run("show", SWEEP, "--json", "-")
    figures = json.loads(done.stdout)
    assert (figures["state"], len(figures["trials"]), figures["best"]["steps"]) == ("running", 4, 1)
    assert run("show", SWEEP, "--json", tmp_path / "out.json").output.startswith(f"{SWEEP}: running")
    assert json.loads((tmp_path / "out.json").read_text()) == figures


def test_follow_ends_with_the_sweep(recorded: RecordedSweep) -> None:
    finish_sweep(recorded)
    lines = run("show", SWEEP, "--follow").output.splitlines()
    assert "finished  100%  4 finished  best 0.1 (trial-00)" in lines[0]
    assert lines[1].startswith(f"{SWEEP}: finished, 100% done")


def test_follow_shows_the_sweep_as_it_goes_on(recorded: RecordedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def wait(self: SystemClock, at_s: float) -> None:
        looks.append(at_s)
        recorded.tick() if len(looks) < 3 else finish_sweep(recorded)

    monkeypatch.setattr(SystemClock, "wait_until", wait)
    views = list(follow_views(SWEEP))
    assert [sum(trial.steps for trial in view.trials) for view in views] == [13, 17, 21, 40]
    assert [view.state for view in views] == ["running", "running", "running", "finished"]
    assert sweep_figures(views[-1]) == sweep_figures(find_sweep(SWEEP))


def test_the_table_fits_a_narrow_terminal(recorded: RecordedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proteus_spot.flows.terminal.tables, "terminal_width", lambda: 60)
    output = run("show", SWEEP).output
    assert "left out, as 60 columns have no room" in output
    assert max(len(line) for line in output.splitlines()[3:8]) <= 60


def test_report_writes_one_file(recorded: RecordedSweep, tmp_path: Path) -> None:
    done = run("report", SWEEP)
    assert done.output.strip() == f"{SWEEP}-report.html"
    html = (tmp_path / f"{SWEEP}-report.html").read_text()
    assert html.count("data:image/svg+xml;base64,") == 6, "four of the sweep, two of the study"
    assert run("report", SWEEP, "--out", tmp_path / "mine.html").output.strip() == str(tmp_path / "mine.html")
    assert (tmp_path / "mine.html").read_text() == html, "the same state gives the same file"


def test_a_sweep_that_is_not_there_is_refused_in_one_line(recorded: RecordedSweep, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    for verb in ("show", "report"):
        done = run(verb, "none")
        assert isinstance(done.exception, InputError)
        assert str(done.exception).startswith("job none: is in no state database here")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_jobs_and_cost_list_sweeps(recorded: RecordedSweep) -> None:
    (line,) = json.loads(CliRunner().invoke(jobs, ["--json", "-"]).stdout)["jobs"]
    assert (line["job_id"], line["kind"], line["state"], line["clock"], line["loss"]) == (
        SWEEP,
        "sweep",
        "starting",
        13,
        1,
    )
    assert (line["why"], line["evictions"], line["spent_micros"]) == ("best loss 1; trials: 4 running", 1, 120_000)
    table = CliRunner().invoke(jobs, []).output
    assert SWEEP in table
    assert "sweep" in table
    (row,) = json.loads(CliRunner().invoke(cost, [SWEEP, "--json", "-"]).stdout)["rows"]
    parts = sum(row[f"{use}_usd"] for use in ("useful", "idle", "hand_over", "lost"))
    assert parts == pytest.approx(row["spent_usd"])
    assert row["refunded_usd"] == 0.03
    assert row["useful_usd"] > row["lost_usd"] > 0
    assert row["idle_usd"] < row["useful_usd"], "a machine works from the first report of its trial"
