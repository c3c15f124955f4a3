"""Alarms that machines raise: why one ends itself, one blob per machine, which the next tick records and removes."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from infra.storage.blobs import BlobError, Blobs
from infra.storage.job_paths import JobPaths

_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Alarm:
    """The last alarm of a machine, raised at market time `at_s`; `reason` is one line for people."""

    instance_id: str
    at_s: float
    reason: str

    @classmethod
    def from_json(cls, record: Any) -> Self:
        """Return the alarm of a JSON record; ValueError if it is none, or of another schema."""
        try:
            if record["schema"] != _SCHEMA:
                raise ValueError(f"schema {record['schema']!r} is not {_SCHEMA}")
            return cls(str(record["instance_id"]), float(record["at_s"]), str(record["reason"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"is no alarm: {error!r}") from None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON record of the alarm."""
        return {"schema": _SCHEMA, **asdict(self)}


def write_alarm(blobs: Blobs, job_id: str, alarm: Alarm) -> None:
    """Write the alarm of a machine, in place of its earlier one."""
    blobs.write_json(JobPaths(job_id).alarm(alarm.instance_id), alarm.to_json())


def read_alarms(blobs: Blobs, job_id: str) -> list[Alarm]:
    """Return the alarms of a job that no tick has recorded yet, oldest first.

    Raises
    ------
    BlobError
        If one cannot be read.
    """
    found = []
    for name in blobs.list(JobPaths(job_id).alarms):
        try:
            found.append(Alarm.from_json(blobs.read_json(name)))
        except ValueError as error:
            raise BlobError(f"{blobs.url_of(name)}: {error}") from None
    return sorted(found, key=lambda alarm: (alarm.at_s, alarm.instance_id))


def remove_alarm(blobs: Blobs, job_id: str, alarm: Alarm) -> None:
    """Remove the alarm of a machine."""
    blobs.remove(JobPaths(job_id).alarm(alarm.instance_id))
