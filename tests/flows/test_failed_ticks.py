"""Ticks that fail are in the list of jobs, with their line, until one does not."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import proteus_spot.flows.allocation_tick as flow
from proteus_spot.infra.errors import TickStopped
from proteus_spot.infra.local_market.job_stores import JobStore
from proteus_spot.infra.state.records import ObservationKind
from proteus_spot.tasks.market.purchases.sending import PurchaseBlocked
from proteus_spot.tasks.reports.job_list import job_lines
from tests.support.task_runtime import TaskRuntime, spec


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskRuntime]:
    made = TaskRuntime(tmp_path, monkeypatch)
    monkeypatch.setattr(flow, "get_run_logger", lambda: logging.getLogger("flows"))
    monkeypatch.setattr(flow, "show_job_now_and_then", lambda job_id: None)
    yield made
    made.close()


def why(here: TaskRuntime) -> str:
    (line,) = job_lines(JobStore(here.store, None), [])
    return line.why


def tick(monkeypatch: pytest.MonkeyPatch, outcome: str | Exception) -> None:
    """Tick the job with an outcome."""

    def ticked(*_: Any) -> str:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(flow, "_tick_claimed", ticked)
    if isinstance(outcome, Exception):
        with pytest.raises(type(outcome)):
            flow.tick_job("job")
    else:
        flow.tick_job("job")


def test_a_failed_tick_is_in_the_list_of_jobs_until_one_succeeds(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.begin(spec())
    tick(monkeypatch, "wait")
    assert why(here) == ""
    for _ in range(3):
        tick(monkeypatch, TickStopped("job job: the market lists\nnone"))
    assert why(here) == "its ticks fail: job job: the market lists none"
    tick(monkeypatch, flow._RUNNING)
    tick(monkeypatch, ValueError("s3://KEY:SECRET@bucket: no"))
    assert why(here).startswith("its ticks fail: ValueError: s3://")
    assert "SECRET" not in why(here)
    for _ in range(2):
        tick(monkeypatch, "wait")
    assert why(here) == ""
    assert len(here.store.jobs.observations("job", ObservationKind.TICK)) == 3, "only what differs is recorded"


def test_a_purchase_that_is_blocked_is_said_once(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    here.begin(spec())
    tick(monkeypatch, PurchaseBlocked("job job: the bucket fails"))
    assert why(here) == "its ticks fail: job job: the bucket fails"
    params = {"market": "c4.large/us-east-1a", "count": 1, "bid_micros": 1}
    here.store.purchases.plan("job-buy-0", "job", "acquire", "t", params, here.clock.at_s)
    answer = {"code": "UnauthorizedOperation", "message": "no", "failure": "auth", "at_s": here.clock.at_s}
    here.store.purchases.note_answer("job-buy-0", answer)
    assert why(here).startswith("c4.large/us-east-1a: UnauthorizedOperation: no")
    assert "its ticks fail" not in why(here)
