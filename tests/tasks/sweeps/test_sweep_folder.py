"""The folder of a sweep on this machine alone: what it shows, and what is said of a damaged journal."""

import json
from pathlib import Path

import pytest

from proteus_spot.bidding.engine.events import AllocationGone, AllocationGranted
from proteus_spot.bidding.market.model import Allocation, EndCause
from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.sweep_events import SweepTick, TrialReported, TrialsProposed
from proteus_spot.bidding.tuning.sweep_journal import to_record
from proteus_spot.infra.errors import InputError
from proteus_spot.tasks.sweeps.sweep_folder import keep_description, local_view, read_journal
from proteus_spot.tasks.sweeps.sweep_page import find_sweep, follow_views, write_sweep_report
from proteus_spot.tasks.sweeps.sweep_spec import parse_sweep
from proteus_spot.tasks.sweeps.sweep_state import sweep_figures
from tests.support.markets import LARGE, START_S
from tests.support.sweeps import OFFERS, opened_sweep, plan_of, settings_of

SPEC = {
    "trial": "mine:train",
    "code": "mine.py",
    "space": {"alpha": {"choice": [1.0, 0.1]}},
    "metric": {"name": "loss"},
    "max_trial_steps": 2,
}


def ended_sweep(directory: Path) -> list[str]:
    """Write the folder of a sweep of two trials that has ended; return the lines of its journal."""
    plan = plan_of(trials=2, parallel=2, max_trial_steps=2)
    orders = ["digits-t0-0", "digits-t1-0"]
    grants = [AllocationGranted(START_S + 1, o, Allocation(o, LARGE, 1, START_S + 1, bid_micros=1)) for o in orders]
    reports = [
        TrialReported(START_S + 9, trial, o, ((1, 1.0), (2, None if trial else 0.5)), 2, 1.0, "finished")
        for trial, o in enumerate(orders)
    ]
    gone = [AllocationGone(START_S + 10, o, EndCause.USER) for o in orders]
    tick = SweepTick(START_S + 1, OFFERS)
    last = SweepTick(START_S + 11, OFFERS)
    events = [opened_sweep(plan, sweep_id="digits"), TrialsProposed(START_S, settings_of(2)), tick]
    lines = [json.dumps(to_record(event)) for event in [*events, *grants, *reports, *gone, last]]
    directory.mkdir(parents=True)
    (directory / "journal.jsonl").write_text("\n".join(lines) + "\n")
    keep_description(directory, parse_sweep(SPEC, name="digits"))
    return lines


def test_a_sweep_of_this_machine_is_shown_followed_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "digits"
    ended_sweep(folder)
    view = find_sweep("digits")
    assert (view.state, view.sweep_id, view.best_number, view.metric) == ("finished", "digits", 0, "loss")
    assert view.ended_s is not None
    assert [machine.market for machine in view.machines] == [str(LARGE)] * 2
    assert sweep_figures(find_sweep("digits", directory=folder)) == sweep_figures(local_view(folder))
    assert [each.state for each in follow_views("digits")] == ["finished"]
    figures = sweep_figures(view, curves=True)
    assert [trial["curve"] for trial in figures["trials"]] == [[[1, 1.0], [2, 0.5]], [[1, 1.0], [2, None]]]
    assert "curve" not in sweep_figures(view)["trials"][0]
    report = write_sweep_report("digits")
    assert report == Path("runs/digits/report.html")
    assert b"trial-01" in report.read_bytes()


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (1, "{}"),
        (1, ""),
        (2, "[1, 2]"),
        (3, 'X"kind": "SweepTick"}'),
        (3, "\x00\x00\x00"),
        (4, '{"schema": 1, "kind": "Deploy"}'),
        (4, '{"schema": 9, "kind": "SweepClosed", "at_s": 1}'),
        (5, '{"schema": 1, "kind": "TrialReported", "at_s": 1, "trial": 7, "deployment": "x"}'),
        (6, '{"schema": 1, "kind": "TrialReported", "at_s": 1, "trial": 0, "deployment": "digits-t0-0", "values": 3}'),
    ],
)
def test_a_damaged_line_is_named_and_nothing_is_changed(tmp_path: Path, number: int, line: str) -> None:
    folder = tmp_path / "digits"
    lines = ended_sweep(folder)
    lines[number - 1] = line
    damaged = "\n".join(lines) + "\n"
    (folder / "journal.jsonl").write_text(damaged)
    with pytest.raises(InputError, match=rf"journal\.jsonl: line {number} is damaged; remove .*digits to begin again"):
        read_journal(folder, SweepEngine(), is_ours=True)
    assert (folder / "journal.jsonl").read_text() == damaged


def test_a_look_does_not_touch_the_line_that_another_process_is_writing(tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    lines = ended_sweep(folder)
    with (folder / "journal.jsonl").open("a") as journal:
        journal.write('{"cut sho')
    assert local_view(folder).state == "finished"
    assert (folder / "journal.jsonl").read_text().endswith("cut sho")
    read_journal(folder, SweepEngine(), is_ours=True)
    assert (folder / "journal.jsonl").read_text() == "\n".join(lines) + "\n"


def test_a_damaged_description_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    ended_sweep(folder)
    (folder / "sweep.json").write_text("{")
    with pytest.raises(InputError, match=r"sweep\.json: is not readable"):
        local_view(folder)
