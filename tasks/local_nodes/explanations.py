"""Events of one node or shard of a job that ran on this machine, from the records of its controllers."""

from collections.abc import Collection
from dataclasses import dataclass

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.storage.event_logs import read_event_log
from proteus_spot.psengine.telemetry.event_log import EVERYBODY, touching

_SHARD = "shard:"


@dataclass(frozen=True)
class Line:
    """One event of the subject: seconds after the first entry, the common clock then, and a description."""

    at_s: float
    clock: int
    text: str


@dataclass(frozen=True)
class Subject:
    """The subject of an explanation: a node by name, or a shard by number."""

    node: str | None
    shard: int | None

    @property
    def title(self) -> str:
        """Its name for a reader."""
        return f"node {self.node}" if self.shard is None else f"shard {self.shard}"

    def lines(self, blobs: Blobs, job_id: str) -> list[Line]:
        """Return its events, in order of time."""
        entries = read_event_log(blobs, job_id)
        begin_s = float(entries[0]["at"]) if entries else 0.0
        return [
            Line(float(entry["at"]) - begin_s, int(entry["clock"]), str(entry["text"]))
            for entry in touching(entries, self.node, self.shard)
        ]


def subject(blobs: Blobs, job_id: str, text: str, nodes: Collection[str], shards: int) -> Subject:
    """Return what `--explain TEXT` names.

    Parameters
    ----------
    nodes : those that the job begins with, or that will join.
    shards : how many the job has.

    Raises
    ------
    InputError
        If there is no such node or shard: a line that lists the existing ones.
    """
    names = dict.fromkeys([*nodes, *(name for entry in read_event_log(blobs, job_id) for name in entry["nodes"])])
    names.pop(EVERYBODY, None)
    number = text.removeprefix(_SHARD)
    if text.startswith(_SHARD) and number.isdecimal() and int(number) < shards:
        return Subject(None, int(number))
    if text in names:
        return Subject(text, None)
    all_shards = f"{_SHARD}0" if shards == 1 else f"{_SHARD}0 to {_SHARD}{shards - 1}"
    raise InputError(
        f"--explain {text}: job {job_id} has no such node or shard; there are {', '.join(names)}, {all_shards}"
    )
