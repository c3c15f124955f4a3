"""Alarms that machines raise: why one ends itself, one blob per machine, which the next tick records and removes.

Machines run the code of users, so an alarm is read as a stranger's text: short, on one line, from a blob that has the
name of a machine.
"""

import logging
import re
from dataclasses import asdict, dataclass
from typing import Any

from proteus_spot.infra.storage.blobs import BlobError, Blobs
from proteus_spot.infra.storage.job_paths import JobPaths

_SCHEMA = 1
_LONGEST = 300
#: Maximum number of alarms read at a time; the tick removes what it has read.
_MOST = 200
#: The year 3000.
_LATEST_S = 32_503_680_000.0
_INSTANCE = re.compile(r"[A-Za-z0-9-]{1,64}")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Alarm:
    """The last alarm of a machine, raised at market time `at_s`; `reason` is one line for people."""

    instance_id: str
    at_s: float
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON record of the alarm."""
        return {"schema": _SCHEMA, **asdict(self)}


def write_alarm(blobs: Blobs, job_id: str, alarm: Alarm) -> None:
    """Write the alarm of a machine, in place of its earlier one."""
    blobs.write_json(JobPaths(job_id).alarm(alarm.instance_id), alarm.to_json())


def read_alarms(blobs: Blobs, job_id: str) -> list[Alarm]:
    """Return the alarms of a job that no tick has recorded yet, oldest first; one that is none of ours is left out.

    Raises
    ------
    BlobError
        If the alarms cannot be listed.
    """
    top = JobPaths(job_id).alarms
    found = []
    for name in blobs.list(top)[:_MOST]:
        instance_id = name.removeprefix(f"{top}/").removesuffix(".json")
        try:
            if _INSTANCE.fullmatch(instance_id) is None:
                raise ValueError("its name is not that of a machine")
            found.append(_alarm(instance_id, blobs.read_json(name)))
        except (BlobError, ValueError) as error:
            _log.warning("%s: is not an alarm: %s", blobs.url_of(name), error)
    return sorted(found, key=lambda alarm: (alarm.at_s, alarm.instance_id))


def remove_alarm(blobs: Blobs, job_id: str, alarm: Alarm) -> None:
    """Remove the alarm of a machine."""
    blobs.remove(JobPaths(job_id).alarm(alarm.instance_id))


def _alarm(instance_id: str, record: Any) -> Alarm:
    try:
        if record["schema"] != _SCHEMA:
            raise ValueError(f"schema {record['schema']!r} is not {_SCHEMA}")
        reason = "".join(character for character in str(record["reason"])[:_LONGEST] if character.isprintable())
        at_s = float(record["at_s"])
        if not 0 <= at_s < _LATEST_S:
            raise ValueError(f"at_s {at_s} is not a time")
        return Alarm(instance_id, at_s, reason)
    except (KeyError, TypeError) as error:
        raise ValueError(repr(error)) from None
