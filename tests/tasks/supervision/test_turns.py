"""A job waits for those of its queue that were submitted before, also where its own run begins first."""

from collections.abc import Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prefect.client.schemas.objects import FlowRun

from proteus_spot.infra.state.records import JobState
from proteus_spot.tasks.job_queues import jobs_before
from proteus_spot.tasks.job_records import record_job
from proteus_spot.tasks.supervision import turns
from proteus_spot.tasks.supervision.turns import await_turn, record_submission
from tests.support.task_runtime import TaskRuntime, plain, spec

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def run(job_id: str, queue: str | None, minutes: int) -> FlowRun:
    parameters = {"spec": {"job_id": job_id, "queue": queue}}
    due = NOON + timedelta(minutes=minutes)
    return FlowRun(id=uuid4(), flow_id=uuid4(), parameters=parameters, expected_start_time=due)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> list[FlowRun]:
    """The runs of `train` that are under way, and none of which the state database need know."""
    runs: list[FlowRun] = []

    class Client:
        def read_flow_runs(self, flow_filter: Any, flow_run_filter: Any) -> Sequence[FlowRun]:
            before = flow_run_filter.expected_start_time.before_
            return [one for one in runs if one.expected_start_time is not None and one.expected_start_time < before]

    @contextmanager
    def get_client(**_: Any) -> Any:
        if not runs:
            raise httpx.ConnectError("nobody there")
        yield Client()

    monkeypatch.setattr(turns, "get_client", get_client)
    return runs


def begin(here: TaskRuntime, job_id: str, minutes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run that was submitted so many minutes after noon wait for its turn."""
    monkeypatch.setattr(turns, "_submitted", lambda: NOON + timedelta(minutes=minutes))
    plain(record_job)(spec(job_id).model_copy(update={"queue": "nightly"}))
    record_submission(job_id)
    plain(await_turn)(job_id)


def test_a_job_that_was_submitted_before_goes_first_though_its_run_begins_later(
    here: TaskRuntime, server: list[FlowRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    server += [run("late", "nightly", 1), run("early", "nightly", 0), run("other", "hourly", -1), run("free", None, -1)]
    looks: list[float] = []

    def wait_until(at_s: float, _wake: object = None) -> bool:
        looks.append(at_s)
        here.clock.at_s = at_s
        if len(looks) == 1:
            begin(here, "early", 0, monkeypatch)  # it does not wait
            assert len(looks) == 1
        else:
            here.store.jobs.move_job("early", JobState.FAILED, at_s, failure="it raised")
        return False

    monkeypatch.setattr(here.clock, "wait_until", wait_until)
    begin(here, "late", 1, monkeypatch)
    assert len(looks) == 2, "for the run to begin, then for the job to end"
    assert here.store.jobs.job("late").created_at_s < here.store.jobs.job("early").created_at_s


def test_a_server_that_does_not_answer_holds_no_job_up(
    here: TaskRuntime, server: list[FlowRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(here, "job", 0, monkeypatch)
    assert jobs_before(here.store, here.store.jobs.job("job")) == []


def test_a_run_of_a_dead_worker_is_waited_for_half_of_the_minutes_of_a_start(
    here: TaskRuntime, server: list[FlowRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.append(run("dead", "nightly", 0))
    begun_s = here.clock.at_s

    def wait_until(at_s: float, _wake: object = None) -> bool:
        assert at_s <= begun_s + 460, "it waits for ever"
        here.clock.at_s = at_s
        return False

    monkeypatch.setattr(here.clock, "wait_until", wait_until)
    begin(here, "late", 1, monkeypatch)
    assert here.clock.at_s >= begun_s + 450


def test_the_place_of_a_job_is_that_of_its_submission_before_its_run_waits(
    here: TaskRuntime, server: list[FlowRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    for minutes, job_id in ((1, "late"), (0, "early")):
        monkeypatch.setattr(turns, "_submitted", lambda at=NOON + timedelta(minutes=minutes): at)
        plain(record_job)(spec(job_id).model_copy(update={"queue": "nightly"}))
        record_submission(job_id)
        record_submission(job_id)
        here.clock.at_s += 1
    assert [job.job_id for job in jobs_before(here.store, here.store.jobs.job("late"))] == ["early"]
