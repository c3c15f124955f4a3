"""Answers of nodes to the requests of other nodes and of the controller's shell.

A transport sends an answer as a message that names its class (`to_message`), and the caller receives the answer again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from proteus_spot.psengine.protocol.instructions import ShardOwner
from proteus_spot.psengine.protocol.moved_state import PartitionState, ShardState
from proteus_spot.psengine.tables.contiguous import cut_rows, whole
from proteus_spot.psengine.tables.row_sets import Array
from proteus_spot.psengine.tables.sharding import Arrays

#: Key of the name of an answer's class in a message.
_CLASS = "answer"


class Answer:
    """Base class of the answers."""


@dataclass(frozen=True)
class Moved(Answer):
    """Shards are served elsewhere, by `owners`; nothing was changed."""

    owners: tuple[ShardOwner, ...]
    error: str


@dataclass(frozen=True)
class StaleEpoch(Answer):
    """A shard is not served under the requested epoch; nothing was changed."""

    error: str


@dataclass(frozen=True)
class StaleRead(Answer):
    """The requested group is not available (any more)."""

    error: str


@dataclass(frozen=True)
class NotYet(Answer):
    """The requested updates have not arrived in time; the request may be repeated."""

    error: str


@dataclass(frozen=True)
class LateUpdate(Answer):
    """A task of a later group has read rows that an update changes: the model is of no use (see `served_reads`)."""

    error: str


@dataclass(frozen=True)
class BadSum(Answer):
    """The sum of a group's updates does not fit its table, or is not finite: the model is of no use."""

    error: str


Refusal = Moved | StaleEpoch | StaleRead | NotYet | LateUpdate | BadSum


@dataclass(frozen=True)
class Pushed(Answer):
    """The updates are on the server, from this message or from an earlier one."""


@dataclass(frozen=True)
class Rows(Answer):
    """Rows by shard and table; `attempt` is that of all updates of their group, if the request was for it."""

    shards: Mapping[int, Arrays]
    attempt: int = 0

    def by_shard(self) -> dict[int, Arrays]:
        """Return the rows by shard and table."""
        return {shard: dict(tables) for shard, tables in self.shards.items()}

    def arrays(self) -> list[Array]:
        """Return the arrays as they are sent."""
        return [array for tables in self.shards.values() for array in tables.values()]

    def joined(self) -> Rows | JoinedRows:
        """Return the form in which these rows are sent: one array a table if the shards of each lie side by side."""
        numbers = sorted(self.shards)
        if len(numbers) < 2 or len({tuple(self.shards[shard]) for shard in numbers}) > 1:
            return self
        tables: Arrays = {}
        for name in self.shards[numbers[0]]:
            together = whole([self.shards[shard][name] for shard in numbers])
            if together is None:
                return self
            tables[name] = together
        lengths = {name: [len(self.shards[shard][name]) for shard in numbers] for name in tables}
        return JoinedRows(numbers, lengths, tables, self.attempt)


@dataclass(frozen=True)
class JoinedRows(Answer):
    """`Rows` as they are sent if the shards of each table lie side by side in memory.

    Attributes
    ----------
    shards : sequence of int
    lengths : mapping
        Number of rows in each of `shards`, by table.
    tables : mapping
        The rows of all shards, by table.
    """

    shards: Sequence[int]
    lengths: Mapping[str, Sequence[int]]
    tables: Arrays
    attempt: int = 0

    def by_shard(self) -> dict[int, Arrays]:
        """Return the rows by shard and table; views."""
        found: dict[int, Arrays] = {shard: {} for shard in self.shards}
        for name, table in self.tables.items():
            for shard, rows in zip(self.shards, cut_rows(table, self.lengths[name]), strict=True):
                found[shard][name] = rows
        return found

    def arrays(self) -> list[Array]:
        """Return the arrays as they are sent."""
        return list(self.tables.values())


@dataclass(frozen=True)
class GatheredRows(Answer):
    """Rows by shard and table, with the memory of update rules, and the number of updates in each shard."""

    shards: Mapping[int, Arrays]
    folded: Mapping[int, int]


@dataclass(frozen=True)
class HandedOver(Answer):
    """States of shards that their server has handed over."""

    states: Mapping[int, ShardState]


@dataclass(frozen=True)
class StoredReplicas(Answer):
    """Those of the requested replicas of shards that the node has."""

    states: Mapping[int, ShardState]


@dataclass(frozen=True)
class StoredStates(Answer):
    """Those of the requested states of partitions that the node has."""

    states: Sequence[PartitionState]


@dataclass(frozen=True)
class PartitionData(Answer):
    """A prepared partition, pickled (see `psengine.worker.hosts.partition_host`); None if the node does not send it."""

    pickled: Any


_KINDS = MappingProxyType({kind.__name__: kind for kind in Answer.__subclasses__()})


def to_message(answer: Answer) -> dict[str, Any]:
    """Return an answer as a message: its fields, and the name of its class."""
    return {_CLASS: type(answer).__name__, **vars(answer)}


def from_message(message: Any) -> Any:
    """Return the answer of which `to_message` returned this message; any other value as it is."""
    if not isinstance(message, dict) or _CLASS not in message:
        return message
    return _KINDS[message[_CLASS]](**{name: value for name, value in message.items() if name != _CLASS})
