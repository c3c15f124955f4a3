"""Names, tags and days of flow runs: which run is of which job, and what it did; one client for all of a run."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.context import SyncClientContext
from prefect.exceptions import PrefectException
from prefect.runtime import flow_run

from proteus_spot.infra.clock import SystemClock

_log = logging.getLogger(__name__)
#: Characters of a name in the UI's lists.
_LONGEST = 120


def job_run_tag(job_id: str) -> str:
    """Return the tag of the flow runs of a job."""
    return f"job:{job_id}"


def due_day(run: FlowRun | None = None) -> str:
    """Return the UTC day on which a flow run was due, as in ``2026-01-31``; of the run of this context by default.

    A retry of the run, on whatever day, has the same. Outside a run it is today.
    """
    due = flow_run.scheduled_start_time if run is None else run.expected_start_time
    moment = datetime.fromtimestamp(SystemClock().now_s() if due is None else due.timestamp(), UTC)
    return f"{moment:%Y-%m-%d}"


def label_run(name: str, job_ids: Iterable[str] = (), tags: Iterable[str] = ()) -> None:
    """Name the flow run of this context, and tag it with its jobs and `tags`; outside a run nothing happens."""
    if flow_run.id:
        label(UUID(str(flow_run.id)), name, {*flow_run.tags, *map(job_run_tag, job_ids), *tags})


def label(run_id: UUID, name: str, tags: Iterable[str]) -> None:
    """Set name and tags of a flow run.

    A server that does not answer is no reason to end a run: it keeps its former name.
    """
    shown = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run(run_id, name=shown, tags=sorted(tags))
    except (httpx.HTTPError, PrefectException) as error:
        _log.warning("the run keeps its name: %s", error)


@contextmanager
def one_client() -> Iterator[None]:
    """Have every task of this context use one client of the Prefect server; outside a run nothing happens.

    In an `async` flow each synchronous task would make a client of its own, and so read all certificates that the
    system trusts: 20 ms of processor time a task.
    """
    if not flow_run.id:
        yield
        return
    with SyncClientContext.get_or_create():
        yield
