"""A job at one look: what is written and published, when, and that nothing of it stops a job."""

import logging
from typing import Any

import pytest

import proteus_spot.tasks.reports.publish
from proteus_spot.infra.state.records import JobState, ObservationKind
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.tasks.reports.publish import EVERY_S, publish_page, save_report, show_job, show_job_now_and_then
from tests.support.html_tables import PageTables
from tests.support.job_states import JOB, record_job
from tests.support.task_runtime import TaskRuntime, plain


class Published:
    """What was to be shown in the UI."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.all: list[dict[str, Any]] = []
        patch.setattr(proteus_spot.tasks.reports.publish, "write_page", self.take)
        patch.setattr(proteus_spot.tasks.reports.publish, "save_report", plain(save_report))
        patch.setattr(proteus_spot.tasks.reports.publish, "publish_page", plain(publish_page))

    def take(self, job_id: str, markdown: str, description: str, run_id: object) -> None:
        self.all.append({"markdown": markdown, "job": job_id, "description": description})


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Published:
    return Published(monkeypatch)


@pytest.fixture
def job(here: TaskRuntime) -> TaskRuntime:
    record_job(here.store)
    return here


def test_report_and_page(job: TaskRuntime, published: Published) -> None:
    show_job(JOB)
    page = job.runtime.blobs.read_bytes(JobPaths(JOB).report).decode()
    assert PageTables(page).data["job"] == JOB
    (made,) = published.all
    assert (made["job"], made["description"]) == (JOB, "job-1: finished")
    markdown = made["markdown"]
    assert markdown.startswith("# job-1: finished\n")
    assert "| Cost | $0.3950 |" in markdown
    assert f"Report: `{job.runtime.blobs.url_of(JobPaths(JOB).report)}`" in markdown
    assert "](data:image/png;base64,iVBOR" in markdown
    assert "proteus cost job-1\n" in markdown
    assert "proteus stop" not in markdown, "it has ended"
    assert len(markdown) < 200_000


@pytest.mark.parametrize("broken", ["save_report", "publish_page"])
@pytest.mark.parametrize("show", [show_job, show_job_now_and_then])
def test_what_fails_is_logged_and_stops_nothing(
    job: TaskRuntime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str, show: Any
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no room")

    Published(monkeypatch)
    monkeypatch.setattr(proteus_spot.tasks.reports.publish, broken, fail)
    assert job.store.purchases.allocations(JOB, alive=True) == []  # the job is over, so a tick shows it too
    show(JOB)
    assert "no room" in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_a_database_that_is_away_stops_no_tick(
    here: TaskRuntime, published: Published, caplog: pytest.LogCaptureFixture
) -> None:
    show_job_now_and_then("unknown")
    assert "could not check whether its page is due" in caplog.text
    assert published.all == []


def test_ticks_show_a_job_every_few_minutes_and_at_its_very_end(
    here: TaskRuntime, published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proteus_spot.tasks.reports.publish, "job_png", lambda chart: b"")
    now = [1000.0]

    class Clock:
        def now_s(self) -> float:
            return now[0]

    monkeypatch.setattr(proteus_spot.tasks.reports.publish, "SystemClock", Clock)
    here.store.jobs.create_job("job", {}, here.clock.now_s())
    shown = []
    for later_s in (0.0, 1.0, EVERY_S - 2.0, 2.0, 1.0, EVERY_S):
        now[0] += later_s
        show_job_now_and_then("job")
        shown.append(len(published.all))
    assert shown == [0, 0, 0, 1, 1, 2]
    here.store.jobs.move_job("job", JobState.FINISHED, here.clock.now_s())
    show_job_now_and_then("job")
    assert len(published.all) == 3


def test_the_world_is_not_touched_more_than_needed(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick does nothing between two pictures."""
    monkeypatch.setattr(proteus_spot.tasks.reports.publish, "show_job", lambda job_id: pytest.fail("was shown"))
    here.store.jobs.create_job("job", {}, here.clock.now_s())
    for _ in range(3):
        show_job_now_and_then("job")
    assert len(here.store.jobs.observations("job", ObservationKind.PICTURE)) == 1
