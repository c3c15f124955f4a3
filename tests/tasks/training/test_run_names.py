"""The name of a run of `train`: its job and the verdict, or why the run ended while the job goes on."""

from typing import Any
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Cancelling, Completed, Crashed, Failed, Running

import proteus_spot.tasks.training.run_names
from proteus_spot.flows.train import train
from proteus_spot.infra.state.records import JobState
from proteus_spot.tasks.training.run_names import name_ended, name_running
from tests.support.task_runtime import TaskRuntime, spec

CASES = (
    (JobState.FINISHED, Completed(), "job: finished"),
    (JobState.STOPPED, Completed(), "job: stopped"),
    (JobState.FAILED, Failed(), "job: failed"),
    (JobState.RUNNING, Failed(), "job: run failed"),
    (JobState.RUNNING, Crashed(), "job: run crashed"),
    (JobState.RUNNING, Cancelling(), "job: cancelled"),
    (None, Failed(), "job: refused"),
)


@pytest.fixture
def labels(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, set[str]]]:
    found: list[tuple[str, set[str]]] = []
    monkeypatch.setattr(
        proteus_spot.tasks.training.run_names, "label", lambda run_id, name, tags: found.append((name, tags))
    )
    return found


def run_of(job: Any) -> FlowRun:
    return FlowRun(flow_id=uuid4(), parameters={"spec": job}, tags=["mine"])


@pytest.mark.parametrize(("job_state", "state", "name"), CASES, ids=[name for _, _, name in CASES])
def test_a_run_that_ended_is_named_by_job_and_verdict(
    here: TaskRuntime, labels: list[tuple[str, set[str]]], job_state: JobState | None, state: State[Any], name: str
) -> None:
    if job_state is not None:
        here.store.jobs.create_job("job", spec().model_dump(mode="json"), here.clock.at_s)
        here.store.jobs.move_job("job", job_state, here.clock.at_s)
    name_ended(train, run_of({"job_id": "job"}), state)
    assert labels == [(name, {"mine", "job:job"})]


@pytest.mark.parametrize("job", [spec(), {"job_id": "job"}], ids=["called", "from a form"])
def test_a_run_that_begins_is_named_and_tagged_by_its_job(labels: list[tuple[str, set[str]]], job: Any) -> None:
    name_running(train, run_of(job), Running())
    assert labels == [("job", {"mine", "job:job"})]


def test_a_run_whose_parameters_name_no_job_keeps_its_name(labels: list[tuple[str, set[str]]]) -> None:
    name_running(train, run_of("no job"), Running())
    assert labels == []
