"""When a supervisor uploads, when a process hangs, and what is reported."""

from dataclasses import replace

from proteus_spot.infra.trials.deployment_state import DeploymentProgress, SavedState, ended_report
from proteus_spot.infra.trials.messages import Message, StepDurations
from proteus_spot.infra.trials.trial_documents import TrialReport


def progress(scale: float = 1.0) -> DeploymentProgress:
    return DeploymentProgress(scale, checkpoint_s=300.0, patience_s=60.0, notice_s=120.0, began_s=1000.0)


def saved(step: int, size: int = 100) -> Message:
    return Message("saved", step, folder=f"{step:09d}-000000", size=size, seconds=0.5)


def test_a_state_is_uploaded_every_checkpoint_minutes_of_the_market() -> None:
    made = progress()
    assert made.upload_due_s() is None
    made.take(saved(1), 1001.0)
    assert made.upload_due_s() == 1300.0
    made.uploaded(SavedState(1, "000000001-000000", 100), 2.0, 1302.0)
    assert made.upload_due_s() is None
    made.take(saved(2), 1303.0)
    assert made.upload_due_s() == 1602.0
    fast = progress(scale=60.0)
    fast.take(saved(1), 1001.0)
    assert fast.upload_due_s() == 1005.0


def test_uploads_take_at_most_a_tenth_of_the_time() -> None:
    made = progress()
    made.uploaded(SavedState(1, "000000001-000000", 100), 45.0, 1300.0)
    made.take(saved(2), 1301.0)
    assert made.upload_due_s() == 1300.0 + 450.0


def test_a_newer_state_replaces_the_one_on_the_machine() -> None:
    made = progress()
    assert made.take(saved(1), 1001.0) is None
    assert made.take(saved(2), 1002.0) == SavedState(1, "000000001-000000", 100)
    assert made.saved == SavedState(2, "000000002-000000", 100)


def test_a_process_hangs_after_its_patience_or_ten_of_its_longest_steps() -> None:
    made = progress()
    assert made.hangs_at_s == 1060.0
    assert "the function has not ended or reported for 1 minutes (none was completed)" in made.hang_reason()
    made.take(Message("step", 2, times=StepDurations().add(30.0)), 1030.0)
    assert made.hangs_at_s == 1330.0
    assert "step 2 has not ended or reported for 5 minutes (the longest took 30 s)" in made.hang_reason()
    made.take(Message("step", 3, times=StepDurations().add(1.0)), 1031.0)
    assert made.hangs_at_s == 1091.0, "a short step needs no more than the patience"


def test_a_state_that_does_not_fit_the_notice_is_said_with_the_largest_that_does() -> None:
    made = progress(scale=2.0)
    made.uploaded(SavedState(1, "000000001-000000", 10**9), 60.0, 1300.0)
    assert made.note() == ""
    made.uploaded(SavedState(2, "000000002-000000", 10**9), 120.0, 1300.0)
    assert "1e+03 MB takes 240 s to upload, longer than the notice of an eviction (120 s)" in made.note()
    assert "uploaded every 40 minutes" in made.note()
    assert "500 MB fit" in made.note()
    assert made.report(5.0).note == made.note()


def test_the_report_has_market_seconds_and_counts_repeated_steps() -> None:
    made = progress(scale=60.0)
    for step, value in ((1, 0.5), (2, None), (2, 0.25)):
        made.take(Message("report", step, value, times=StepDurations().add(9.0).add(2.0)), 1001.0)
    made.uploaded(SavedState(2, "000000002-000000", 7), 0.5, 1002.0)
    report = made.report(77.0)
    assert (report.values, report.repeated_steps, report.saved_step) == (((1, 0.5), (2, 0.25)), 1, 2)
    assert (report.step_s, report.upload_s, report.state_bytes, report.at_s) == (120.0, 30.0, 7, 77.0)
    assert TrialReport.from_json(report.to_json()) == report
    last = ended_report(report, "failed", "no luck")
    assert last == replace(report, ended="failed", why="no luck")
    again = progress()
    again.adopt(report)
    again.take(Message("report", 2, 0.25), 1001.0)
    assert again.report(78.0).repeated_steps == 2


def test_the_first_end_counts() -> None:
    made = progress()
    made.take(Message("failed", why="no luck"), 1001.0)
    made.take(Message("ended", 10), 1002.0)
    assert made.last is not None
    assert made.last.kind == "failed"
