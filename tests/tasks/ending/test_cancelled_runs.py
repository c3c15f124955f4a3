"""Cancel in the Prefect UI is a request to stop; a run that crashed, or a server that is away, is none."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.settings import PREFECT_API_URL, temporary_settings

import tasks.ending.cancelled_runs
from infra.state.records import JobState, ObservationKind
from tasks.ending.cancelled_runs import record_follower, stop_cancelled_job, stop_if_cancelled
from tasks.market.engine_journal import JobEngine
from tasks.market.opening import close_job, reopen_job
from tests.support.prefect import prefect_api
from tests.support.task_runtime import TaskRuntime, plain, spec

pytestmark = [pytest.mark.slow]


@flow
def train() -> None:
    """Stands for the flow of the job."""


@pytest.fixture(scope="module", autouse=True)
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with prefect_api(tmp_path_factory.mktemp("api")):
        yield


def run_in(state: StateType) -> FlowRun:
    """Return a flow run that the server has in `state`."""
    with get_client(sync_client=True) as client:
        run = client.create_flow_run(train, state=State(type=StateType.RUNNING))
        client.set_flow_run_state(run.id, State(type=state), force=True)
        return client.read_flow_run(run.id)


def follow(here: TaskRuntime, run_id: UUID) -> None:
    here.store.observe("job", here.clock.at_s, ObservationKind.FOLLOWER, {"flow_run_id": str(run_id)})


@pytest.mark.parametrize("state", [StateType.CANCELLING, StateType.CANCELLED])
def test_a_cancelled_run_stops_the_job_it_follows(here: TaskRuntime, state: StateType) -> None:
    here.begin(spec())
    follow(here, run_in(StateType.RUNNING).id)
    stop_if_cancelled("job")
    assert here.store.job("job").state is JobState.STARTING
    run = run_in(state)
    follow(here, run.id)
    stop_if_cancelled("job")
    job = here.store.job("job")
    assert (job.state, job.stop_why) == (JobState.STOPPING, "cancelled in the Prefect UI")
    assert job.stop_by == f"flow run {run.name}"


@pytest.mark.parametrize("state", [StateType.CRASHED, StateType.FAILED, StateType.COMPLETED])
def test_a_run_that_ended_otherwise_is_no_request(here: TaskRuntime, state: StateType) -> None:
    here.begin(spec())
    follow(here, run_in(state).id)
    run_in(StateType.CANCELLED)  # of another job
    stop_if_cancelled("job")
    assert here.store.job("job").state is JobState.STARTING


def test_without_an_answer_of_prefect_the_tick_goes_on(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here.begin(spec())
    follow(here, run_in(StateType.CANCELLED).id)
    monkeypatch.setattr(tasks.ending.cancelled_runs, "_CALL_S", 0.5)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        stop_if_cancelled("job")
    assert here.store.job("job").state is JobState.STARTING
    assert "job job: whether it was cancelled in the UI is seen by a later tick" in caplog.text
    stop_if_cancelled("job")
    assert here.store.job("job").state is JobState.STOPPING


def test_the_flow_records_once_that_it_follows_the_job(here: TaskRuntime) -> None:
    here.begin(spec())

    @flow
    def attach() -> None:
        record_follower("job")
        record_follower("job")

    attach()
    record_follower("job")  # outside of a run there is nothing to cancel
    seen = here.store.observations("job", ObservationKind.FOLLOWER)
    with get_client(sync_client=True) as client:
        assert [client.read_flow_run(UUID(one.payload["flow_run_id"])).state.is_completed() for one in seen] == [True]


def test_the_hook_of_the_flow_stops_the_job_at_once(here: TaskRuntime) -> None:
    here.begin(spec())
    run = run_in(StateType.CANCELLED)
    state = State[None](type=StateType.CANCELLED)
    for parameters in ({}, {"spec": None}, {"spec": {"job_id": "nothing"}}):
        stop_cancelled_job(train, run.model_copy(update={"parameters": parameters}), state)
    assert here.store.job("job").state is JobState.STARTING
    stop_cancelled_job(train, run.model_copy(update={"parameters": {"spec": spec().model_dump()}}), state)
    assert here.store.job("job").stop_by == f"flow run {run.name}"


def test_what_was_cancelled_before_a_failed_job_goes_on_is_over(here: TaskRuntime) -> None:
    here.begin(spec())
    follow(here, run_in(StateType.CANCELLED).id)
    plain(close_job)(JobEngine("job"), None, "the application raised")

    @flow
    def attach() -> None:
        record_follower("job")

    attach()
    plain(reopen_job)(JobEngine("job"))
    stop_if_cancelled("job")
    assert here.store.job("job").state is JobState.STARTING
    follow(here, run_in(StateType.CANCELLED).id)
    stop_if_cancelled("job")
    assert here.store.job("job").state is JobState.STOPPING
