"""The reliable tier of a job, bought from a market whose calls are replaced."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from proteus_spot.bidding.market.model import InstanceFact, LaunchRequest
from proteus_spot.studies.job_spec import JobSpec
from proteus_spot.tasks.job_records import record_job
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.ingest import fetch_prices, history_days, markets_of
from proteus_spot.tasks.market.job_opening import open_job
from proteus_spot.tasks.market.purchases.reliable_purchases import secure_reliable_tier
from tests.support.task_runtime import TaskRuntime, plain, spec

TICK_S = 120


def opened(here: TaskRuntime, job: JobSpec | None = None) -> None:
    """Record and open the job; nothing is bought yet."""
    job = job or spec()
    plain(record_job)(job)
    plain(fetch_prices)(markets_of(job), history_days())
    plain(open_job)(job, JobEngine(job.job_id))


def secure(here: TaskRuntime, job: JobSpec | None = None) -> str | None:
    """Secure the reliable tier as a process does that has just begun."""
    job = job or spec()
    waits: str | None = plain(secure_reliable_tier)(job, JobEngine(job.job_id))
    return waits


def alive(here: TaskRuntime) -> list[InstanceFact]:
    """The machines that live, by the market's own record."""
    return [fact for fact in here.market.log() if fact.alive]


def states(here: TaskRuntime) -> dict[str, str]:
    """The state of each purchase."""
    return {
        intent.order_id: str(intent.state) for intent in here.store.purchases.intents("job") if intent.kind == "acquire"
    }


@contextmanager
def patched(here: TaskRuntime, **calls: Callable[..., Any]) -> Iterator[None]:
    """Replace calls of the market."""
    with pytest.MonkeyPatch.context() as patch:
        for name, call in calls.items():
            patch.setattr(here.market, name, call)
        yield


def refusing(error: Exception) -> Callable[..., list[InstanceFact]]:
    """Return a call that raises `error`."""

    def call(*_: object) -> list[InstanceFact]:
        raise error

    return call


def empty(*_: object, **_more: object) -> list[InstanceFact]:
    """What EC2 lists of what it has just sold."""
    return []


def selling(here: TaskRuntime, error: BaseException) -> Callable[[LaunchRequest], list[InstanceFact]]:
    """Return a call that carries a purchase out, and raises `error` in place of its answer."""
    launch = here.market.launch

    def call(request: LaunchRequest) -> list[InstanceFact]:
        launch(request)
        raise error

    return call
