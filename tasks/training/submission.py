"""Submission of a job to a Prefect server."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import LogSort
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_KEY, PREFECT_API_URL, temporary_settings
from prefect.utilities.urls import url_for
from pydantic import BaseModel, ValidationError

from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.datasets import kinds as data_kinds
from proteus_spot.infra.errors import InputError, ProteusError
from proteus_spot.infra.local_market.announcement import DEFAULT_DIRECTORY, Announcement, find_announcement
from proteus_spot.infra.local_market.job_stores import open_job_stores
from proteus_spot.infra.processes.surroundings import proteus_command
from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.structured_text import read_yaml
from proteus_spot.infra.validation import first_fault
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.studies.market_data.eviction_tables import absolute_evictions
from proteus_spot.studies.market_data.price_feed import ended_prices
from proteus_spot.studies.times import day
from proteus_spot.tasks.job_pages import open_page
from proteus_spot.tasks.run_labels import job_run_tag
from proteus_spot.tasks.training.application_checks import absolute_code, check_asked

_Model = TypeVar("_Model", bound=BaseModel)
_TRAIN = "train/train"
#: Real seconds for the Prefect server to answer, and between two looks at a run that is followed.
_ANSWER_S = 5.0
_LOOK_S = 1.0
#: Log lines in one answer of Prefect's API.
_PAGE = 200


def read_job(path: Path) -> JobSpec:
    """Return the job that a YAML (or JSON) file describes; ``{date}`` is today.

    Raises
    ------
    InputError
        One line that names the file and the field, for each fault that the description alone shows.
    """
    record = read_yaml(path)
    if not isinstance(record, dict):
        raise InputError(f"{path}: holds no job; want job_id, training, transient, … (docs/api/job-file.md)")
    try:
        spec = JobSpec.model_validate(record).on(day(SystemClock().now_s()))
    except ValidationError as error:
        raise InputError(f"{path}: {first_fault(error)}") from None
    check_asked(spec.training, f"{path}: training.", "app_params")
    places = {"data": data_kinds.absolute(spec.training.data), "code": absolute_code(spec.training.code)}
    training = _with_given(spec.training, places)
    transient = _with_given(spec.transient, {"evictions": absolute_evictions(spec.transient.evictions)})
    return spec.model_copy(update={"training": training, "transient": transient})


def _with_given(model: _Model, values: Mapping[str, Any]) -> _Model:
    """Return `model` with `values` for those fields that its user wrote; the others stay at their defaults."""
    return model.model_copy(update={name: value for name, value in values.items() if name in model.model_fields_set})


def with_options(spec: JobSpec, options: Mapping[str, Any]) -> JobSpec:
    """Return the job with limits and a queue in place of its own; None leaves one as it is.

    Raises
    ------
    ValidationError
        If one is wrong.
    """
    given = {name: value for name, value in options.items() if value is not None}
    return JobSpec.model_validate(spec.model_dump(exclude_unset=True) | given)


@dataclass(frozen=True, slots=True)
class PrefectServer:
    """The Prefect server that a job is submitted to; `up` is the running `proteus up` it belongs to, if any."""

    api_url: str
    up: Announcement | None = None

    def warnings(self) -> list[str]:
        """Return a line if the market's prices end before its now, so that nothing would be bought."""
        fault = ended_prices(self.up)
        return [fault] if fault else []

    def is_finished(self, job_id: str) -> bool:
        """Return whether the state database here says that the job was trained to its end before."""
        directory = None if self.up is None else Path(self.up.directory)
        with open_job_stores(directory=directory) as (stores, _):
            found = [each.store.jobs.job(job_id) for each in stores if each.directory == directory and each.has(job_id)]
        return any(job.state is JobState.FINISHED for job in found)

    def next_commands(self, job_id: str) -> list[str]:
        """Return the commands that look after a job, quoted for a shell."""
        where: tuple[str, ...] = ()
        if self.up is not None and Path(self.up.directory) != DEFAULT_DIRECTORY.absolute():
            where = ("--dir", _shown(Path(self.up.directory)))
        commands = (("jobs",), ("logs", job_id, "--follow"), ("cost", job_id), ("stop", job_id))
        return [proteus_command(*words, *where) for words in commands]


def _shown(directory: Path) -> str:
    """Return a directory relative to this one where it is below it."""
    return str(directory.relative_to(Path.cwd())) if directory.is_relative_to(Path.cwd()) else str(directory)


