"""The story of a job in its blobs: pages of JSON lines under ``jobs/<id>/story/``, of which the newest are kept."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from infra.storage.blobs import Blobs
from infra.storage.job_paths import JobPaths

#: Pages of a job that are kept; older ones are removed.
MOST_PAGES = 40


def keep_page(blobs: Blobs, job_id: str, began_s: float, number: int, entries: Sequence[Mapping[str, Any]]) -> None:
    """Write a page of the story, in place of what it was before.

    Parameters
    ----------
    began_s : when the controller that tells it began, in seconds since the Unix epoch; a later one writes behind it.
    number : of the page, from 0.
    entries : see `psengine.telemetry.event_log`.

    Raises
    ------
    BlobError
        If it cannot be written.
    """
    place = _place(job_id)
    text = "".join(json.dumps(dict(entry), allow_nan=False) + "\n" for entry in entries)
    blobs.write_bytes(f"{place}/{round(began_s * 1000):015d}-{number:05d}.jsonl", text.encode())
    for name in sorted(blobs.list(place))[:-MOST_PAGES]:
        blobs.remove(name)


def read_story(blobs: Blobs, job_id: str) -> list[dict[str, Any]]:
    """Return the entries of a job's story, in order of time; none where nobody kept one."""
    lines = [line for name in sorted(blobs.list(_place(job_id))) for line in blobs.read_bytes(name).splitlines()]
    return [json.loads(line) for line in lines]


def _place(job_id: str) -> str:
    return f"{JobPaths(job_id).root}/story"
