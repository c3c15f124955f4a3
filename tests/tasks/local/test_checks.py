"""What a run finds of its job in the database, before anything is started."""

from pathlib import Path

import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.local.checks import JobStatus, begun_before
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
        store.create_job("job", job, 1.0)
        store.move_job("job", state, 2.0)
    assert begun_before(url, "job", job) is status
    assert begun_before(url, "other", job) is JobStatus.NEW
    other = spec(max_vcpus=8).model_dump(mode="json")
    with pytest.raises(InputError, match="was begun before with other options"):
        begun_before(url, "job", other)
