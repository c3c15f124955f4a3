"""The file in which `proteus up` says where its servers are, for the other verbs in the same directory."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infra.files import write_whole
from infra.local.job_stores import is_under_way

#: Where `proteus up` keeps its state unless it is given another directory.
DEFAULT_DIRECTORY = Path("runs") / "up"
_FILE = "up.json"


@dataclass(frozen=True, slots=True)
class Announcement:
    """Where the servers of `proteus up` are.

    Attributes
    ----------
    api_url, ui_url : of the Prefect server.
    directory : of the state.
    scale : market seconds per real second.
    market_from_s, market_until_s : market time at which jobs can begin, and at which the generated prices end.
    """

    api_url: str
    ui_url: str
    directory: str
    scale: float
    seed: int
    market_from_s: int
    market_until_s: int

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


@contextmanager
def announced(directory: Path, announcement: Announcement) -> Iterator[None]:
    """Write the announcement into `directory` for the context."""
    path = directory / _FILE
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
