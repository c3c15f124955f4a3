"""Which state of the tables a read returns (`ShardServer.read`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from proteus_spot.psengine.tables.row_sets import Wanted


@dataclass(frozen=True)
class Committed:
    """The state at `group`, a complete one, which may be folded; unless `exact`, with later updates that are there."""

    group: int
    exact: bool


@dataclass(frozen=True)
class KeptSum:
    """The sum of what some partitions have added to a table (`ShardStore.kept_sum`), as of `group`; or no shard."""

    group: int
    table: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class Complete:
    """The state at `group` once the updates of all partitions have arrived, before the controller declares it complete.

    The reader may use the rows only once the controller has confirmed the `attempt` of these updates.
    """

    group: int


@dataclass(frozen=True)
class Before:
    """The state before `group` once some updates have arrived, committed or not.

    Attributes
    ----------
    after : tuple of (group, partition)
        The updates that the rows need. Others of groups before `group` are not of these rows.
    committed : int
        A complete group: it may be folded.
    readers : tuple of int
        The partitions whose tasks of `group` read.
    named : mapping of shard to rows
        Of tables of which more rows are read than the tasks have named: these.
    """

    group: int
    after: tuple[tuple[int, int], ...]
    committed: int
    readers: tuple[int, ...]
    named: Mapping[int, Wanted] = field(default_factory=dict)


ReadVersion = Committed | KeptSum | Complete | Before
