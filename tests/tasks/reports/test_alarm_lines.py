"""Alarms of machines where a user looks: `jobs`, `logs` and the report."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from proteus_spot.flows.cli.commands.inspection.logs import logs
from proteus_spot.infra.local_market.environment import clock_file
from proteus_spot.infra.local_market.job_stores import JobStore
from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.storage.alarms import Alarm, write_alarm
from proteus_spot.infra.storage.blobs import BlobError, Blobs
from proteus_spot.tasks.job_leases import extend_leases
from proteus_spot.tasks.reports.job_list import job_lines
from proteus_spot.tasks.reports.job_report import gather
from tests.support.task_runtime import BEGIN_S, TaskRuntime, plain, spec

SHOWN = "machine i-1 at 2016-06-03 00:10:00 UTC: no tick extends the lease"


@pytest.fixture
def alarmed(here: TaskRuntime) -> TaskRuntime:
    """A job whose machine has raised an alarm, and no tick has run since."""
    here.begin(spec())
    write_alarm(here.runtime.blobs, "job", Alarm("i-1", BEGIN_S + 600.0, "no tick extends the lease"))
    return here


def test_the_list_of_jobs_says_that_no_tick_runs_until_one_does(alarmed: TaskRuntime, tmp_path: Path) -> None:
    clock_file(tmp_path).touch()
    jobs = JobStore(alarmed.store, tmp_path)
    (line,) = job_lines(jobs, [])
    assert line.why == f"no tick runs: {SHOWN}"
    write_alarm(alarmed.runtime.blobs, "job", Alarm("i-2", BEGIN_S + 300.0, "no tick extends the lease"))
    assert job_lines(jobs, [])[0].why == f"no tick runs: {SHOWN} (and 1 more)"
    plain(extend_leases)("job")
    assert job_lines(jobs, [])[0].why == ""


def test_the_list_of_jobs_says_if_it_cannot_look(
    alarmed: TaskRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Blobs, prefix: str = "") -> list[str]:
        raise BlobError("out of order")

    monkeypatch.setattr(Blobs, "list", fail)
    notes: list[str] = []
    (line,) = job_lines(JobStore(alarmed.store, tmp_path), notes)
    assert (line.why, notes) == ("", ["alarms of job job: out of order"])
    alarmed.store.jobs.move_job("job", JobState.FINISHED, BEGIN_S + 700.0)
    job_lines(JobStore(alarmed.store, tmp_path), notes)  # of an ended job nobody asks
    assert len(notes) == 1


def test_the_report_holds_the_alarms_that_ticks_have_recorded(alarmed: TaskRuntime) -> None:
    assert not [note for note in gather(alarmed.store, "job").notes if "Alarm" in note]
    plain(extend_leases)("job")
    assert f"Alarm: {SHOWN}." in gather(alarmed.store, "job").notes


def test_the_logs_begin_with_the_alarms(alarmed: TaskRuntime, tmp_path: Path) -> None:
    for _ in range(2):
        done = CliRunner().invoke(logs, ["job", "--dir", str(tmp_path)])
        assert done.exception is None, done.output
        assert f"note: {SHOWN}" in done.output
        plain(extend_leases)("job")  # the second time it comes from the database
