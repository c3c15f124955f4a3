"""Cancel in the Prefect UI is a request to stop; a run that crashed, or a server that is away, is none.

Runs that a schedule began belong to the job of their day; one without parameters says so.
"""

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.flow_engine import run_flow
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Pending, Scheduled
from prefect.utilities.callables import parameter_schema

import proteus_spot.flows.backtest
import proteus_spot.flows.sweep
import proteus_spot.flows.train
import proteus_spot.tasks.supervision.cancelled_runs
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.state.records import JobState, ObservationKind
from proteus_spot.studies.times import day
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.job_opening import close_job, reopen_job
from proteus_spot.tasks.run_labels import due_day
from proteus_spot.tasks.supervision.cancelled_runs import record_follower, stop_cancelled_job, stop_if_cancelled
from tests.support.prefect import prefect_api
from tests.support.task_runtime import TaskRuntime, plain, spec

pytestmark = [pytest.mark.slow]

#: When a run was due.
LATE = datetime(2026, 1, 31, 23, 59, 30, tzinfo=UTC)


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
    here.store.jobs.observe("job", here.clock.at_s, ObservationKind.FOLLOWER, {"flow_run_id": str(run_id)})


@pytest.mark.parametrize("state", [StateType.CANCELLING, StateType.CANCELLED])
def test_a_cancelled_run_stops_the_job_it_follows(here: TaskRuntime, state: StateType) -> None:
    here.begin(spec())
    follow(here, run_in(StateType.RUNNING).id)
    stop_if_cancelled("job")
    assert here.store.jobs.job("job").state is JobState.STARTING
    run = run_in(state)
    follow(here, run.id)
    stop_if_cancelled("job")
    job = here.store.jobs.job("job")
    assert (job.state, job.stop_why) == (JobState.STOPPING, "cancelled in the Prefect UI")
    assert job.stop_by == f"flow run {run.name}"


@pytest.mark.parametrize("state", [StateType.CRASHED, StateType.FAILED, StateType.COMPLETED])
def test_a_run_that_ended_otherwise_is_no_request(here: TaskRuntime, state: StateType) -> None:
    here.begin(spec())
    follow(here, run_in(state).id)
    run_in(StateType.CANCELLED)  # of another job
    stop_if_cancelled("job")
    assert here.store.jobs.job("job").state is JobState.STARTING


def test_without_an_answer_of_prefect_the_tick_goes_on(
    here: TaskRuntime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here.begin(spec())
    follow(here, run_in(StateType.CANCELLED).id)
    monkeypatch.setattr(proteus_spot.tasks.supervision.cancelled_runs, "_CALL_S", 0.5)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        stop_if_cancelled("job")
    assert here.store.jobs.job("job").state is JobState.STARTING
    assert "job job: whether it was cancelled in the UI is seen by a later tick" in caplog.text
    stop_if_cancelled("job")
    assert here.store.jobs.job("job").state is JobState.STOPPING


def test_the_flow_records_once_that_it_follows_the_job(here: TaskRuntime) -> None:
    here.begin(spec())

    @flow
    def attach() -> None:
        record_follower("job")
        record_follower("job")

    attach()
    record_follower("job")  # outside of a run there is nothing to cancel
    seen = here.store.jobs.observations("job", ObservationKind.FOLLOWER)
    with get_client(sync_client=True) as client:
        assert [client.read_flow_run(UUID(one.payload["flow_run_id"])).state.is_completed() for one in seen] == [True]


def test_the_hook_of_the_flow_stops_the_job_at_once(here: TaskRuntime) -> None:
    here.begin(spec())
    run = run_in(StateType.CANCELLED)
    state = State[None](type=StateType.CANCELLED)
    for parameters in ({}, {"spec": None}, {"spec": {"job_id": "nothing"}}):
        stop_cancelled_job(train, run.model_copy(update={"parameters": parameters}), state)
    assert here.store.jobs.job("job").state is JobState.STARTING
    stop_cancelled_job(train, run.model_copy(update={"parameters": {"spec": spec().model_dump()}}), state)
    assert here.store.jobs.job("job").stop_by == f"flow run {run.name}"


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
    assert here.store.jobs.job("job").state is JobState.STARTING
    follow(here, run_in(StateType.CANCELLED).id)
    stop_if_cancelled("job")
    assert here.store.jobs.job("job").state is JobState.STOPPING


# -- runs that a schedule began ----------------------------------------------------------------------------------------


def begun(parameters: dict[str, Any], name: str = "train") -> FlowRun:
    """Return a run that was scheduled for `LATE`, and that a worker has just taken."""

    @flow(name=name)
    def stands_for_it() -> None:
        """Stands for the flow of that name."""

    with get_client(sync_client=True) as client:
        run = client.create_flow_run(stands_for_it, parameters=parameters, state=Scheduled(scheduled_time=LATE))
        client.set_flow_run_state(run.id, Pending(), force=True)
        return client.read_flow_run(run.id)


def test_a_run_has_the_day_for_which_it_was_scheduled_and_so_has_its_retry() -> None:
    days: list[str] = []

    @flow(name="train")
    async def train_of_a_day() -> None:
        days.append(due_day())

    run = begun({})
    asyncio.run(run_flow(train_of_a_day, run))  # type: ignore[arg-type]
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, Scheduled(name="AwaitingRetry"), force=True)
        client.set_flow_run_state(run.id, Pending(), force=True)
        again = client.read_flow_run(run.id)
    asyncio.run(run_flow(train_of_a_day, again))  # type: ignore[arg-type]
    assert days == ["2026-01-31", "2026-01-31"]
    assert (due_day(run), due_day(again)) == ("2026-01-31", "2026-01-31")
    assert due_day() == day(SystemClock().now_s())


def test_cancelling_a_scheduled_run_stops_the_job_of_its_day(here: TaskRuntime) -> None:
    here.begin(spec().model_copy(update={"job_id": "nightly-2026-01-31"}))
    run = begun({"spec": spec().model_dump(mode="json") | {"job_id": "nightly-{date}"}})
    stop_cancelled_job(train, run, Pending())
    assert here.store.jobs.job("nightly-2026-01-31").state is JobState.STOPPING


@pytest.mark.parametrize("name", ["train", "sweep", "backtest"])
def test_a_scheduled_run_without_parameters_fails_with_one_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    run = begun({}, name)
    flow_of: Any = {
        "train": proteus_spot.flows.train.train,
        "sweep": proteus_spot.flows.sweep.sweep,
        "backtest": proteus_spot.flows.backtest.backtest,
    }[name]
    made: Any = run_flow(flow_of, run, return_type="state", error_logger=logging.getLogger("prefect.flow_runs"))
    state = asyncio.run(made) if asyncio.iscoroutine(made) else made
    assert state.is_failed(), state
    assert "this run was given no parameters; a schedule has them under `parameters:`" in state.message
    assert not [record for record in caplog.records if record.exc_info], "no traceback"
    assert parameter_schema(flow_of).required == ["spec"], "the form asks for them"
