"""A sweep in the Prefect UI: what is published, when, and that nothing of it stops a sweep."""

import logging
from typing import Any
from uuid import uuid4

import pytest

import proteus_spot.tasks.sweeps.sweep_artifacts
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.tasks.sweeps.sweep_artifacts import PAGE_S, PROGRESS_S, SweepPages, publish_progress, publish_sweep
from tests.support.sweep_states import SWEEP, finish_sweep, record_sweep
from tests.support.task_runtime import TaskRuntime, plain


class Published:
    """What was to be shown in the UI."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.pages: list[str] = []
        self.tables: list[list[dict[str, Any]]] = []
        self.progress: list[tuple[float, str]] = []
        module = proteus_spot.tasks.sweeps.sweep_artifacts
        patch.setattr(module, "publish_sweep", plain(publish_sweep))
        patch.setattr(module, "publish_progress", plain(publish_progress))
        patch.setattr(module, "write_page", lambda job_id, markdown, description, run_id: self.pages.append(markdown))
        patch.setattr(module, "create_table_artifact", lambda rows, **named: self.tables.append(rows))
        patch.setattr(module, "create_progress_artifact", self._create)
        patch.setattr(module, "update_progress_artifact", self._update)

    def _create(self, percent: float, key: str, description: str) -> object:
        self.progress.append((percent, description))
        return uuid4()

    def _update(self, artifact_id: object, percent: float, description: str) -> None:
        self.progress.append((percent, description))


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Published:
    return Published(monkeypatch)


def test_page_table_progress_and_report(here: TaskRuntime, published: Published) -> None:
    world = record_sweep(here.store)
    SweepPages(SWEEP).show(world.engine, at_once=True)
    (markdown,) = published.pages
    assert markdown.startswith(f"# {SWEEP}: running\n")
    assert f"proteus sweep stop {SWEEP}\n" in markdown
    assert f"Report: `{here.runtime.blobs.url_of(JobPaths(SWEEP).report)}`" in markdown
    assert "](data:image/png;base64,iVBOR" in markdown
    assert [row["trial"] for row in published.tables[0]] == ["trial-00", "trial-01", "trial-02", "trial-03"]
    assert published.progress == [(pytest.approx(32.5), "4 running")]
    html = here.runtime.blobs.read_bytes(JobPaths(SWEEP).report).decode()
    assert html.count("data:image/svg+xml;base64,") == 4
    finish_sweep(world)
    SweepPages(SWEEP).show(at_once=True)
    assert "sweep stop" not in published.pages[1], "it has ended"
    assert published.progress[1] == (100, "4 finished")


def test_pages_are_made_now_and_then(here: TaskRuntime, published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(SystemClock, "now_s", lambda self: now[0])
    monkeypatch.setattr(
        proteus_spot.tasks.sweeps.sweep_artifacts, "publish_sweep", lambda view: published.pages.append(view.state)
    )
    world = record_sweep(here.store)
    pages = SweepPages(SWEEP)
    for after_s, made, progress in ((0, 1, 1), (PROGRESS_S / 2, 1, 1), (PROGRESS_S, 1, 2), (PAGE_S, 2, 3)):
        now[0] = 1000.0 + after_s
        pages.show(world.engine)
        assert (len(published.pages), len(published.progress)) == (made, progress)


def test_what_fails_is_logged_and_stops_nothing(
    here: TaskRuntime, published: Published, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(proteus_spot.tasks.sweeps.sweep_artifacts, "publish_sweep", fail)
    world = record_sweep(here.store)
    SweepPages(SWEEP).show(world.engine, at_once=True)
    assert "no room" in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
