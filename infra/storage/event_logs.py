"""The event log of a job, as pages of JSON lines under ``jobs/<id>/story/``; only the newest pages are stored."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.job_paths import JobPaths

#: Maximum number of pages per job; older ones are removed.
MOST_PAGES = 40


def keep_page(blobs: Blobs, job_id: str, began_s: float, number: int, entries: Sequence[Mapping[str, Any]]) -> None:
    """Write a page of the event log, replacing an earlier version of it.

    Parameters
    ----------
    began_s : start of the controller that writes it, in seconds since the Unix epoch; pages of a later one follow it.
    number : number of the page, from 0.
    entries : see `psengine.telemetry.event_log`.

    Raises
    ------
    BlobError
        If it cannot be written.
    """
    prefix = _prefix(job_id)
    text = "".join(json.dumps(dict(entry), allow_nan=False) + "\n" for entry in entries)
    blobs.write_bytes(f"{prefix}/{round(began_s * 1000):015d}-{number:05d}.jsonl", text.encode())
    for name in sorted(blobs.list(prefix))[:-MOST_PAGES]:
        blobs.remove(name)


def read_event_log(blobs: Blobs, job_id: str) -> list[dict[str, Any]]:
    """Return the entries of a job's event log, in order of time; empty without a log."""
    lines = [line for name in sorted(blobs.list(_prefix(job_id))) for line in blobs.read_bytes(name).splitlines()]
    return [json.loads(line) for line in lines]


def _prefix(job_id: str) -> str:
    return f"{JobPaths(job_id).root}/story"
