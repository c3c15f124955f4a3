"""Fences: which of the state databases of one owner ticks a job, one blob per job.

A database that was copied, or restored from a backup, has jobs that another one may tick, too. Each tick writes the
generation of its database and a mark of its own to ``fences/<owner>/<job>`` (`tasks.market.purchases.fence`).
"""

import json
from dataclasses import asdict, dataclass
from typing import Self
from urllib.parse import quote

from proteus_spot.infra.storage.blobs import BlobError, BlobMissing, Blobs

_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Fence:
    """What the last tick of a job has written.

    Parameters
    ----------
    generation : of its database; the larger text is the newer one.
    mark : a text that no other tick has written.
    host, at_s : the machine that it ran on, and its market time.
    """

    generation: str
    mark: str
    host: str
    at_s: float

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the fence of a blob; ValueError if it is none, or of another schema."""
        try:
            record = json.loads(data)
            if record["schema"] != _SCHEMA:
                raise ValueError(f"schema {record['schema']!r} is not {_SCHEMA}")
            return cls(str(record["generation"]), str(record["mark"]), str(record["host"]), float(record["at_s"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"is not a fence: {error!r}") from None

    def to_bytes(self) -> bytes:
        """Return the content of the blob."""
        return json.dumps({"schema": _SCHEMA, **asdict(self)}).encode()


def fences_of(owner: str) -> str:
    """Return the prefix of the fences of an owner."""
    return f"fences/{quote(owner, safe='')}"


def read_fence(blobs: Blobs, owner: str, job_id: str) -> tuple[Fence | None, bytes | None]:
    """Return the fence of a job and the content of its blob; None and None if no tick has written one.

    Raises
    ------
    BlobError
        If it cannot be read.
    """
    name = f"{fences_of(owner)}/{job_id}"
    try:
        data = blobs.read_bytes(name)
    except BlobMissing:
        return None, None
    try:
        return Fence.from_bytes(data), data
    except ValueError as error:
        raise BlobError(f"{blobs.url_of(name)}: {error}; remove it") from None


def replace_fence(blobs: Blobs, owner: str, job_id: str, old: bytes | None, new: Fence) -> bool:
    """Write the fence of a job, if its content is still `old`; return whether it was."""
    return blobs.swap(f"{fences_of(owner)}/{job_id}", old, new.to_bytes())
