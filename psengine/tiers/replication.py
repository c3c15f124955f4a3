"""Replication rounds: which clock of the shards has replicas, and on which nodes.

In a *round*, every server copies one common clock of its shards to their backup owners (the BackupPSs), in the
background, and stores a local replica. A round is complete when all servers have reported that. The replicas of the
last complete round are the state to which the job rolls back when a server is lost; it is one clock, the same for all
shards.

The next round begins at the common clock of that time: clocks in between are skipped. After a round there is a pause as
long as the round took, so that replication never saturates a slow link. Replicas of what reliable nodes serve are
needed more rarely, and their links are the busiest: there the pause is nineteen times as long, and a second at least.

Source: Proteus (EuroSys 2017), 3.3 (ActivePSs push to BackupPSs in the background).
Differs: the state travels, not the aggregate of its updates: then a round that was broken off is as if it had not been.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from psengine.membership.node_record import NodeRecord
from psengine.protocol.instructions import BackUp, ReplicaSet, ShardOwner

#: Number of successive failed rounds from which on replication counts as failing.
_FAILING = 2
#: The long pause, in durations of the last round, and its minimum in seconds.
_RARELY, _RARELY_LEAST_S = 19.0, 1.0


@dataclass(frozen=True)
class BackupOwner:
    """A process that stores the replica of a shard for its server."""

    node: str
    address: str


@dataclass
class _Round:
    number: int
    clock: int
    since_s: float
    backup_owners: dict[int, BackupOwner]
    #: {shard: address of its server} of the shards whose replication is not reported yet.
    awaited: dict[int, str]


class ReplicationRounds:
    """Rounds of one job."""

    def __init__(self) -> None:
        #: Clock of the last complete round; None if there is none to restore from.
        self.clock: int | None = None
        self._number = 0
        self._last_complete = 0
        self._at: dict[int, BackupOwner] = {}
        #: The nodes in `_at` when it was the mapping `_seen`.
        self._seen: dict[int, BackupOwner] = self._at
        self._nodes: frozenset[str] = frozenset()
        #: Number of shards replicated by the last complete round, also if replicas were lost since.
        self._n_replicated = 0
        self._round: _Round | None = None
        self._rests_until_s = 0.0
        #: Number of successive rounds that failed because a node could not copy.
        self._failed = 0
        #: Seconds that the last complete round took.
        self.took_s = 0.0

    @property
    def under_way(self) -> bool:
        """Whether a round is under way."""
        return self._round is not None

    @property
    def oldest_clock(self) -> int | None:
        """The oldest clock that the job may roll back to: of the last complete round, or of the one under way."""
        clocks = [] if self.clock is None else [self.clock]
        clocks += [] if self._round is None else [self._round.clock]
        return min(clocks, default=None)

    @property
    def failing(self) -> bool:
        """Whether successive rounds fail."""
        return self._failed >= _FAILING

    @property
    def replicas(self) -> Mapping[int, BackupOwner]:
        """{shard: owner of its replica of the last complete round}; another mapping whenever that changes."""
        return self._at

    def backup_owner(self, shard: int) -> BackupOwner | None:
        """Return the owner of the shard's replica of the last complete round."""
        return self._at.get(shard)

    def has_replica(self, node: str) -> bool:
        """Return whether a node is the backup owner of a replica of the last complete round."""
        if self._seen is not self._at:
            self._seen, self._nodes = self._at, frozenset(owner.node for owner in self._at.values())
        return node in self._nodes

    def lacks(self, backup_owners: Mapping[int, str]) -> bool:
        """Return whether the replica of a shard is not where it should be, by {shard: node}."""
        return any(shard not in self._at or self._at[shard].node != node for shard, node in backup_owners.items())

    def due(self, now_s: float, rarely: bool = False) -> bool:
        """Return whether a round may begin; `rarely`: after the long pause."""
        pause_s = max(_RARELY * self.took_s, _RARELY_LEAST_S) - self.took_s if rarely else 0.0
        return self._round is None and now_s >= self._rests_until_s + pause_s

    def begin(
        self, clock: int, owners: Sequence[ShardOwner], backup_owners: Mapping[int, NodeRecord], now_s: float
    ) -> list[BackUp]:
        """Begin a round and return its instructions, one per server."""
        self._number += 1
        at = {shard: BackupOwner(node.name, node.address) for shard, node in backup_owners.items()}
        self._round = _Round(self._number, clock, now_s, at, {owner.shard: owner.address for owner in owners})
        by_server: dict[tuple[str, str], list[ShardOwner]] = {}
        for owner in owners:
            by_server.setdefault((owner.node, owner.address), []).append(owner)
        return [
            BackUp(
                node,
                address,
                self._number,
                self._last_complete,
                clock,
                tuple(owner.shard for owner in served),
                tuple(owner.epoch for owner in served),
                tuple(at[owner.shard].address if owner.shard in at else "" for owner in served),
            )
            for (node, address), served in by_server.items()
        ]

    def backed_up(self, address: str, number: int, shards: Sequence[int], now_s: float) -> bool:
        """Note that a server and its backup owners have their replicas; return whether this completes the round."""
        current = self._round
        if current is None or current.number != number:
            return False
        for shard in shards:
            if current.awaited.get(shard) == address:
                del current.awaited[shard]
        if current.awaited:
            return False
        self.clock, self._last_complete, self._at = current.clock, current.number, current.backup_owners
        self._n_replicated = len(current.backup_owners)
        self._failed = 0
        self.took_s = now_s - current.since_s
        self._rests_until_s = now_s + self.took_s
        self._round = None
        return True

    def not_backed_up(self, number: int, now_s: float) -> None:
        """Note that a server could not copy its shards: the round fails."""
        if self._round is not None and self._round.number == number:
            self._rests_until_s = now_s + (now_s - self._round.since_s)
            self._failed += 1
            self._round = None

    def abandon(self) -> None:
        """Break off the round under way: its shards are about to move."""
        self._round = None

    def lose(self, address: str) -> None:
        """Note that a process was lost with its replicas; a round that it takes part in fails."""
        self._at = {shard: owner for shard, owner in self._at.items() if owner.address != address}
        current = self._round
        if current is not None and (
            address in current.awaited.values()
            or any(owner.address == address for owner in current.backup_owners.values())
        ):
            self._round = None

    def forget(self) -> None:
        """Discard all replicas: they are too old, or incomplete."""
        self.clock, self._at, self._round = None, {}, None

    def restore(self, shards: Collection[int]) -> ReplicaSet | None:
        """Return the replicas of the last complete round; None if that of one of `shards` is missing."""
        if self.clock is None or any(shard not in self._at for shard in shards):
            return None
        addresses = tuple((shard, owner.address) for shard, owner in self._at.items())
        return ReplicaSet(self._last_complete, self.clock, addresses)

    def replica_owners(self) -> tuple[ShardOwner, ...] | None:
        """Return the backup owner of each shard in the last complete round, with the round in place of the epoch.

        None if there is no such round, or one of its backup owners was lost.
        """
        if self.clock is None or len(self._at) < self._n_replicated:
            return None
        return tuple(
            ShardOwner(shard, owner.node, owner.address, self._last_complete)
            for shard, owner in sorted(self._at.items())
        )
