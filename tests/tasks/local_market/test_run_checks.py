"""What a run finds of its job in the database, before anything is started."""

from pathlib import Path
from typing import Any

import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.local_market.run_checks import JobStatus, begun_before
from tests.support.task_runtime import spec


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (JobState.RUNNING, JobStatus.PAUSED),
        (JobState.FAILED, JobStatus.PAUSED),  # it goes on from its last checkpoint
        (JobState.FINISHED, JobStatus.ENDED),
        (JobState.STOPPED, JobStatus.ENDED),
    ],
)
def test_a_job_that_did_not_come_to_its_end_goes_on_also_after_a_failure(
    tmp_path: Path, state: JobState, status: JobStatus
) -> None:
    url, job = f"sqlite:///{tmp_path}/state.db", spec().model_dump(mode="json")
    with Store.open(url) as store:
        store.jobs.create_job("job", job, 1.0)
        store.jobs.move_job("job", state, 2.0)
    assert begun_before(url, "job", job) is status
    assert begun_before(url, "other", job) is JobStatus.NEW
    other = spec(max_vcpus=8).model_dump(mode="json")
    with pytest.raises(InputError, match="was begun before with other options"):
        begun_before(url, "job", other)


@pytest.mark.parametrize(
    ("why", "before", "now", "status"),
    [
        ("budget", {"budget_usd": 2}, {"budget_usd": 3}, JobStatus.PAUSED),
        ("budget", {"budget_usd": 2, "deadline": "2h"}, {"budget_usd": 3, "deadline": "4h"}, JobStatus.PAUSED),
        ("budget", {"budget_usd": 2}, {"budget_usd": None}, JobStatus.PAUSED),
        ("budget", {"budget_usd": 2}, {"budget_usd": 2}, JobStatus.ENDED),
        ("asked", {"budget_usd": 2}, {"budget_usd": 2}, JobStatus.ENDED),
        ("no progress: clock 2 was the last for 5 minutes", {}, {}, JobStatus.PAUSED),
    ],
)
def test_a_job_that_a_limit_has_stopped_goes_on_with_a_larger_one(
    tmp_path: Path, why: str, before: dict[str, object], now: dict[str, object], status: JobStatus
) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    with Store.open(url) as store:
        store.jobs.create_job("job", spec().model_copy(update=before).model_dump(mode="json"), 1.0)
        store.jobs.request_stop("job", why, "a tick", 2.0)
        store.jobs.move_job("job", JobState.STOPPED, 3.0)
    assert begun_before(url, "job", spec().model_copy(update=now).model_dump(mode="json")) is status
    others: list[dict[str, Any]] = [{"budget_usd": 1}, {"budget_usd": 9, "reliable": {"count": 3}}]
    for other in others:
        record = spec().model_copy(update=now).model_dump(mode="json")
        record["reliable"] |= other.pop("reliable", {})
        with pytest.raises(InputError, match="was begun before with other options"):
            begun_before(url, "job", record | other)
