"""Where jobs are recorded: the database of the settings, and those of the local runs below this directory."""

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from proteus_spot.infra.clock import open_clock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.local_market.environment import clock_file
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.state.records import UnknownRecord
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.urls import sqlite_url

#: Below the working directory: where `proteus run` keeps a directory for each job.
RUNS = Path("runs")
_STATE = "state.db"


@dataclass(frozen=True, slots=True)
class JobStore:
    """An open state database.

    Attributes
    ----------
    directory : of the local run whose database it is; None for a database that several jobs share.
    """

    store: Store
    directory: Path | None

    def now_s(self, job_id: str) -> float:
        """Return the market time of a job in seconds; a local run has got as far as the last thing recorded of it."""
        if self.directory is None:
            return open_clock(load_settings().clock).now_s()
        seen_s = self.store.jobs.last_seen_s(job_id)
        return self.store.jobs.job(job_id).created_at_s if seen_s is None else seen_s

    def has(self, job_id: str) -> bool:
        """Return whether the job is recorded here."""
        try:
            self.store.jobs.job(job_id)
        except UnknownRecord:
            return False
        return True


@contextmanager
def open_job_stores(
    database: str | None = None, directory: Path | None = None
) -> Iterator[tuple[list[JobStore], list[str]]]:
    """Open the databases that a user means, none of which is created; give them, and a line for each that was left out.

    Parameters
    ----------
    database : URL of the only one.
    directory : directory of the run whose database is the only one.

    Without either: the database of the settings, if there is one, and that of every local run in ``runs/``.

    Raises
    ------
    InputError
        If the one that was named does not exist or cannot be used.
    """
    with ExitStack() as stack:
        if database is not None or directory is not None:
            url = database or sqlite_url(_state_file(directory or Path()))
            check_exists(url)
            yield [JobStore(stack.enter_context(Store.open(url)), directory or _run_of(url))], []
            return
        stores, left_out = [], []
        for url in _default_urls():
            try:
                stores.append(JobStore(stack.enter_context(Store.open(url)), _run_of(url)))
            except InputError as error:
                left_out.append(f"{error}; left out")
        yield stores, left_out


def find_job(stores: Sequence[JobStore], job_id: str) -> JobStore:
    """Return the store that has a job; of several, that of the local run ``runs/<job>``.

    Raises
    ------
    InputError
        If none has it.
    """
    found = [each for each in stores if each.has(job_id)]
    if not found:
        raise InputError(
            f"job {job_id}: is in no state database here; `proteus jobs` lists those that are, --dir and "
            f"--database name "
            "another place"
        )
    own = (RUNS / job_id).absolute()
    return next((each for each in found if each.directory is not None and each.directory.absolute() == own), found[0])


def check_exists(database: str) -> None:
    """Refuse the URL of a SQLite file that does not exist: opening it would create one."""
    file = _sqlite_file(database)
    if file is not None and not file.is_file():
        raise InputError(f"state database {file}: is not there; name it with --database, or the run's --dir")


def is_under_way(directory: Path) -> bool:
    """Return whether a process owns the directory of a run (`infra.local_market.environment.own_directory`)."""
    try:
        with (directory / "run.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _default_urls() -> list[str]:
    """Return the URL of the settings' database, if it exists, and those of the local runs, by name."""
    urls = [sqlite_url(file) for file in sorted(RUNS.glob(f"*/{_STATE}"))]
    shared = load_settings().database_url
    file = _sqlite_file(shared)
    if file is None:
        return [shared, *urls]
    return [shared, *urls] if file.is_file() and sqlite_url(file) not in urls else urls


def _state_file(directory: Path) -> Path:
    if not directory.is_dir():
        raise InputError(f"{directory}: is not a directory; --dir names where the run kept its state")
    return directory / _STATE


def _run_of(url: str) -> Path | None:
    """Return the directory of the local run whose database this is: it keeps its clock beside it."""
    file = _sqlite_file(url)
    return file.parent if file is not None and clock_file(file.parent).is_file() else None


def _sqlite_file(database: str) -> Path | None:
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):
        return None  # the store says what is wrong with it
    name = url.database or ""
    is_file = url.get_backend_name() == "sqlite" and name and not name.startswith((":", "file:"))
    return Path(name) if is_file else None
