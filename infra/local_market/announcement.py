"""The file in which `proteus up` says where its servers are, for the other verbs in the same directory."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proteus_spot.infra.files import write_whole
from proteus_spot.infra.local_market.job_stores import RUNS, is_under_way
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.urls import sqlite_url

#: Where `proteus up` keeps its state unless it is given another directory.
DEFAULT_DIRECTORY = RUNS / "up"
_FILE = "up.json"
#: The file that tells the directory of `proteus up` from that of a run: the seed of its market.
SEED_FILE = "market-of-seed.json"


def is_up_directory(directory: Path) -> bool:
    """Return whether `proteus up` has kept its state in `directory`."""
    return (directory / SEED_FILE).is_file()


@dataclass(frozen=True, slots=True)
class Announcement:
    """Where the servers of `proteus up` are.

    Attributes
    ----------
    api_url, ui_url : of the Prefect server.
    directory : of the state.
    scale : market seconds per real second.
    market_from_s, market_until_s : market time at which jobs can begin, and at which the generated prices end.
    auth : ``user:password`` of the Prefect server.
    """

    api_url: str
    ui_url: str
    directory: str
    scale: float
    seed: int
    market_from_s: int
    market_until_s: int
    auth: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


def job_directory(job_id: str, directory: Path | None = None) -> Path:
    """Return where the state of a local job is: `directory` if given, else that of `proteus up` if it has the job.

    Without both it is ``runs/<job>``, which need not exist.
    """
    if directory is not None:
        return directory
    state = DEFAULT_DIRECTORY / "state.db"
    if not (RUNS / job_id).is_dir() and is_up_directory(DEFAULT_DIRECTORY) and state.is_file():
        with Store.open(sqlite_url(state)) as store:
            if store.jobs.find_job(job_id) is not None:
                return DEFAULT_DIRECTORY
    return RUNS / job_id


@contextmanager
def announced(directory: Path, announcement: Announcement) -> Iterator[None]:
    """Write the announcement into `directory` for the context."""
    path = directory / _FILE
    path.touch(mode=0o600)  # a file that is replaced keeps its mode
    path.chmod(0o600)
    write_whole(path, json.dumps(announcement.as_json(), indent=2).encode())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def find_announcement(directory: Path) -> Announcement | None:
    """Return the announcement of the `proteus up` that runs in `directory`; None if none does."""
    try:
        record: Mapping[str, Any] = json.loads((directory / _FILE).read_text())
        found = Announcement(**record)
    except (OSError, ValueError, TypeError):
        return None
    return found if is_under_way(directory) else None  # a killed one leaves its file
