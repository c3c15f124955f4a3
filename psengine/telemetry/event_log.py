"""The event log of a job: one sequence of frozen events, from which everything shown of a job over time is derived.

| event | says | key in summaries |
|---|---|---|
| StateChanged | stage, nodes, servers and backups, where they differ: see `timeline` | `timeline` |
| NodeChanged | a node joined, was asked to leave or was lost, and when that was carried out: see `stalls` | `changes` |
| NodeReleased | a node that was asked to leave is drained | `releases` |
| Held | the job was held | `held` |
| MemoryUsed | memory of all nodes at a clock | `memory_by_clock` |
| LayoutChanged | servers and backups are to be others | |
| Described | an event or instruction as text: see `descriptions` | |

Events are numbered as they are appended. Of each kind the log holds at most `MOST`: beyond it, the events of the older
half are joined two by two. So it never falls silent; what is older is coarser. A checkpoint has its events as records,
which are JSON-able, and a job that continues from it appends them first.

Two figures are no events. Bytes are counters of each process since it began (`byte_counts`): each report would be an
event, of which only the last one of a process counts. Losses and work are sums by group that a rollback takes back
(`training_progress`), and are updated with each report.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, ClassVar, Self, TypeVar

#: Maximum number of events of each kind.
MOST = 4000
#: In place of a node's name in a `Described`: all nodes and all shards.
EVERYBODY = "*"


@dataclass(frozen=True)
class LogEvent:
    """Base class of the events. `KEY` is that of their records in a summary; events without one are not in it."""

    KEY: ClassVar[str] = ""

    def record(self) -> Any:
        """Return it JSON-able."""
        return dict(vars(self))

    @classmethod
    def read(cls, record: Any) -> Self:
        """Return the event of a record."""
        return cls(**record) if isinstance(record, Mapping) else cls(*record)

    def joined(self, later: Self) -> Self:
        """Return the event that stands for this and the next one of its kind."""
        return later


@dataclass(frozen=True)
class StateChanged(LogEvent):
    """From `second` on (of training; 0 before), at `clock`, some of the job differs from what the event before left.

    Attributes
    ----------
    stage : int
        0: the same as before.
    nodes : {name: [tier, state]}, the state `gone` if the process is gone.
    shards : {number: [server, backup]} by name; None where there is none.
    """

    KEY: ClassVar[str] = "timeline"
    second: float
    clock: int
    stage: int = 0
    nodes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shards: Mapping[str, Sequence[str | None]] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return it JSON-able, without what is the same as before."""
        return {key: value for key, value in vars(self).items() if value or key in ("second", "clock")}

    def joined(self, later: StateChanged) -> StateChanged:
        """Return what the later one of them has left."""
        nodes, shards = {**self.nodes, **later.nodes}, {**self.shards, **later.shards}
        return StateChanged(later.second, later.clock, later.stage or self.stage, nodes, shards)


@dataclass(frozen=True)
class NodeChanged(LogEvent):
    """A change of a node.

    Attributes
    ----------
    event : join, notice, drain, eviction (a node that had its notice is gone) or loss (one that had none).
    second, until : of training, when it happened and when it was carried out; None: it is not yet.
    """

    KEY: ClassVar[str] = "changes"
    event: str
    node: str
    second: float
    until: float | None


@dataclass(frozen=True)
class NodeReleased(LogEvent):
    """A node is drained, `seconds` after the notice or the drain request (`event`) of `second`."""

    KEY: ClassVar[str] = "releases"
    node: str
    event: str
    second: float
    seconds: float


@dataclass(frozen=True)
class Held(LogEvent):
    """The job was held from `second` until `until`, in seconds of training."""

    KEY: ClassVar[str] = "held"
    second: float
    until: float

    def record(self) -> list[float]:
        """Return it JSON-able."""
        return [self.second, self.until]


@dataclass(frozen=True)
class MemoryUsed(LogEvent):
    """Bytes of memory of all nodes by kind (see `memory_use`), and the number of nodes, at the end of `clock`."""

    KEY: ClassVar[str] = "memory_by_clock"
    clock: int
    tables: int
    states: int
    input: int
    nodes: int

    def record(self) -> list[int]:
        """Return it JSON-able."""
        return list(vars(self).values())


@dataclass(frozen=True)
class LayoutChanged(LogEvent):
    """Changes of the wanted servers and backups, as lines of text."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Described(LogEvent):
    """Something that concerned `nodes` and `shards`, as `text`.

    `at`: seconds since the Unix epoch. `clock`: the last common clock.
    """

    at: float
    clock: int
    nodes: Sequence[str]
    shards: Sequence[int]
    text: str


Kind = TypeVar("Kind", bound=LogEvent)
#: Kinds of events that are in a summary.
STORED = (NodeChanged, MemoryUsed, Held, NodeReleased, StateChanged)


class EventLog:
    """The events of one job, those that are remembered.

    Attributes
    ----------
    n_events : int
        How many were appended; the number of the last one.
    """

    def __init__(self) -> None:
        self.n_events = 0
        self._by_kind: dict[type[LogEvent], list[tuple[int, Any]]] = defaultdict(list)

    def append(self, event: LogEvent) -> None:
        """Append an event."""
        self.n_events += 1
        entries = self._by_kind[type(event)]
        entries.append((self.n_events, event))
        if len(entries) > MOST:
            pairs = zip(entries[: MOST // 2 : 2], entries[1 : MOST // 2 : 2], strict=True)
            entries[: MOST // 2] = [(number, older.joined(newer)) for (_, older), (number, newer) in pairs]

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Return the events of a kind."""
        return [event for _, event in self._by_kind[kind]]

    def since(self, number: int, kind: type[Kind]) -> list[tuple[int, Kind]]:
        """Return the events of a kind that were appended after the one with `number`, each with its number."""
        entries = self._by_kind[kind]
        return entries[bisect_right(entries, number, key=itemgetter(0)) :]

    def read(self, summary: Mapping[str, Any]) -> None:
        """Append the events in a summary."""
        for kind in STORED:
            for record in summary.get(kind.KEY, ()):
                self.append(kind.read(record))


def touching(entries: Iterable[Mapping[str, Any]], node: str | None, shard: int | None) -> list[Mapping[str, Any]]:
    """Return the records of `Described` that concern a node, or a shard; in the order given."""
    return [
        entry
        for entry in entries
        if EVERYBODY in entry["nodes"] or node in entry["nodes"] or (shard is not None and shard in entry["shards"])
    ]