@contextmanager
def prefect_server(directory: Path | None) -> Iterator[PrefectServer]:
    """Choose the Prefect server for the context: that of `proteus up` in `directory`, else of PREFECT_API_URL.

    Without both it is that of `proteus up` in runs/up.

    Raises
    ------
    InputError
        If there is none, or it does not answer. None is started.
    """
    up = find_announcement(directory or DEFAULT_DIRECTORY)
    if directory is not None and up is None:
        raise InputError(f"--dir {directory}: no `proteus up` runs there; start it, or name another directory")
    configured = PREFECT_API_URL.value()
    if directory is None and configured is not None:
        up = next((each for each in [up] if each is not None and each.api_url == configured), None)
    elif up is None:
        raise InputError(
            "PREFECT_API_URL: is not set; name the server, as in http://127.0.0.1:4200/api, or start `proteus up` here"
        )
    api_url = configured if up is None else up.api_url
    assert api_url is not None
    # It would warn at the end that an event is still being sent, which is nothing to a user.
    logging.getLogger("EventsWorker").setLevel(logging.ERROR)
    try:
        httpx.get(f"{api_url.rstrip('/')}/health", timeout=_ANSWER_S)
    except httpx.HTTPError as error:
        raise InputError(
            f"PREFECT_API_URL: no server answers at {api_url} ({error or type(error).__name__}); start it, or fix it"
        ) from None
    if up is None:
        yield PrefectServer(api_url)
        return
    # Credentials of the user's own server are not for this one.
    with temporary_settings(
        {PREFECT_API_URL: api_url, PREFECT_API_AUTH_STRING: up.auth or None}, restore_defaults={PREFECT_API_KEY}
    ):
        yield PrefectServer(api_url, up)


def submit(spec: JobSpec) -> dict[str, Any]:
    """Have the Prefect server run `train` for the job; return the run's id, name and address, and that of its page.

    The same job id again makes another run, which attaches.

    Raises
    ------
    ProteusError
        If no server answers, or the deployment is not registered there.
    """
    # what was left out stays so: a job that was begun before has the defaults of then
    record = spec.model_dump(mode="json", exclude_unset=True)
    run = new_run(_TRAIN, "job", spec.job_id, record, [job_run_tag(spec.job_id)])
    return {"job": spec.job_id, **run_addresses(run), "page_url": _page(spec.job_id, run.id)}


def new_run(deployment: str, kind: str, name: str, spec: Mapping[str, Any], tags: Sequence[str] = ()) -> FlowRun:
    """Have the Prefect server run the flow of a deployment for `spec`, a job or a sweep (`kind`); return the run.

    Raises
    ------
    ProteusError
        If no server answers, or the deployment is not registered there.
    """
    try:
        made = run_deployment(
            deployment, parameters={"spec": spec}, flow_run_name=name, tags=tags, timeout=0, as_subflow=False
        )
    except ObjectNotFound:
        raise ProteusError(f"deployment {deployment}: is not registered; run `prefect deploy --all`") from None
    except Exception as error:
        # Prefect's client raises the errors of its transport when the server does not answer.
        raise ProteusError(f"the Prefect server did not take the {kind}: {error}; is PREFECT_API_URL right?") from error
    return cast(FlowRun, made)  # called outside an event loop, it has waited for its answer


def run_addresses(run: FlowRun) -> dict[str, Any]:
    """Return id, name and address of a flow run, as ``--json`` writes them."""
    return {"flow_run_id": str(run.id), "flow_run": run.name, "run_url": url_for(run)}


def _page(job_id: str, run_id: UUID) -> str:
    try:
        return open_page(job_id, run_id)
    except (httpx.HTTPError, PrefectException):
        return ""  # the run makes it when it begins


def follow_run(flow_run_id: str) -> Iterator[str]:
    """Yield the lines of a flow run's log as they come, until it has ended.

    Raises
    ------
    ProteusError
        If the run did not complete.
    """
    clock = SystemClock()
    run_id = UUID(flow_run_id)
    seen = 0
    lines = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run_id]))
    with get_client(sync_client=True) as client:
        while True:
            run = client.read_flow_run(run_id)
            while page := client.read_logs(lines, limit=_PAGE, offset=seen, sort=LogSort.TIMESTAMP_ASC):
                seen += len(page)
                yield from (f"{line.timestamp:%H:%M:%S} {line.message}" for line in page)
            state = run.state
            if state is not None and state.is_final():
                if not state.is_completed():
                    raise ProteusError(f"flow run {run.name}: {state.name}: {state.message or 'see its log'}")
                return
            clock.wait_until(clock.now_s() + _LOOK_S)
