"""Events of jobs: what is emitted, and that a fact has one id however often it is reported."""

from collections.abc import Iterator
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from proteus_spot.infra.state.records import Job, JobState
from proteus_spot.tasks.event_feed import (
    JobEvent,
    emit_budget,
    emit_deadline,
    emit_end,
    emit_failed_launch,
    emit_orphans,
    emit_tick,
)

JOB = Job("job", {}, JobState.FINISHED, created_at_s=1.0, ended_at_s=2.0)


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr("prefect.events.emit_event", lambda event, **rest: found.append({"event": event, **rest}))
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        yield found


def test_without_a_server_nothing_is_emitted_for_prefect_would_start_one(emitted: list[dict[str, Any]]) -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        emit_end(JOB)
    assert emitted == []


def test_an_end_is_one_event_however_often_it_is_reported(emitted: list[dict[str, Any]]) -> None:
    for _ in range(2):
        emit_end(JOB)
    assert [one["event"] for one in emitted] == [JobEvent.FINISHED] * 2
    assert emitted[0]["id"] == emitted[1]["id"]
    assert emitted[0]["resource"] == {"prefect.resource.id": "proteus.job.job", "prefect.resource.name": "job"}


def test_another_end_of_a_job_that_went_on_is_another_event(emitted: list[dict[str, Any]]) -> None:
    failed = Job("job", {}, JobState.FAILED, created_at_s=1.0, ended_at_s=2.0, failure="no machine")
    emit_end(failed)
    emit_end(Job("job", {}, JobState.FAILED, created_at_s=1.0, ended_at_s=9.0, failure="no machine"))
    assert len({one["id"] for one in emitted}) == 2
    assert emitted[0]["payload"] == {"job_id": "job", "state": "failed", "why": "no machine"}
    emit_end(Job("job", {}, JobState.RUNNING, created_at_s=1.0))
    assert len(emitted) == 2, "an open job has no end"


def test_a_budget_is_reported_at_its_share_and_not_before(emitted: list[dict[str, Any]]) -> None:
    emit_budget(JOB, 7_999_999, 10_000_000)
    assert emitted == []
    emit_budget(JOB, 8_000_000, 10_000_000)
    assert [one["event"] for one in emitted] == [JobEvent.BUDGET]
    assert emitted[0]["payload"] == {"job_id": "job", "spent_usd": 8.0, "budget_usd": 10.0}


def test_orphans_and_ticks(emitted: list[dict[str, Any]]) -> None:
    emit_orphans("job", ["i-2", "i-1"])
    emit_orphans("job", ["i-1", "i-2"])
    emit_tick(["job"])
    assert emitted[0]["id"] == emitted[1]["id"]
    assert emitted[0]["payload"] == {"instances": ["i-1", "i-2"]}
    assert (emitted[2]["event"], emitted[2]["payload"]) == (JobEvent.TICKED, {"jobs": ["job"]})


def test_a_deadline_at_risk_and_a_failed_launch_are_events_that_are_not_repeated(emitted: list[dict[str, Any]]) -> None:
    for _ in range(2):
        emit_deadline(JOB, 100, 7)
    for now_s in (0.0, 3599.0, 3600.0):
        emit_failed_launch(JOB, "c4.large/us-east-1a", "VcpuLimitExceeded", now_s)
    assert [one["event"] for one in emitted] == [JobEvent.DEADLINE] * 2 + [JobEvent.LAUNCH] * 3
    assert len({one["id"] for one in emitted}) == 3, "one deadline, and a launch once an hour"
    assert emitted[0]["payload"] == {"job_id": "job", "deadline_s": 100, "clocks_left": 7}
