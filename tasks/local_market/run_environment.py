"""The private environment of a run on this machine: market file, servers, environment variables."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from proteus_spot.infra.clock import ScaledClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.local_market.environment import STILL, LocalEnvironment, clock_file, market_file
from proteus_spot.infra.masking import masked
from proteus_spot.infra.runtime import forget_runtime
from proteus_spot.infra.simulated_ec2.stored_market import read_state
from proteus_spot.infra.state.records import ObservationKind, UnknownRecord
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.urls import file_url, sqlite_url


def resume_point(
    directory: Path, url: str, job_id: str, scale: float | None, market_stays: bool
) -> tuple[float, float | None]:
    """Return the market time at which a job resumes, that of its last record, and its scale.

    Parameters
    ----------
    scale : the requested scale; None for the scale at which the job ran before, which is None if it never ran.
    market_stays : whether the market stood still meanwhile; otherwise its time has run on with the clock.

    Raises
    ------
    InputError
        If it ran at another scale: the training's hours are measured in it.
    """
    clock = clock_file(directory)
    before = ScaledClock(clock).scale if clock.exists() else STILL
    if scale is not None and before not in (scale, STILL):
        raise InputError(f"--scale {scale:g}: job {job_id} was begun at {before:g}; give that")
    state = read_state(market_file(directory))
    with closing(Store.open(url)) as store:
        seen = store.jobs.last_seen_s(job_id)
        times_s = [store.jobs.job(job_id).created_at_s, *([] if seen is None else [seen])]
    if not market_stays and clock.exists():
        times_s.append(ScaledClock(clock).now_s())
    at_s = max([*times_s, *([] if state is None else [float(state.now_s)])])
    return at_s, scale if before == STILL else before


def state_urls(directory: Path, database: str | None = None) -> dict[str, str]:
    """Return the settings that keep the state of a run below `directory`, with its records in `database` if given.

    Raises
    ------
    InputError
        If no URL can name a file there.
    """
    return {
        "PROTEUS_DATABASE_URL": database or sqlite_url(directory / "state.db"),
        "PROTEUS_BLOB_URL": file_url(directory / "blobs"),
    }


def local_settings(
    directory: Path, scale: float, database: str | None = None, catalog: Path | None = None
) -> dict[str, str]:
    """Return the settings of a run in `directory` at `scale`, for this process and those that it starts.

    Raises
    ------
    InputError
        If no URL can name a file there.
    """
    settings = {
        **state_urls(directory, database),
        "PROTEUS_POLL_S": str(max(5.0, 0.2 * scale)),
        "PROTEUS_NOTICE_S": "120",
        "PROTEUS_CROSS_ZONE_USD_PER_GB": "0",  # the simulated market does not bill it
    }
    if catalog is not None:
        settings["PROTEUS_CATALOG"] = str(catalog.absolute())
    return settings


def last_market_s(directory: Path, url: str, begin_s: float) -> float:
    """Return the market time that the jobs of a run in `directory` had reached; `begin_s` if it never began."""
    state = read_state(market_file(directory))
    times_s = [begin_s, *([] if state is None else [float(state.now_s)])]
    with closing(Store.open(url)) as store:
        for job in store.jobs.list_jobs():
            seen_s = store.jobs.last_seen_s(job.job_id)
            times_s += [job.created_at_s, *([] if seen_s is None else [seen_s])]
    return max(times_s)


def forget_claims(url: str) -> None:
    """Release the claims of the processes of an earlier life of a run.

    Those processes have ended, and no other process uses the database.
    """
    with closing(Store.open(url)) as store:
        store.claims.release_all()


def make_database(url: str) -> None:
    """Make the state database if there is none."""
    Store.open(url).close()


def record_command(url: str, job_id: str, command: str) -> None:
    """Record which command runs the job again, for its report, without the secrets of its URLs.

    A job that is not in the database is skipped.
    """
    command = masked(command)
    with closing(Store.open(url)) as store:
        try:
            job = store.jobs.job(job_id)
        except UnknownRecord:
            return
        recorded = store.jobs.last_observation(job_id, ObservationKind.COMMAND)
        if recorded is None or recorded.payload != {"command": command}:
            seen_s = store.jobs.last_seen_s(job_id)
            store.jobs.observe(
                job_id, job.created_at_s if seen_s is None else seen_s, ObservationKind.COMMAND, {"command": command}
            )


def losses_of(url: str, job_id: str) -> Sequence[Sequence[float | None]]:
    """Return clock and loss of each clock of an ended job."""
    with closing(Store.open(url)) as store:
        return (store.jobs.job(job_id).result or {}).get("losses") or []


def _send_queued_records() -> None:
    """Send Prefect's queued log lines and events to the server before it stops."""
    if "prefect" not in sys.modules:
        return  # the run failed before a flow started, so nothing is queued
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    APILogWorker.drain_all(timeout=5)
    EventsWorker.drain_all(timeout=5)


@contextmanager
def environment_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set `variables` in this process for the context, and have the runtime opened again from them."""
    before = _put(variables)
    try:
        yield
    finally:
        _put(before)


@contextmanager
def opened_environment(made: LocalEnvironment, variables: Mapping[str, str]) -> Iterator[LocalEnvironment]:
    """Start an environment, and set its variables and others in this process for the context.

    After an error the variables stay: the process is about to end, and a flow that still has a running thread must not
    fall back to the runtime of the user.
    """
    with made as environment:
        before = _put({**environment.environment, **variables})
        yield environment
        _send_queued_records()
        _put(before)


def _put(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Set variables (None: unset) and have the runtime opened again; return their previous values."""
    before = {name: os.environ.get(name) for name in variables}
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    forget_runtime()
    return before
