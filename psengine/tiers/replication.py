"""What is kept of the shards, where, and of which clock. Pure.

In a *round*, every server copies one common clock of its shards to their keepers (the BackupPSs), in the background, and
keeps a copy of its own. A round is whole when all have said that they did. What the last whole round kept is the state
to which all go back when a server is lost; so it is one clock, the same for all.

The next round begins at the latest common clock of its time: clocks in between are left out. It rests for as long as the
last one took, so that a slow link is never busy with copies alone.

Source: Proteus (EuroSys 2017), 3.3 (ActivePSs push to BackupPSs in the background).
Differs: the state travels, not the aggregate of its updates: then a round that was broken off is as if it had not been.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from psengine.membership.node_record import NodeRecord
from psengine.protocol.instructions import BackUp, ReplicaSet, ShardOwner

#: Rounds that come to nothing in a row, from which on nobody counts on the next.
_FAILING = 2


@dataclass(frozen=True)
class BackupOwner:
    """A process that keeps a shard."""

    node: str
    address: str


@dataclass
class _Round:
    number: int
    clock: int
    since_s: float
    keepers: dict[int, BackupOwner]
    #: {shard: address of its server} of those that have not said so yet
    awaited: dict[int, str]


class ReplicationRounds:
    """Rounds of one job."""

    def __init__(self) -> None:
        #: clock of the last whole round; None where there is none that helps
        self.clock: int | None = None
        self._number = 0
        self._whole = 0
        self._at: dict[int, BackupOwner] = {}
        #: shards of which the last whole round has made copies, whether they are left or not
        self._n_kept = 0
        self._round: _Round | None = None
        self._rests_until_s = 0.0
        #: rounds in a row that came to nothing because somebody could not
        self._failed = 0
        #: how long the last whole round took, in seconds
        self.took_s = 0.0

    @property
    def under_way(self) -> bool:
        """Whether a round is."""
        return self._round is not None

    @property
    def failing(self) -> bool:
        """Whether rounds come to nothing, one after the other."""
        return self._failed >= _FAILING

    def keeper(self, shard: int) -> BackupOwner | None:
        """Return who has the shard's copy of the last whole round."""
        return self._at.get(shard)

    def has_replica(self, node: str) -> bool:
        """Return whether a node has copies of the last whole round."""
        return any(keeper.node == node for keeper in self._at.values())

    def lacks(self, keepers: Mapping[int, str]) -> bool:
        """Return whether some shard is not kept where it should be, by {shard: node}."""
        return any(shard not in self._at or self._at[shard].node != node for shard, node in keepers.items())

    def due(self, now_s: float) -> bool:
        """Return whether a round may begin."""
        return self._round is None and now_s >= self._rests_until_s

    def begin(
        self, clock: int, owners: Sequence[ShardOwner], keepers: Mapping[int, NodeRecord], now_s: float
    ) -> list[BackUp]:
        """Return the orders of a round, one a server."""
        self._number += 1
        at = {shard: BackupOwner(node.name, node.address) for shard, node in keepers.items()}
        self._round = _Round(self._number, clock, now_s, at, {owner.shard: owner.address for owner in owners})
        by_server: dict[tuple[str, str], list[ShardOwner]] = {}
        for owner in owners:
            by_server.setdefault((owner.node, owner.address), []).append(owner)
        return [
            BackUp(
                node,
                address,
                self._number,
                self._whole,
                clock,
                tuple(owner.shard for owner in served),
                tuple(owner.epoch for owner in served),
                tuple(at[owner.shard].address if owner.shard in at else "" for owner in served),
            )
            for (node, address), served in by_server.items()
        ]

    def backed_up(self, address: str, number: int, shards: Sequence[int], now_s: float) -> bool:
        """Note that a server and its keepers have their copies; return whether the round is whole by that."""
        there = self._round
        if there is None or there.number != number:
            return False
        there.awaited = {s: at for s, at in there.awaited.items() if s not in shards or at != address}
        if there.awaited:
            return False
        self.clock, self._whole, self._at = there.clock, there.number, there.keepers
        self._n_kept = len(there.keepers)
        self._failed = 0
        self.took_s = now_s - there.since_s
        self._rests_until_s = now_s + self.took_s
        self._round = None
        return True

    def not_backed_up(self, number: int, now_s: float) -> None:
        """Note that a server could not: the round comes to nothing."""
        if self._round is not None and self._round.number == number:
            self._rests_until_s = now_s + (now_s - self._round.since_s)
            self._failed += 1
            self._round = None

    def abandon(self) -> None:
        """Break a round off: its shards are about to move."""
        self._round = None

    def lose(self, address: str) -> None:
        """Note that a process is gone, with what it kept; a round that it has a part in comes to nothing."""
        self._at = {shard: keeper for shard, keeper in self._at.items() if keeper.address != address}
        there = self._round
        if there is not None and (
            address in there.awaited.values() or any(keeper.address == address for keeper in there.keepers.values())
        ):
            self._round = None

    def forget(self) -> None:
        """Rely on nothing that was kept: it is too old, or not whole."""
        self.clock, self._at, self._round = None, {}, None

    def restore(self, shards: Collection[int]) -> ReplicaSet | None:
        """Return where the state of the last whole round is; None where a copy of one of `shards` is missing."""
        if self.clock is None or any(shard not in self._at for shard in shards):
            return None
        return ReplicaSet(self._whole, self.clock, tuple((shard, keeper.address) for shard, keeper in self._at.items()))

    def places(self) -> tuple[ShardOwner, ...] | None:
        """Return who has each shard's copy of the last whole round, the round in place of the epoch.

        None where there is no such round, or a keeper of it is gone.
        """
        if self.clock is None or len(self._at) < self._n_kept:
            return None
        return tuple(
            ShardOwner(shard, keeper.node, keeper.address, self._whole) for shard, keeper in sorted(self._at.items())
        )
