"""A world of one's own for a run on this machine: the market's file, the servers, and the way into it."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from infra.clock import ScaledClock
from infra.errors import InputError
from infra.local.environment import STILL, LocalEnvironment, clock_file, market_file, own_directory
from infra.runtime import forget_runtime
from infra.simulated_ec2.snapshot import read_state
from infra.state.records import ObservationKind, UnknownRecord
from infra.state.store import Store
from infra.urls import file_url, sqlite_url


def goes_on_at(
    directory: Path, url: str, job_id: str, scale: float | None, market_stays: bool
) -> tuple[float, float | None]:
    """Return the market time at which a job's world goes on, that of the last thing that is known of it, and at which scale.

    Parameters
    ----------
    scale : the scale that is asked for; None for that at which it ran, which is None where it never did.
    market_stays : whether the market stood still meanwhile; the time of one that did not has gone on with the clock.

    Raises
    ------
    InputError
        If it ran at another scale: the training's hours are measured in that.
    """
    clock = clock_file(directory)
    before = ScaledClock(clock).scale if clock.exists() else STILL
    if scale is not None and before not in (scale, STILL):
        raise InputError(f"--scale {scale:g}: job {job_id} was begun at {before:g}; give that")
    state = read_state(market_file(directory))
    with closing(Store.open(url)) as store:
        seen = store.last_seen_s(job_id)
        known = [store.job(job_id).created_at_s, *([] if seen is None else [seen])]
    if not market_stays and clock.exists():
        known.append(ScaledClock(clock).now_s())
    at_s = max([*known, *([] if state is None else [float(state.now_s)])])
    return at_s, scale if before == STILL else before


def state_urls(directory: Path, database: str | None = None) -> dict[str, str]:
    """Return the settings by which a run keeps its state below `directory`; its records in `database` where one is given.

    Raises
    ------
    InputError
        If no URL can name a file there.
    """
    return {
        "PROTEUS_DATABASE_URL": database or sqlite_url(directory / "state.db"),
        "PROTEUS_BLOB_URL": file_url(directory / "blobs"),
    }


def forget_claims(url: str) -> None:
    """Give up what the processes of an earlier life of a run had claimed: they are gone, and nobody else has its database."""
    with closing(Store.open(url)) as store:
        store.release_all()


def make_database(url: str) -> None:
    """Make the state database where there is none."""
    Store.open(url).close()


def record_command(url: str, job_id: str, command: str) -> None:
    """Record which command runs the job again, for its report, without the password of `url`.

    A job that is not in the database is passed over.
    """
    shown = make_url(url).render_as_string(hide_password=True)
    command = command.replace(shlex.quote(url), shlex.quote(shown))
    with closing(Store.open(url)) as store:
        try:
            job = store.job(job_id)
        except UnknownRecord:
            return
        recorded = store.last_observation(job_id, ObservationKind.COMMAND)
        if recorded is None or recorded.payload != {"command": command}:
            seen_s = store.last_seen_s(job_id)
            store.observe(
                job_id, job.created_at_s if seen_s is None else seen_s, ObservationKind.COMMAND, {"command": command}
            )


def losses_of(url: str, job_id: str) -> Sequence[Sequence[float | None]]:
    """Return clock and loss of each clock of an ended job."""
    with closing(Store.open(url)) as store:
        return (store.job(job_id).result or {}).get("losses") or []


def _send_what_waits() -> None:
    """Hand Prefect's waiting log lines and events to the server, while there is one."""
    if "prefect" not in sys.modules:
        return  # it failed before a flow was run, and nothing waits
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    APILogWorker.drain_all(timeout=5)
    EventsWorker.drain_all(timeout=5)


@contextmanager
def environment_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Give this process `variables`, and a world that follows them, for as long as the context lasts."""
    before = _put(variables)
    try:
        yield
    finally:
        _put(before)


@contextmanager
def run_directory(directory: Path) -> Iterator[None]:
    """Make the directory of a run and keep it to this process; see `infra.local.environment.own_directory`."""
    with own_directory(directory):
        yield


@contextmanager
def local_environment(variables: Mapping[str, str], **options: Any) -> Iterator[LocalEnvironment]:
    """Start a world of `options` (see `LocalEnvironment`) and put this process into it for as long as the context lasts.

    After an error the variables stay: the process is about to end, and a flow of which a thread is still under way must
    not fall back to the world of the user.
    """
    with LocalEnvironment(**options) as world:
        before = _put({**world.environment, **variables})
        yield world
        _send_what_waits()
        _put(before)


def _put(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Set variables (None: unset) and have the world opened anew; return what they were."""
    before = {name: os.environ.get(name) for name in variables}
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    forget_runtime()
    return before
